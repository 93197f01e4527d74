"""Reader of the section ``outputs`` of a pipeline file, one output at a time."""

from __future__ import annotations

from typing import Any, Final

from anabranch.codec.formats import FORMATS
from anabranch.pipeline.document import MISSING, Document, Place, guess, words
from anabranch.pipeline.model import LiveSink, Output, Sink
from anabranch.pipeline.shard_checks import numbers_of_shards
from anabranch.pipeline.topic_uses import TopicUses
from anabranch.protocol import limits

_OUTPUT_KEYS: Final = ("stage", "corrected", "live", "shards")
_SINK_KEYS: Final = ("topic", "format", "key", "partitions")
_LIVE_KEYS: Final = (*_SINK_KEYS, "upsert")


def read_output(
    document: Document,
    uses: TopicUses,
    name: str,
    value: object,
    sections: dict[str, dict[str, Any]],
) -> Output | None:
    """Return the output ``name``; None: it has mistakes that leave no output. ``sections``: the
    file's sections, by name.
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
        uses.topic(f"{corrected.topic}.rejected", (*at, "corrected", "topic"))
    live = _live(document, uses, raw["live"], (*at, "live"), corrected) if "live" in raw else None
    numbers = numbers_of_shards(document, raw.get("shards", 1), (*at, "shards"), "output")
    if corrected.partitions is not None and max(numbers) > corrected.partitions:
        document.mistake(
            (*at, "shards"),
            f"its topic has {corrected.partitions} partitions, and each shard needs one: write"
            f" shards: {corrected.partitions} at most, or more partitions",
        )
    return Output(
        name=name,
        stage=stage or "",
        corrected=corrected,
        live=live,
        shards=numbers[-1],
        shards_before=numbers[:-1],
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
    return LiveSink(
        topic=sink.topic, format=sink.format, key=key, partitions=sink.partitions, upsert=upsert
    )


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
    format_ = document.choice(raw.get("format", "json"), (*at, "format"), tuple(FORMATS))
    if not FORMATS[format_].is_written:
        able = words([name for name, each in FORMATS.items() if each.is_written])
        document.mistake((*at, "format"), f"format {format_} is only for sources; use {able}")
    return Sink(
        topic=topic,
        format=format_,
        key=[column for column, _ in keys],
        partitions=(
            None
            if partitions is None
            else document.integer(partitions, (*at, "partitions"), 1, limits.PARTITIONS_MAX)
        ),
    )
