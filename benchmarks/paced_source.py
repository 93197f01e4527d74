"""A stream for ``benchmarks.batch``: rows by the clock, as many in each tick, and the marker
row that moves the watermark.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

TICK_S: Final = 0.25
ROWS_PER_TICK: Final = 240
"""About 950 a second."""
_KEYS: Final = 100
_TICKS_MAX: Final = 40
"""Maximum number of ticks in one batch: earlier ones are left out."""


class PacedSource(DataSource):
    """``spark.readStream.format("paced")``."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "paced"

    def schema(self) -> str:
        """Return the columns of the rows."""
        return "key int, note string, event_time timestamp, marker boolean"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's names
        """Return the reader."""
        return PacedReader()


class PacedReader(DataSourceStreamReader):
    """Offsets are ticks of the clock."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the first offset."""
        return {"tick": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's names
        """Return the last tick that is over."""
        return {"tick": max(int(time.time() / TICK_S), start["tick"])}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One split."""
        if start["tick"] == end["tick"]:
            return []
        return [InputPartition((max(start["tick"], end["tick"] - _TICKS_MAX), end["tick"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all ticks of a batch, and the marker."""
        first, last = partition.value
        rows = ROWS_PER_TICK * (last - first)
        bound_us = int(last * TICK_S * 1e6)
        event_times = pa.array([bound_us - 1] * rows + [bound_us], pa.timestamp("us", tz="UTC"))
        keys = pa.array([*(i % _KEYS for i in range(rows)), None], pa.int32())
        notes = pa.array(["note"] * rows + [None], pa.string())
        markers = pa.array([False] * rows + [True])
        yield pa.RecordBatch.from_arrays(
            [keys, notes, event_times, markers], names=["key", "note", "event_time", "marker"]
        )
