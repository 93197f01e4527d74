"""The two jobs of the benchmark as stage functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stateless(readings: DataFrame) -> DataFrame:
    """Project the readings with an even value. The event time is the reading's."""
    return readings.where(F.col("value") % 2 == 0).select(
        "time", "seq", "region", (F.col("value").cast("long") * 3 + 1).alias("scaled"), "event_time"
    )


def windowed(readings: DataFrame) -> DataFrame:
    """Count and integer sum per (region, site, device) and ten seconds. Event time: the
    window's end.
    """
    windows = readings.groupBy(
        F.window("event_time", "10 seconds").alias("window"), "region", "site", "device"
    ).agg(F.count("*").alias("records"), F.sum("value").alias("total"))
    return windows.select(
        "region",
        "site",
        "device",
        F.unix_millis("window.start").alias("window_start"),
        "records",
        "total",
        F.col("window.end").alias("event_time"),
    )
