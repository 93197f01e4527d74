"""A windowed stage: counts and averages by three keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def segment_speeds(reports: DataFrame, *, window: str = "10 seconds") -> DataFrame:
    """Reports and average speed (mph, rounded down) per (xway, dir, seg, window). Event time:
    the window's end.
    """
    windows = reports.groupBy(
        F.window("event_time", window).alias("window"), "xway", "dir", "seg"
    ).agg(F.count("*").alias("reports"), F.sum("speed").alias("speed_sum"))
    return windows.select(
        "xway",
        "dir",
        "seg",
        F.unix_millis("window.end").alias("window_end_ms"),
        "reports",
        F.expr("speed_sum div reports").alias("average_speed"),
        F.col("window.end").alias("event_time"),
    )
