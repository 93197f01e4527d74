"""Sum per meter, to see in which window a record counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def per_meter(usage: DataFrame) -> DataFrame:
    """Sum the energy of each meter in windows of ten seconds."""
    windows = usage.groupBy(F.window("event_time", "10 seconds"), "meter").agg(
        F.sum("kwh").alias("kwh")
    )
    return windows.select(
        "meter",
        F.date_format("window.end", "HH:mm:ss").alias("until"),
        "kwh",
        F.col("window.end").alias("event_time"),
    )
