"""Stages of the regions and of billing. The toll is Linear Road's: it rises with the square of the
number of cars above a free number, where they are slow.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

WINDOW_S = 5


def speeds(sightings: DataFrame) -> DataFrame:
    """Count the cars per segment and window, and sum up their speeds."""
    window = F.window("event_time", f"{WINDOW_S} seconds").alias("window")
    found = sightings.groupBy(window, "segment").agg(
        F.size(F.collect_set("car")).cast("bigint").alias("cars"),
        F.count("*").alias("sightings"),
        F.sum("speed").alias("speeds"),
    )
    return found.select(
        "segment", "cars", "sightings", "speeds", F.col("window.end").alias("event_time")
    )


def tolls(north_speeds: DataFrame, south_speeds: DataFrame, free_cars: int, slow: int) -> DataFrame:
    """Compute what a car pays per segment and window."""
    both = north_speeds.unionByName(south_speeds)
    over = F.greatest(F.col("cars") - free_cars, F.lit(0))
    is_slow = F.col("speeds") < slow * F.col("sightings")
    return both.select(
        "segment",
        "cars",
        F.when(is_slow, 2 * over * over).otherwise(0).cast("bigint").alias("toll"),
        "event_time",
    )
