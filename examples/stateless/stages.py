"""A stateless stage: filter and project, one row out for each row kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def slow_reports(reports: DataFrame, *, below_mph: int = 40) -> DataFrame:
    """Reports of vehicles on the travel lanes that are slower than ``below_mph``, with the
    speed in metres per hour. Event time: the report's.
    """
    return reports.where((F.col("lane").between(1, 3)) & (F.col("speed") < below_mph)).select(
        "time",
        "vehicle",
        "xway",
        "dir",
        "seg",
        (F.col("speed").cast("long") * 1609).alias("metres_per_hour"),
        "event_time",
    )
