"""The rules of Linear Road over a whole stream at once: sorting, grouping and joining of columns.

Theory of operation. Roads (expressway and direction) are computed one after the other, as only
balances and expenditures span them: what is there at once is the stream, its answers and a road.
The reports of each car on a road are put in order, so that what a rule asks of the report before is
a shift by one row. Numbers of runs and of trips are running sums of their beginnings. An accident
is where the running sum of cars that stop and move at one place reaches two. Averages are
floating-point numbers, except where one is so near to an integer that rounding could decide: these
are computed again as fractions.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
import polars as pl

from benchmarks.linear_road.stream import BALANCE, EXPENDITURE, POSITION, Expected, expected

_ROAD: Final = ["xway", "dir"]
_CELL: Final = ["xway", "dir", "seg", "minute"]
_REPORT: Final = ("time", "vid", "spd", "xway", "lane", "dir", "seg", "pos")
"""Fields of a position report."""
_OF_A_ROAD: Final = ("tolls", "accidents", "charges", "crashes")
"""Tables of ``Expected`` whose rows each road decides by itself."""
_DOUBTFUL: Final = 1e-6
"""Distance from an integer below which an average is computed as a fraction, in mph. The rounding
errors of a mean of some thousand speeds are smaller by far.
"""


def answers(stream: pl.DataFrame, history: pl.DataFrame) -> Expected:
    """Return the right answers for an input stream in its order."""
    roads = stream.filter(pl.col("type") == POSITION).select(_ROAD).unique().sort(_ROAD)
    tables: dict[str, list[pl.DataFrame]] = {name: [] for name in _OF_A_ROAD}
    # A stream without reports has the tables of a road without reports.
    for xway, direction in roads.rows() or [(0, 0)]:
        is_its = (pl.col("xway") == xway) & (pl.col("dir") == direction)
        reports = stream.lazy().filter((pl.col("type") == POSITION) & is_its).select(_REPORT)
        for name, table in _of_a_road(reports.collect()).items():
            tables[name].append(table)
    found = {name: pl.concat(tables.pop(name)) for name in _OF_A_ROAD}
    balances = _balances(stream, found["charges"])
    return expected(**found, balances=balances, expenditures=_expenditures(stream, history))


def _of_a_road(in_time_order: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the tables ``_OF_A_ROAD`` for the position reports of one road."""
    reports = _in_car_order(in_time_order)
    crashes = _crashes(reports)
    last_minute = int(np.asarray(reports["minute"].max() or 0))
    entering = (
        reports.filter(pl.col("enters"))
        .join(_averages(reports), on=_CELL, how="left")
        .join(_near_crashes(crashes, last_minute), on=_CELL, how="left")
        .with_columns(pl.col("lav").fill_null(-1), pl.col("volume").fill_null(0))
        .with_columns(
            pl.when((pl.col("lav") < 40) & (pl.col("volume") > 50) & pl.col("crash_seg").is_null())
            .then(2 * (pl.col("volume") - 50).pow(2))
            .otherwise(0)
            .alias("toll")
        )
    )
    notified = entering.filter(pl.col("lane") != 4)
    return {
        "tolls": notified.select(*_CELL[:3], "vid", "time", "lav", "toll"),
        "accidents": notified.filter(pl.col("crash_seg").is_not_null()).select(
            "vid", "time", pl.col("crash_seg").alias("seg")
        ),
        "charges": _charges(reports, notified.select("row", "toll")),
        "crashes": crashes,
    }


