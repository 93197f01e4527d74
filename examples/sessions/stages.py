"""Stage with session windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def visits(clicks: DataFrame, *, gap: str = "1 minute") -> DataFrame:
    """Return pages and length of each visit. ``event_time`` is the window's end, ``gap`` after the
    last click.
    """
    windows = clicks.groupBy(F.session_window("event_time", gap).alias("window"), "visitor").agg(
        F.count("*").alias("pages"), F.max("event_time").alias("last")
    )
    return windows.select(
        "visitor",
        "pages",
        F.expr("timestampdiff(SECOND, window.start, last)").alias("seconds"),
        F.col("window.end").alias("event_time"),
    )
