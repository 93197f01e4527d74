"""Reader of the section ``outputs`` of a pipeline file, one output at a time."""

from __future__ import annotations

from typing import Any, Final, cast

from anabranch.codec.formats import FORMATS
from anabranch.codec.subject_names import STRATEGIES, Strategy
from anabranch.pipeline.document import MISSING, Document, Place, guess, words
from anabranch.pipeline.model import LiveSink, Output, Sink
from anabranch.pipeline.output_qos import read_qos
from anabranch.pipeline.record_sizes import record_max
from anabranch.pipeline.shard_checks import numbers_of_shards
from anabranch.pipeline.topic_uses import TopicUses
from anabranch.protocol import limits

_OUTPUT_KEYS: Final = ("stage", "corrected", "live", "shards", "qos", "max_delay")
_SINK_KEYS: Final = (
    "topic",
    "format",
    "key",
    "key_format",
    "subject",
    "partitions",
    "max_record",
)
_LIVE_KEYS: Final = (*_SINK_KEYS, "upsert")


def read_output(
    document: Document,
    uses: TopicUses,
    name: str,
    value: object,
    sections: dict[str, dict[str, Any]],
    *,
    has_registry: bool,
) -> Output | None:
    """Return the output ``name``; None: it has mistakes that leave no output. ``sections``: the
    file's sections, by name; ``has_registry``: it names a schema registry.
    """
    at: Place = ("outputs", name)
    raw = document.mapping(value, at, _OUTPUT_KEYS)
    if not isinstance(value, dict):
        return None
    stage = document.text(raw.get("stage", MISSING), (*at, "stage"))
    if stage is not None and stage not in sections["stages"]:
        source = stage in sections["sources"]
        hint = (
            "it is a source; an output shows a stage"
            if source
            else guess(stage, list(sections["stages"]))
        )
        document.mistake((*at, "stage"), f"there is no stage {stage}; {hint}")
    if "corrected" not in raw:
        document.mistake(at, "corrected is missing; name its topic, corrected: {topic: NAME}")
        return None
    corrected = _sink(document, uses, raw["corrected"], (*at, "corrected"))
    if corrected.topic:
        rejected = f"{corrected.topic}.rejected"
        uses.topic(rejected, (*at, "corrected", "topic"), made_of=corrected.topic)
    live = _live(document, uses, raw["live"], (*at, "live"), corrected) if "live" in raw else None
    for which, sink in (("corrected", corrected), ("live", live)):
        if sink is not None and isinstance(raw[which], dict):
            _check_schemas(document, raw[which], (*at, which), sink, has_registry=has_registry)
    numbers = numbers_of_shards(document, raw.get("shards", 1), (*at, "shards"), "output")
    if corrected.partitions is not None and max(numbers) > corrected.partitions:
        document.mistake(
            (*at, "shards"),
            f"its topic has {corrected.partitions} partitions, and each shard needs one: write"
            f" shards: {corrected.partitions} at most, or more partitions",
        )
    qos = read_qos(document, raw["qos"], (*at, "qos")) if "qos" in raw else None
    if qos is not None and live is None:
        document.mistake(
            (*at, "qos"),
            "this output has no live topic, and corrected results lack no rows, however late they"
            " are; add live: {topic: NAME}, or leave qos out",
        )
    own_max_delay_ms = None
    if "max_delay" in raw:
        own_max_delay_ms = document.duration(raw["max_delay"], (*at, "max_delay"), 1)
        if live is None:
            document.mistake(
                (*at, "max_delay"),
                "this output has no live topic, and only that shows results while input is missing;"
                " add live: {topic: NAME}, or leave max_delay out",
            )
    return Output(
        name=name,
        stage=stage or "",
        corrected=corrected,
        live=live,
        shards=numbers[-1],
        shards_before=numbers[:-1],
        qos=qos,
        max_delay_ms=own_max_delay_ms,
    )


def _live(
    document: Document, uses: TopicUses, value: object, at: Place, corrected: Sink
) -> LiveSink:
    sink = _sink(document, uses, value, at, _LIVE_KEYS)
    raw = value if isinstance(value, dict) else {}
    upsert = document.boolean(raw.get("upsert", False), (*at, "upsert"))
    key = sink.key if "key" in raw else corrected.key
    if upsert and not key:
        document.mistake(
            (*at, "upsert"),
            "an upsert view holds one value per key; name the columns of the key, key: [COLUMN]",
        )
    key_format = sink.key_format if "key_format" in raw or "key" in raw else corrected.key_format
    made = {**sink.model_dump(), "key": key, "key_format": key_format}
    return LiveSink(**made, upsert=upsert)


def _sink(
    document: Document,
    uses: TopicUses,
    value: object,
    at: Place,
    known: tuple[str, ...] = _SINK_KEYS,
) -> Sink:
    raw = document.mapping(value, at, known)
    topic = uses.topic(raw.get("topic", MISSING), (*at, "topic")) if isinstance(value, dict) else ""
    keys = (
        document.texts(raw["key"], (*at, "key"), "column")
        if "key" in raw and raw["key"] != []
        else []
    )
    partitions = raw.get("partitions")
    subject = document.choice(raw.get("subject", "topic"), (*at, "subject"), STRATEGIES)
    return Sink(
        topic=topic,
        format=_written(document, raw.get("format", "json"), (*at, "format")),
        key=[column for column, _ in keys],
        key_format=_written(document, raw.get("key_format", "json"), (*at, "key_format")),
        subject=cast("Strategy", subject),
        partitions=(
            None
            if partitions is None
            else document.integer(partitions, (*at, "partitions"), 1, limits.PARTITIONS_MAX)
        ),
        max_record_bytes=record_max(document, raw, at),
    )


def _check_schemas(
    document: Document, raw: dict[str, Any], at: Place, sink: Sink, *, has_registry: bool
) -> None:
    """Report keys of ``sink`` that have no effect."""
    if "subject" in raw and not has_registry:
        document.mistake(
            (*at, "subject"),
            "names schemas in a registry; write schema_registry: URL at the top of the file",
        )
    if "key_format" in raw and not sink.key:
        document.mistake((*at, "key_format"), "there is no key; name its columns, key: [COLUMN]")


def _written(document: Document, value: object, at: Place) -> str:
    """Return the format that ``value`` names, which outputs must have."""
    found = document.choice(value, at, tuple(FORMATS))
    if not FORMATS[found].is_written:
        able = words([name for name, each in FORMATS.items() if each.is_written])
        document.mistake(at, f"format {found} is only for sources; use {able}")
    return found
