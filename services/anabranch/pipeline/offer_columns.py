"""Checks of streams' columns against the terms of an offer, once the columns are known: those of
the definer's stages when they run, those of an offer when the owner's Spark has planned it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.codec.blocks import EVENT_TIME
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.offered_stages import wrong_columns

if TYPE_CHECKING:
    from anabranch.codec.record_schema import RecordSchema
    from anabranch.pipeline.model import Stage


def offered_inputs(stage: Stage, schemas: Mapping[str, pa.Schema]) -> Mapping[str, pa.Schema]:
    """Return the schemas of a stage's inputs. For a stage offered to others, each has only the
    columns that the terms name: its function never sees the others.

    Raises:
        ConfigurationError: an input lacks a column, or has it with another type.
    """
    if stage.offered is None:
        return schemas
    found = {}
    for stream, (name, record) in zip(stage.reads, stage.offered.reads.items(), strict=True):
        wanted, there = record.arrow_schema(), schemas[stream]
        if wrong := wrong_columns(_types(wanted), _types(there)):
            raise ConfigurationError(
                f"{stream} cannot be the input {name} of {stage.functions[0]}: {'; '.join(wrong)}"
            )
        kept = [there.field(column) for column in there.names if column in wanted.names]
        found[stream] = pa.schema([*kept, pa.field(EVENT_TIME, pa.int64())])
    return found


def not_as_offered(stage: Stage, schema: pa.Schema) -> str:
    """Return how the columns of a stage differ from its owner's offer; empty if they do not."""
    assert stage.offered is not None, "of an instance"  # noqa: S101
    wrong = not_as_stated(stage.offered.gives, schema)
    return f"it does not give what the offer says: {wrong}" if wrong else ""


def not_as_stated(record: RecordSchema, schema: pa.Schema) -> str:
    """Return how the columns of a stream differ from those that its owner has published; empty if
    they do not.
    """
    wanted, there = _types(record.arrow_schema()), _types(schema)
    more = [f"it has a column {name} more" for name in there if name not in wanted]
    return "; ".join([*wrong_columns(wanted, there), *more])


def _types(schema: pa.Schema) -> dict[str, str]:
    """Return the types by column name, without nullability: Spark declares most results
    nullable.
    """
    return {
        field.name: str(field.type).replace(" not null", "")
        for field in schema
        if field.name != EVENT_TIME
    }