def _in_car_order(in_time_order: pl.DataFrame) -> pl.DataFrame:
    """Return all different position reports, car by car, with what the report before says of each.

    Further columns: ``row``, its place in the given order; ``trip`` and ``run`` (of equal places),
    numbers; ``nth``, its place in its run from 1; ``enters``; ``time_before`` and ``seg_before``.
    """
    car = [*_ROAD, "vid"]
    before = [pl.col(name).shift(1).over(car).alias(f"{name}_before") for name in ("time", "seg")]
    place = ["lane", "seg", "pos"]
    is_same_place = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in place)
    return (
        in_time_order.with_row_index("row")
        .unique([*car, "time", "spd", *place], keep="first")
        .sort([*car, "row"])
        .with_columns(*before, (pl.col("time") // 60 + 1).alias("minute"))
        .with_columns(
            (
                pl.col("time_before").is_null()
                | ((pl.col("lane") == 0) & (pl.col("time") - pl.col("time_before") > 60))
            ).alias("begins")
        )
        .with_columns(
            pl.col("begins").cum_sum().alias("trip"),
            (pl.col("begins") | ~is_same_place.fill_null(value=False)).cum_sum().alias("run"),
            (pl.col("begins") | (pl.col("seg") != pl.col("seg_before"))).alias("enters"),
        )
        .with_columns(pl.int_range(1, pl.len() + 1).over("run").alias("nth"))
    )


def _crashes(reports: pl.DataFrame) -> pl.DataFrame:
    """Return the accidents: the times at which the number of cars stopped at a place reaches two,
    and at which it falls below two.
    """
    place = [*_ROAD, "lane", "pos", "seg"]
    is_standing = (pl.col("nth") >= 4) & pl.col("lane").is_between(1, 3)
    stops = reports.filter((pl.col("nth") == 4) & pl.col("lane").is_between(1, 3)).select(
        *place, "row", "time", pl.lit(1).alias("change")
    )
    car = [*_ROAD, "vid"]
    ended = reports.with_columns(
        pl.col(name).shift(-1).over(car).alias(f"{name}_after") for name in ("run", "row", "time")
    ).filter(is_standing & (pl.col("run_after") != pl.col("run")))
    moves = ended.select(
        *place,
        pl.col("row_after").alias("row"),
        pl.col("time_after").alias("time"),
        pl.lit(-1).alias("change"),
    )
    at = [*_ROAD, "lane", "pos"]
    counted = (
        pl.concat([stops, moves])
        .sort([*at, "row"])
        .with_columns(pl.col("change").cum_sum().over(at).alias("standing"))
    )
    begun = counted.filter((pl.col("change") == 1) & (pl.col("standing") == 2))
    over = counted.filter((pl.col("change") == -1) & (pl.col("standing") == 1))
    number = pl.int_range(pl.len()).over(at).alias("number")
    return (
        begun.with_columns(number)
        .join(over.with_columns(number), on=[*at, "number"], how="left", suffix="_over")
        .select(
            *place,
            pl.col("time").alias("detected"),
            pl.col("time_over").fill_null(-1).alias("cleared"),
        )
    )


def _near_crashes(crashes: pl.DataFrame, last_minute: int) -> pl.DataFrame:
    """Return the nearest accident's segment for each cell from which cars are told of one."""
    until = (
        pl.when(pl.col("cleared") < 0).then(last_minute + 1).otherwise(pl.col("cleared") // 60 + 2)
    )
    cells = (
        crashes.with_columns(
            pl.int_ranges(pl.col("detected") // 60 + 2, until, dtype=pl.Int64).alias("minute")
        )
        .explode("minute", empty_as_null=False)
        .with_columns(pl.lit([0, 1, 2, 3, 4]).alias("distance"))
        .explode("distance")
        .with_columns(
            pl.when(pl.col("dir") == 0)
            .then(pl.col("seg") - pl.col("distance"))
            .otherwise(pl.col("seg") + pl.col("distance"))
            .cast(pl.Int64)
            .alias("from_seg")
        )
    )
    return (
        cells.sort("distance")
        .group_by(*_ROAD, pl.col("from_seg").alias("cell_seg"), "minute")
        .agg(pl.col("seg").first().alias("crash_seg"))
        .rename({"cell_seg": "seg"})
    )


def _averages(reports: pl.DataFrame) -> pl.DataFrame:
    """Return ``lav`` and ``volume`` for each cell in which they are not -1 and 0."""
    by_car = reports.group_by(*_CELL, "vid").agg(
        pl.col("spd").sum().alias("sum"), pl.len().cast(pl.Int64).alias("reports")
    )
    minutes = by_car.group_by(_CELL).agg(
        (pl.col("sum") / pl.col("reports")).mean().alias("mean"),
        pl.len().cast(pl.Int64).alias("cars"),
    )
    later = [
        minutes.select(
            *_ROAD, "seg", (pl.col("minute") + ahead).alias("minute"), pl.col("mean"), "cars"
        ).with_columns(pl.lit(ahead).alias("age"))
        for ahead in range(1, 6)
    ]
    found = (
        pl.concat(later)
        .group_by(_CELL)
        .agg(
            pl.col("mean").mean().alias("exact"),
            pl.col("cars").filter(pl.col("age") == 1).sum().alias("volume"),
        )
        .with_columns(pl.col("exact").floor().cast(pl.Int64).alias("lav"))
    )
    is_doubtful = (pl.col("exact") - pl.col("exact").round()).abs() < _DOUBTFUL
    doubtful = found.filter(is_doubtful)
    sure = found.filter(~is_doubtful).select(*_CELL, "lav", "volume")
    return pl.concat([sure, _as_fractions(doubtful, by_car).select(sure.columns)])


def _as_fractions(doubtful: pl.DataFrame, by_car: pl.DataFrame) -> pl.DataFrame:
    """Compute ``lav`` of some cells without rounding."""
    wanted = doubtful.select(*_CELL).with_columns(
        pl.int_ranges(pl.col("minute") - 5, pl.col("minute")).alias("measured")
    )
    parts = (
        wanted.explode("measured")
        .join(
            by_car,
            left_on=[*_ROAD, "seg", "measured"],
            right_on=_CELL,
            how="inner",
        )
        .group_by(*_CELL, "measured", "reports")
        .agg(pl.col("sum").sum(), pl.len().cast(pl.Int64).alias("cars"))
    )
    minutes: dict[tuple[int, ...], dict[int, list[Fraction]]] = {}
    columns = (*_CELL, "measured", "reports", "sum", "cars")
    for *cell, measured, reports, total, cars in parts.select(columns).iter_rows():
        entry = minutes.setdefault(tuple(cell), {}).setdefault(measured, [Fraction(0), Fraction(0)])
        entry[0] += Fraction(total, reports)
        entry[1] += cars
    exact = {
        cell: int(sum((total / cars for total, cars in means.values()), Fraction(0)) / len(means))
        for cell, means in minutes.items()
    }
    lav = [exact[tuple(cell)] for cell in doubtful.select(*_CELL).iter_rows()]
    return doubtful.with_columns(pl.Series("lav", lav, dtype=pl.Int64))


def _charges(reports: pl.DataFrame, quoted: pl.DataFrame) -> pl.DataFrame:
    """Return the tolls that are charged: a quoted one where the next thing that the car does,
    within its trip, is to enter another segment and not to leave by the ramp of this one.
    """
    events = (
        reports.filter(pl.col("enters") | (pl.col("lane") == 4))
        .join(quoted, on="row", how="left", maintain_order="left")
        .with_columns(
            pl.col(name).shift(-1).over("trip").alias(f"{name}_next") for name in ("time", "enters")
        )
    )
    return events.filter((pl.col("toll") > 0) & pl.col("enters_next")).select(
        "vid", pl.col("time_next").alias("time"), "toll"
    )


def _balances(stream: pl.DataFrame, charges: pl.DataFrame) -> pl.DataFrame:
    sums = (
        charges.sort("vid", "time")
        .with_columns(pl.col("toll").cum_sum().over("vid").alias("balance"))
        .group_by("vid", "time")
        .agg(pl.col("balance").max())
        .sort("time")
    )
    queries = stream.filter(pl.col("type") == BALANCE).select("qid", "vid", "time").sort("time")
    return queries.join_asof(
        sums, on="time", by="vid", strategy="backward", check_sortedness=False
    ).with_columns(pl.col("balance").fill_null(0))


def _expenditures(stream: pl.DataFrame, history: pl.DataFrame) -> pl.DataFrame:
    return stream.filter(pl.col("type") == EXPENDITURE).join(
        history, on=["vid", "day", "xway"], how="inner"
    )
