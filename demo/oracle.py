"""Expected results, computed in one go from all reports by polars, without code of the project.

These functions and those in ``stages.py`` compute the same in two ways; the demo compares the
output of the running system with this, record by record.
"""

from __future__ import annotations

import json

import polars as pl

from demo.comparing import Result, result


def segment_statistics(reports: pl.DataFrame, window_ms: int) -> pl.DataFrame:
    """Compute average speed, distinct vehicles and reports per (xway, dir, seg, window). A report
    at a window's bound belongs to the next window.
    """
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
    """Compute the toll per segment and window."""
    above = pl.col("vehicles") - free_vehicles
    is_congested = (pl.col("average_speed") < free_speed) & (above > 0)
    toll = pl.when(is_congested).then(2 * above * above).otherwise(0).cast(pl.Int64).alias("toll")
    return statistics.select(
        "xway", "dir", "seg", "window_end_ms", "average_speed", "vehicles", toll
    )


def toll_notices(
    reports: pl.DataFrame, segment_tolls: pl.DataFrame, window_ms: int
) -> pl.DataFrame:
    """Compute the toll that each entering vehicle must pay: its segment's, of the window before the
    one in which it entered.
    """
    entering = reports.filter(pl.col("lane") == 0).with_columns(
        (pl.col("time") // window_ms * window_ms).alias("window_end_ms")
    )
    return (
        entering.join(segment_tolls, on=["xway", "dir", "seg", "window_end_ms"], how="inner")
        .select("vehicle", "time", "xway", "dir", "seg", "toll")
        .sort("time", "vehicle")
    )


KEYS: dict[str, tuple[str, ...]] = {
    "tolls": ("xway", "dir", "seg"),
    "toll_notices": ("vehicle",),
}
"""Columns of the key of each output, as the pipeline files name them."""

TIMES: dict[str, str] = {"tolls": "window_end_ms", "toll_notices": "time"}
"""Column with the time of each output's results."""


def answers(
    reports: pl.DataFrame, outputs: list[str], window_ms: int, free_vehicles: int, free_speed: int
) -> dict[str, pl.DataFrame]:
    """Compute all records of each of ``outputs``.

    Raises:
        KeyError: the toll road has no output of that name.
    """
    rows = tolls(segment_statistics(reports, window_ms), free_vehicles, free_speed)
    known = {"tolls": rows, "toll_notices": toll_notices(reports, rows, window_ms)}
    return {output: known[output] for output in outputs}


def results(
    output: str, rows: pl.DataFrame, bucket_ms: int, partitions: int
) -> dict[int, list[Result]]:
    """Return the records of an output as they must be on its topic: bucket, position, key and
    partition of each.
    """
    time, names = TIMES[output], KEYS[output]
    found: dict[int, list[Result]] = {}
    for row in rows.sort(time, *rows.columns).iter_rows(named=True):
        key = json.dumps({name: row[name] for name in names}, separators=(",", ":")).encode()
        place = (murmur2(key) & 0x7FFFFFFF) % partitions
        found.setdefault(-(-row[time] // bucket_ms), []).append(result(row, row[time], key, place))
    return found


def murmur2(data: bytes) -> int:
    """Return the hash by which Kafka's Java producers choose the partition of a key (Austin
    Appleby's MurmurHash2, 32 bits, with Kafka's seed).
    """
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    state = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        state = state * multiplier & mask ^ word
    if whole < len(data):
        state = (state ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    state = (state ^ state >> 13) * multiplier & mask
    return state ^ state >> 15
