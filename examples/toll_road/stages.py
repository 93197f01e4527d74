"""The stages of the toll road: plain functions ``DataFrame -> DataFrame``.

Theory of operation. Each input has the columns of its record and ``event_time``, a timestamp that
already carries a watermark without delay. The result has a column ``event_time`` too: for a window
that is its end. Nothing here depends on the order of the rows or on how they are cut into batches:
sums and counts of integers, sets, and an average that is one integer division at the end.

The functions run on static DataFrames as well, which is how their tests compare them with the
oracle.

What is simpler than in Linear Road: a segment's average speed is that of one window, as the sum of
all reported speeds divided by the number of reports, where the benchmark takes five minutes and
averages per vehicle first; and there are no accidents.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def segment_statistics(*, window: str = "1 minute", **reports: DataFrame) -> DataFrame:
    """Compute average speed (mph, rounded down), distinct vehicles and reports per (xway, dir, seg,
    window).

    ``reports`` are all inputs of the stage, one per expressway or one for all. ``window`` is a
    length as Spark writes it; Linear Road has a minute. The rows of a window come when the boundary
    passes its end, which is their ``event_time``.
    """
    windows = (
        reduce(lambda left, right: left.unionByName(right), reports.values())
        .groupBy(F.window("event_time", window).alias("window"), "xway", "dir", "seg")
        .agg(
            F.sum("speed").alias("speed_sum"),
            F.count("*").alias("reports"),
            F.size(F.collect_set("vehicle")).alias(
                "vehicles"
            ),  # count(distinct) does not exist on streams
        )
    )
    return windows.select(
        "xway",
        "dir",
        "seg",
        F.unix_millis("window.end").alias("window_end_ms"),
        F.expr("speed_sum div reports").alias("average_speed"),
        "vehicles",
        "reports",
        F.col("window.end").alias("event_time"),
    )


def tolls(
    segment_statistics: DataFrame, *, free_vehicles: int = 50, free_speed: int = 40
) -> DataFrame:
    """Compute the toll of each segment for the window after the measured one.

    By Linear Road's formula it is zero where traffic flows (average of at least ``free_speed`` mph,
    or no more than ``free_vehicles`` vehicles), else twice the square of the number of vehicles
    above that.
    """
    above = F.col("vehicles").cast("long") - F.lit(free_vehicles)
    is_congested = (F.col("average_speed") < free_speed) & (above > 0)
    return segment_statistics.select(
        "xway",
        "dir",
        "seg",
        "window_end_ms",
        "average_speed",
        "vehicles",
        F.when(is_congested, above * above * 2).otherwise(F.lit(0)).cast("long").alias("toll"),
        "event_time",
    )


def segment_tolls(
    *, window: str = "1 minute", free_vehicles: int = 50, free_speed: int = 40, **reports: DataFrame
) -> DataFrame:
    """Compute ``segment_statistics`` and ``tolls`` as one stage: one query, one process instead of
    two.
    """
    return tolls(
        segment_statistics(window=window, **reports),
        free_vehicles=free_vehicles,
        free_speed=free_speed,
    )


def toll_notices(
    segment_tolls: DataFrame, *, window: str = "1 minute", **reports: DataFrame
) -> DataFrame:
    """Compute what each vehicle that enters an expressway (lane 0) must pay: the toll of its
    segment by the last window before it entered.

    It is an inner join with a bound in time on both sides: a toll holds for the window that begins
    where its own ended. So Spark can forget both sides, and a notice has the report's time, which
    is never the earlier one. A window without a vehicle yields no notice.
    """
    entering = (
        reduce(lambda left, right: left.unionByName(right), reports.values())
        .where("lane = 0")
        .select(
            "time",
            "vehicle",
            F.col("xway").alias("at_xway"),
            F.col("dir").alias("at_dir"),
            F.col("seg").alias("at_seg"),
            "event_time",
        )
    )
    holding = segment_tolls.select(
        "xway", "dir", "seg", "toll", F.col("event_time").alias("holds_from")
    )
    return entering.join(
        holding,
        F.expr(
            "at_xway = xway AND at_dir = dir AND at_seg = seg AND event_time >= holds_from AND"
            f" event_time < holds_from + INTERVAL {window}"
        ),
        "inner",
    ).select("vehicle", "time", "xway", "dir", "seg", "toll", "event_time")
