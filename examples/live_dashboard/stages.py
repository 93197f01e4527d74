"""Stage that adds up two inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def load(hall_a: DataFrame, hall_b: DataFrame, *, window: str) -> DataFrame:
    """Sum the power of all machines in each window. ``event_time`` is the window's end."""
    added = (
        hall_a.unionByName(hall_b)
        .groupBy(F.window("event_time", window).alias("window"))
        .agg(
            F.size(F.collect_set("machine")).alias("machines"),
            F.sum("watts").alias("watts"),
        )
    )
    return added.select("machines", "watts", F.col("window.end").alias("event_time"))
