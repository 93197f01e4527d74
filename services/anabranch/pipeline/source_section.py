"""Reader of the section ``sources`` of a pipeline file, one source at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from anabranch.codec.change_schema import SOURCE_TIME, change_schema, is_envelope
from anabranch.codec.formats import FORMATS
from anabranch.pipeline.document import MISSING, Document, Place, shown, words
from anabranch.pipeline.event_time import read_event_time
from anabranch.pipeline.kafka_columns import read_columns
from anabranch.pipeline.model import EventTime, IdleTimeout, Source
from anabranch.pipeline.named_records import read_record
from anabranch.pipeline.record_sizes import record_max
from anabranch.pipeline.shard_checks import numbers_of_shards
from anabranch.pipeline.source_formats import read_format
from anabranch.pipeline.topic_uses import TopicUses
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import RECORD_BYTES_MAX

if TYPE_CHECKING:
    from anabranch.codec.record_schema import RecordSchema

_SOURCE_KEYS: Final = (
    "start",
    "shards",
    "topics",
    "record",
    "format",
    "cdc",
    "columns",
    "event_time",
    "out_of_orderness",
    "idle_timeout",
    "bounded",
    "max_ahead",
    "late",
    "extra_fields",
    "max_record",
    "dead_letter",
    "history",
)


def read_source(
    document: Document, uses: TopicUses, name: str, value: object, *, has_registry: bool
) -> Source | None:
    """Return the source ``name``; None: it has mistakes that leave no source. ``has_registry``: the
    file names a schema registry.
    """
    at: Place = ("sources", name)
    raw = document.mapping(value, at, _SOURCE_KEYS)
    if not isinstance(value, dict):
        return None
    topics = document.texts(raw.get("topics", MISSING), (*at, "topics"), "topic")
    for topic, place in topics:
        uses.topic(topic, place)
    record = read_record(document, raw.get("record", MISSING), (*at, "record"))
    bounded = document.boolean(raw.get("bounded", False), (*at, "bounded"))
    format_ = read_format(
        document, raw.get("format", "json"), (*at, "format"), has_registry=has_registry
    )
    cdc, row = _change_data(document, raw, at, record, format_)
    own = () if row is None else row.fields
    columns = read_columns(
        document, raw.get("columns", {}), (*at, "columns"), own, format_, has_registry=has_registry
    )
    rows = row and replace(row, fields=(*own, *(column.field for column in columns)))
    time = raw.get("event_time", MISSING)
    event_time = (
        EventTime(field=SOURCE_TIME)
        if cdc is not None and time is MISSING
        else read_event_time(document, time, (*at, "event_time"), rows)
    )
    late = document.choice(
        raw.get("late", "dead_letter"), (*at, "late"), ("dead_letter", "reassign")
    )
    extra_fields = _extra_fields(document, raw, (*at, "extra_fields"), format_)
    first = topics[0][0] if topics else ""
    dead_letter = uses.topic(
        raw.get("dead_letter", f"{first}.rejected" if first else "rejected"),
        (*at, "dead_letter"),
        alone=False,
        made_of="" if "dead_letter" in raw else first,
    )
    out_of_orderness_ms = document.duration(
        raw.get("out_of_orderness", "0ms"), (*at, "out_of_orderness")
    )
    start = _start(document, raw.get("start", "earliest"), (*at, "start"))
    max_ahead_ms = document.duration(
        raw.get("max_ahead", "1m"), (*at, "max_ahead"), 1, word="unlimited"
    )
    *shards_before, shards = numbers_of_shards(
        document, raw.get("shards", 1), (*at, "shards"), "source", may_forget=True
    )
    history_ms = document.duration(raw.get("history", "0ms"), (*at, "history"))
    if record is None or row is None or event_time is None:
        return None
    return Source(
        name=name,
        topics=[topic for topic, _ in topics],
        record=record,
        format=format_,
        cdc=cdc,
        columns=tuple(columns),
        event_time=event_time,
        out_of_orderness_ms=out_of_orderness_ms or 0,
        idle_timeout=_idle_timeout(document, raw.get("idle_timeout", {}), (*at, "idle_timeout")),
        bounded=bounded,
        max_ahead_ms=max_ahead_ms,
        late=cast("Literal['dead_letter', 'reassign']", late),
        extra_fields=extra_fields,
        max_record_bytes=record_max(document, raw, at) or RECORD_BYTES_MAX,
        dead_letter=dead_letter,
        history_ms=history_ms or 0,
        start=start,
        shards=shards,
        shards_before=shards_before,
    )


def _change_data(
    document: Document, raw: dict[str, Any], at: Place, record: RecordSchema | None, format_: str
) -> tuple[Literal["debezium"] | None, RecordSchema | None]:
    """Return what wraps the rows of the source, and the record of a row; None: it has mistakes."""
    if "cdc" not in raw:
        return None, record
    document.choice(raw["cdc"], (*at, "cdc"), ("debezium",))
    if record is None:
        return "debezium", None
    if not FORMATS[format_].has_extra_fields and not is_envelope(record):
        document.mistake(
            (*at, "record"),
            f"{record.name} is a row; in {format_} it must be the envelope around it, as the"
            " registry has it, with the fields before, after and op",
        )
        return "debezium", None
    try:
        found = change_schema(record)
    except ConfigurationError as error:
        document.mistake((*at, "record"), str(error))
        return "debezium", None
    if not found.has_time and "event_time" not in raw:
        document.mistake(
            at, f"event_time is missing: the envelope {record.name} has no field source.ts_ms"
        )
    return "debezium", found.rows


def _idle_timeout(document: Document, value: object, at: Place) -> IdleTimeout:
    idle = document.mapping(value, at, ("partition", "source"))
    return IdleTimeout(
        partition_ms=document.duration(
            idle.get("partition", "5s"), (*at, "partition"), 1, word="never"
        ),
        source_ms=document.duration(idle.get("source", "never"), (*at, "source"), 1, word="never"),
    )


def _extra_fields(document: Document, raw: dict[str, Any], at: Place, format_: str) -> str:
    """Return what becomes of fields that the record does not have."""
    if "extra_fields" in raw and not FORMATS[format_].has_extra_fields:
        able = words([name for name, each in FORMATS.items() if each.has_extra_fields])
        document.mistake(
            at,
            f"works only with format {able}; in {format_} a record has just its schema's fields",
        )
    elif "extra_fields" in raw and "cdc" in raw:
        document.mistake(at, "works only without cdc: envelopes have further fields")
    return document.choice(raw.get("extra_fields", "ignore"), at, ("ignore", "reject"))


def _start(document: Document, value: object, at: Place) -> Literal["earliest", "latest"] | int:
    if value in ("earliest", "latest"):
        return cast("Literal['earliest', 'latest']", str(value))
    try:
        # YAML already turns a time without quotes into a datetime, in UTC if it has no zone.
        found = value if isinstance(value, datetime) else datetime.fromisoformat(cast("str", value))
        found_ms = round(
            (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1_000
        )
    except (TypeError, ValueError):
        found_ms = -1
    if found_ms < 0:
        document.mistake(
            at,
            f"{shown(value)} is not known; use earliest, latest, or a time such as"
            " 2026-05-01T14:00:00Z",
        )
    return max(found_ms, 0)
