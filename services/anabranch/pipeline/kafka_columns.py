"""Reader of the key ``columns`` of a source: columns for parts of the Kafka record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from anabranch.codec.field_types import NAME, RESERVED, Field
from anabranch.pipeline.document import Document, Place, shown
from anabranch.pipeline.model import KafkaColumn
from anabranch.pipeline.named_records import read_record
from anabranch.pipeline.source_formats import read_format

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADER: Final = "headers."
_KINDS: Final = {"timestamp": "timestamp-millis", "partition": "int", "offset": "long"}
"""Types of the parts that are neither text nor bytes."""
_FORMS: Final = (
    "key, headers.NAME, timestamp, partition, offset, topic, {key: bytes}, {headers.NAME: bytes}"
    " or {key: FILE.avsc}"
)


def read_columns(
    document: Document,
    value: object,
    at: Place,
    fields: Sequence[Field],
    format_: str,
    *,
    has_registry: bool,
) -> list[KafkaColumn]:
    """Return the columns that ``value`` maps to parts of the Kafka record.

    ``fields`` are the columns of the source's record, which must have other names; ``format_`` is
    the format of decoded keys that name none. ``has_registry``: the file names a schema registry.
    """
    found = list[KafkaColumn]()
    names = {field.name.lower(): field.name for field in fields}
    for name, part in document.mapping(value, at, None).items():
        place = (*at, name)
        if not NAME.match(name) or name.lower() in RESERVED:
            document.mistake(
                place,
                f"{name!r} cannot be a column: use letters, digits and '_', and not event_time",
            )
        elif name.lower() in names:
            document.mistake(
                place, f"{name} is a column already ({names[name.lower()]}); use another name"
            )
        elif column := _column(document, part, place, name, format_, has_registry=has_registry):
            names[name.lower()] = name
            found.append(column)
    return found


def _column(
    document: Document, value: object, at: Place, name: str, format_: str, *, has_registry: bool
) -> KafkaColumn | None:
    part, kind = value, "text"
    if isinstance(value, dict):
        raw = {key: item for key, item in value.items() if key != "format"}
        if len(raw) == 1:
            ((part, kind),) = raw.items()
    is_header = isinstance(part, str) and part.startswith(_HEADER) and len(part) > len(_HEADER)
    if part not in ("key", "topic", *_KINDS) and not is_header:
        document.mistake(at, f"{shown(part)} is no part of a Kafka record; use {_FORMS}")
        return None
    is_plain = kind in ("text", "bytes")
    if isinstance(value, dict) and (part in ("topic", *_KINDS) or (is_header and not is_plain)):
        document.mistake(at, f"{shown(kind)} is no form of {part}; use {_FORMS}")
        return None
    if isinstance(value, dict) and "format" in value:
        format_ = read_format(document, value["format"], (*at, "format"), has_registry=has_registry)
        if is_plain:
            document.mistake((*at, "format"), "is that of a key with a record, {key: FILE.avsc}")
    if not is_plain:
        record = read_record(document, kind, (*at, "key"))
        if record is None:
            return None
        field = Field(name, "record", nullable=True, inner=record.fields)
        return KafkaColumn(field=field, part="key", record=record, format=format_)
    plain = "bytes" if kind == "bytes" else _KINDS.get(cast("str", part), "string")
    # Any record may lack a key or a header, and old ones a timestamp.
    is_nullable = part not in ("partition", "offset", "topic")
    return KafkaColumn(
        field=Field(name, plain, nullable=is_nullable),
        part=cast("Any", "header" if is_header else part),
        header=cast("str", part).removeprefix(_HEADER) if is_header else "",
    )
