"""The stages: a union with a filter, then windows of it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name


def clean(a: DataFrame, b: DataFrame) -> DataFrame:
    """Both sources without what is worth nothing."""
    return (
        a.unionByName(b)
        .where("value > 0")
        .select("shop", "product", "channel", "value", "event_time")
    )


def revenue(cleaned: DataFrame) -> DataFrame:
    """Per window of 5 s, shop, product and channel: how many, and how much."""
    windows = cleaned.groupBy(F.window("event_time", "5 seconds"), "shop", "product", "channel")
    made = windows.agg(F.count("*").alias("sales"), F.sum("value").alias("revenue"))
    return made.select(
        "shop", "product", "channel", "sales", "revenue", F.col("window.end").alias("event_time")
    )
