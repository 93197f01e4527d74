"""The stage that moves."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows


def speeds(sightings: DataFrame) -> DataFrame:
    """Per segment and second: how many cars, how many sightings, and the sum of their speeds."""
    window = F.window("event_time", "1 second").alias("window")
    found = sightings.groupBy(window, "segment").agg(
        F.size(F.collect_set("car")).cast("bigint").alias("cars"),
        F.count("*").alias("sightings"),
        F.sum("speed").alias("speeds"),
    )
    return found.select(
        "segment", "cars", "sightings", "speeds", F.col("window.end").alias("event_time")
    )
