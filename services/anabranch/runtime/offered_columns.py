"""The columns of streams against the terms of an offer, once streams tell them: those of a stage of
the definer's are known when it runs, those of an offer when the owner's Spark has planned it.
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
    """Of the inputs of a stage that is offered to others the columns that its terms name: what
    else a stream has does not come near its function. Those of other stages are as they are.

    Raises:
        ConfigurationError: an input has not these columns.
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
    """How the columns of a stage differ from those that its owner offers; empty: they do not."""
    assert stage.offered is not None, "of an instance"  # noqa: S101
    wrong = not_as_stated(stage.offered.gives, schema)
    return f"it does not give what the offer says: {wrong}" if wrong else ""


def not_as_stated(record: RecordSchema, schema: pa.Schema) -> str:
    """How the columns of a stream differ from those that its owner tells others; empty: they do
    not.
    """
    wanted, there = _types(record.arrow_schema()), _types(schema)
    more = [f"it has a column {name} more" for name in there if name not in wanted]
    return "; ".join([*wrong_columns(wanted, there), *more])


def _types(schema: pa.Schema) -> dict[str, str]:
    """Names and types, whatever may be null: Spark says of most of what it computes that it may."""
    return {
        field.name: str(field.type).replace(" not null", "")
        for field in schema
        if field.name != EVENT_TIME
    }
