"""Stages that south computes, for itself and for others. No other participant has this file."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows


def speeds(sightings: DataFrame, window_s: int = 5) -> DataFrame:
    """Count the cars per segment and window, and sum up their speeds."""
    window = F.window("event_time", f"{window_s} seconds").alias("window")
    found = sightings.groupBy(window, "segment").agg(
        F.size(F.collect_set("car")).cast("bigint").alias("cars"),
        F.count("*").alias("sightings"),
        F.sum("speed").alias("speeds"),
    )
    return found.select(
        "segment", "cars", "sightings", "speeds", F.col("window.end").alias("event_time")
    )
