"""Schemas of Debezium's change events: the envelope of a row, and the row of an envelope.

A file may have the one or the other. An envelope, as it is registered for Avro, has the row
``before`` and ``after`` a change, ``op``, and ``source`` with the time of the change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from anabranch.codec.field_types import Field
from anabranch.codec.record_schema import RecordSchema
from anabranch.protocol.errors import ConfigurationError

OP: Final = "op"
"""Column with the kind of the change: ``c`` create, ``u`` update, ``d`` delete, ``r`` read by a
snapshot.
"""
SOURCE_TIME: Final = "source.ts_ms"
"""Column of the time of the change in the database, in ms: after the row's, until the event time
is known. No user's column has a dot in its name.
"""


@dataclass(frozen=True, slots=True)
class ChangeSchema:
    """Schemas of a table's change events."""

    envelope: RecordSchema
    """Schema with which each value is read: ``before``, ``after``, ``op``, and the time within
    ``source``.
    """
    rows: RecordSchema
    """Columns of a row, and ``op``."""
    has_time: bool
    """Whether envelopes have the time of the change in the database."""


def change_schema(record: RecordSchema) -> ChangeSchema:
    """Return the schemas of change events, of which ``record`` is the envelope or the row.

    Raises:
        ConfigurationError: the envelope has no row, or the row has a column ``op``.
    """
    after = record.field("after")
    if after is None or not is_envelope(record):
        after = Field("after", "record", inner=record.fields)
        source: Field | None = Field("source", "record", inner=(Field("ts_ms", "long"),))
    else:
        source = record.field("source")
    if any(field.name.lower() == OP for field in after.inner):
        raise ConfigurationError(
            f"record {record.name}: the row has a column {OP}, which `cdc` adds; give the field"
            f' another name, and "alias": "{OP}" with its name in JSON'
        )
    # What a database logs of a row that it deletes may be its key alone.
    optional = tuple(
        replace(field, nullable=True, default=None, has_default=True) for field in after.inner
    )
    part: dict[str, Any] = {"nullable": True, "has_default": True, "default": None}
    op = Field(OP, "string")
    time = [field for field in source.inner if field.name == "ts_ms"] if source else []
    fields = [
        replace(after, name="before", inner=optional, **part),
        replace(after, **part),
        op,
        *([replace(source, inner=tuple(time))] if source and time else []),
    ]
    return ChangeSchema(
        replace(record, fields=tuple(fields)),
        replace(record, fields=(*optional, op)),
        has_time=bool(time),
    )


def is_envelope(record: RecordSchema) -> bool:
    """Return whether ``record`` is an envelope, not a row."""
    after = record.field("after")
    return after is not None and after.kind == "record" and record.field(OP) is not None
