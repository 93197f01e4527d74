"""Stages of the overloaded toll road: each passage takes 4 ms, as if a service were asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc
import pyspark.sql.functions as sf
from pyspark.sql.types import LongType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

COST_S: Final = 0.004
"""Time that a passage takes, in seconds. It is slept, so that it is the same on every machine."""


def _charge(axles: int) -> int:
    time.sleep(COST_S)
    return 2 if axles == 2 else 9


def tolls(passages: DataFrame) -> DataFrame:
    """Return the vehicles, trucks and tolls of each gate and second."""
    charged = passages.withColumn("toll", sf.udf(_charge, LongType())("axles"))
    by_gate = charged.groupBy(sf.window("event_time", "1 second"), "gate")
    sums = by_gate.agg(
        sf.count("toll").alias("vehicles"),
        sf.sum(sf.when(sf.col("axles") > 2, 1).otherwise(0)).alias("trucks"),
        sf.sum("toll").alias("toll"),
    )
    end = sf.col("window.end").alias("event_time")
    return sums.select("gate", "vehicles", "trucks", "toll", end)


def counts(passages: DataFrame) -> DataFrame:
    """Return the same: a second stage on the same node, whose results are worth less."""
    return tolls(passages)


def united(charged: DataFrame) -> DataFrame:
    """Return the results of all shards of ``charged``."""
    return charged.where("vehicles > 0")


def trucks_first(rows: pa.Table) -> pa.ChunkedArray:
    """Return how much each passage matters: trucks pay most."""
    return pc.greater(rows["axles"], 2)
