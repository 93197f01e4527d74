"""What must come out, computed at once from all reports by polars. No project code.

The functions here and those in ``stages.py`` say the same thing in two ways; the demo compares what came out of the running system with
this, record by record.
"""

from __future__ import annotations

import polars as pl


def segment_statistics(reports: pl.DataFrame, window_ms: int) -> pl.DataFrame:
    """Average speed, distinct vehicles and reports per (xway, dir, seg, window). A report at a window's bound is in the next one."""
    return (
        reports.with_columns(((pl.col("time") // window_ms + 1) * window_ms).alias("window_end_ms"))
        .group_by("xway", "dir", "seg", "window_end_ms")
        .agg(
            (pl.col("speed").sum() // pl.len()).cast(pl.Int64).alias("average_speed"),
            pl.col("vehicle").n_unique().cast(pl.Int64).alias("vehicles"),
            pl.len().cast(pl.Int64).alias("reports"),
        )
        .sort("window_end_ms", "xway", "dir", "seg")
    )


def tolls(statistics: pl.DataFrame, free_vehicles: int, free_speed: int) -> pl.DataFrame:
    """Toll per segment and window."""
    above = pl.col("vehicles") - free_vehicles
    is_congested = (pl.col("average_speed") < free_speed) & (above > 0)
    toll = pl.when(is_congested).then(2 * above * above).otherwise(0).cast(pl.Int64).alias("toll")
    return statistics.select("xway", "dir", "seg", "window_end_ms", "average_speed", "vehicles", toll)


def toll_notices(reports: pl.DataFrame, segment_tolls: pl.DataFrame, window_ms: int) -> pl.DataFrame:
    """The toll that each entering vehicle must pay: its segment's, of the window before the one in which it came."""
    entering = reports.filter(pl.col("lane") == 0).with_columns((pl.col("time") // window_ms * window_ms).alias("window_end_ms"))
    return (
        entering.join(segment_tolls, on=["xway", "dir", "seg", "window_end_ms"], how="inner")
        .select("vehicle", "time", "xway", "dir", "seg", "toll")
        .sort("time", "vehicle")
    )


KEYS: dict[str, tuple[str, ...]] = {
    "tolls": ("xway", "dir", "seg", "window_end_ms"),
    "toll_notices": ("vehicle", "time", "xway", "dir", "seg"),
}
"""Columns that name a record of each output: no two records that must come out are equal in them."""


def answers(reports: pl.DataFrame, outputs: list[str], window_ms: int, free_vehicles: int, free_speed: int) -> dict[str, pl.DataFrame]:
    """All records of each of ``outputs``.

    Raises:
        KeyError: an output that the toll road does not have.
    """
    rows = tolls(segment_statistics(reports, window_ms), free_vehicles, free_speed)
    known = {"tolls": rows, "toll_notices": toll_notices(reports, rows, window_ms)}
    return {output: known[output] for output in outputs}
