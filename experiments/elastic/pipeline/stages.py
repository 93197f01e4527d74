"""Stages with large state, with a window, and with rows that cost time."""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Any, Final

import pyspark.sql.functions as sf
from pyspark.sql import Row
from pyspark.sql.types import LongType

from anabranch.stateful import BatchSafeProcessor, Timers, transform

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    Found = tuple[tuple[Any, ...] | None, Iterable[Row]]

COST_S: Final = 0.01
"""Time that a row of the dear stage takes, in seconds. It is slept, so that it is the same on every
machine, and that four nodes can have four times as much of it as one.
"""


class Kept(BatchSafeProcessor):
    """Newest note of each key."""

    state_schema = "version BIGINT, note STRING"

    def row(
        self,
        key: tuple[Any, ...],
        row: Row,
        state: tuple[Any, ...] | None,
        timers: Timers,  # noqa: ARG002 - a note is kept for ever
    ) -> Found:
        """Keep the note. Return version and checksum of the one that it replaces, if any."""
        results = []
        if state is not None:
            version, note = state
            checksum = zlib.crc32(note.encode())
            replaced = Row(
                key=key[0], version=version, checksum=checksum, event_time=row.event_time
            )
            results.append(replaced)
        return (row.version, row.note), results


def kept(writes: DataFrame) -> DataFrame:
    """Return what each write replaces."""
    schema = "key BIGINT, version BIGINT, checksum BIGINT, event_time TIMESTAMP"
    return transform(writes, ["key"], Kept(), schema)


def windows(writes: DataFrame) -> DataFrame:
    """Return the writes of each key in windows of 30 seconds that start every 5 seconds."""
    by_key = writes.groupBy(sf.window("event_time", "30 seconds", "5 seconds"), "key")
    counted = by_key.agg(sf.count("version").alias("writes"))
    return counted.select("key", "writes", sf.col("window.end").alias("event_time"))


def _slowly(version: int) -> int:
    time.sleep(COST_S)
    return version


def dear(writes: DataFrame) -> DataFrame:
    """Return the writes of each key in each second, of which each takes ``COST_S``."""
    paid = writes.withColumn("paid", sf.udf(_slowly, LongType())("version"))
    by_key = paid.groupBy(sf.window("event_time", "1 second"), "key")
    counted = by_key.agg(sf.count("paid").alias("writes"))
    return counted.select("key", "writes", sf.col("window.end").alias("event_time"))


def united(dear: DataFrame) -> DataFrame:
    """Return the results of all shards of ``dear``."""
    return dear.where("writes > 0")
