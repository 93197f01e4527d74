"""Flaws of real Linear Road files, added to generated input.

Cars that are seen again after they left, cars with one or two reports, first reports on an exit
ramp, negative positions, lost, delayed and repeated reports, cars that break down alone or in pairs
without slowing others, queries about unknown cars and days. The rules say what each of them means;
what the generator arranged is no longer the whole truth.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from benchmarks.linear_road.draws import draw
from benchmarks.linear_road.stream import (
    BALANCE,
    EXIT_LANE,
    EXPENDITURE,
    POSITION,
    World,
    in_order,
)

_OTHER_CAR: Final = 10_000_000
"""Distance of the numbers of added cars from those that were generated."""
_DELAY_S: Final = 7


def soil(world: World, seed: int) -> World:
    """Return the world with flaws in its stream."""
    stream = world.stream
    end_s = int(np.asarray(stream["time"].max() or 0))

    def some(purpose: str, of: pl.DataFrame, one_in: int) -> pl.Series:
        key = of["time"].to_numpy().astype(np.int64) * 16 + of["type"].to_numpy()
        chance = draw(seed, purpose, of["vid"].to_numpy().astype(np.int64), key)
        return pl.Series(chance % one_in == 0)

    def other_car(rows: pl.DataFrame, number: int) -> pl.DataFrame:
        return rows.with_columns(pl.col("vid") + number * _OTHER_CAR)

    reports = stream.filter(pl.col("type") == POSITION)
    queries = stream.filter(pl.col("type") != POSITION)
    queries = queries.with_columns(
        pl.when((pl.col("type") == BALANCE) & some("stranger", queries, 10))
        .then(pl.col("vid") + 5 * _OTHER_CAR)
        .otherwise(pl.col("vid"))
        .alias("vid"),
        pl.when((pl.col("type") == EXPENDITURE) & some("today", queries, 5))
        .then(0)
        .otherwise(pl.col("day"))
        .alias("day"),
    )
    reports = reports.filter(~some("lost", reports, 100))
    reports = reports.with_columns(
        pl.when(some("late", reports, 100))
        .then(pl.col("time") + _DELAY_S)
        .otherwise(pl.col("time"))
        .alias("time"),
        pl.when((pl.col("seg") == 0) & some("negative", reports, 20))
        .then(-1 - pl.col("pos"))
        .otherwise(pl.col("pos"))
        .alias("pos"),
    )
    exits = reports.filter(pl.col("lane") == EXIT_LANE)
    seen_again = exits.filter(some("again", exits, 20)).with_columns(
        pl.col("time") + 30, pl.lit(1, pl.Int32).alias("lane")
    )
    ramp = other_car(reports.filter(some("ramp", reports, 300)), 1).with_columns(
        pl.lit(EXIT_LANE, pl.Int32).alias("lane")
    )
    short = other_car(reports.filter(some("short", reports, 300)), 2)
    broken = other_car(reports.filter(some("broken", reports, 1_000)), 3).with_columns(
        pl.lit(2, pl.Int32).alias("lane"), pl.lit(0, pl.Int32).alias("spd")
    )
    pair = other_car(broken.filter(some("pair", broken, 2)), 1)
    standing = [
        each.with_columns(pl.col("time") + 30 * number)
        for each in (broken, pair)
        for number in range(6)
    ]
    repeated = reports.filter(some("repeated", reports, 200))
    soiled = pl.concat([reports, repeated, seen_again, ramp, short, *standing, queries])
    return World(
        in_order(soiled.filter(pl.col("time") <= end_s)),
        world.history,
        world.crashes,
        world.trips,
    )
