"""Schemas of the streams that no stage of the pipeline makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.codec.blocks import EVENT_TIME

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline


def source_schema(pipeline: Pipeline, stream: str) -> pa.Schema:
    """Return the schema of a source's rows, or of another pipeline's stream."""
    bindings = pipeline.bindings
    record = bindings[stream].record if stream in bindings else pipeline.sources[stream].rows
    return record.arrow_schema().append(pa.field(EVENT_TIME, pa.int64()))
