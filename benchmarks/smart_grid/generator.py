"""Generator of readings: 40 houses with 2 125 plugs, gaps and repeated readings, from a seed.

    python -m benchmarks.smart_grid.generator --houses 4 --days 2 --minutes 10 --seed 1 FILE.csv

Theory of operation. Everything is drawn by hashing the seed with a plug and a time, so a part of
the input is the same whatever else is generated. A plug measures once a second, load and work in
turn; its load is a number of steps of its own resolution (about 2 W): a level that lasts for
minutes, and a step up or down now and then. The same ``minutes`` are generated of each of ``days``,
so that a short input has slices with a history.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from benchmarks.linear_road.draws import draw

VERSION: Final = 1
HOUSES: Final = 40
PLUGS: Final = 2_125
FIELDS: Final = ("id", "timestamp", "value", "property", "plug_id", "household_id", "house_id")
WORK, LOAD = 0, 1
FIRST_S: Final = 1_378_058_400
"""Beginning of the first day's minutes, in seconds since 1970: 2013-09-01 18:00 UTC."""

_SMALLEST, _LARGEST = 7, 141
"""Plugs of the smallest and largest house, as in the challenge's data."""
_SKEW: Final = 1.9
"""Exponent that gives 40 houses between these two about 2 125 plugs."""
_PLUGS_PER_HOUSEHOLD: Final = 7.4
_HOUSEHOLDS_MAX: Final = 18
_DAY_S: Final = 86_400
_BLOCK_S: Final = 60
_PER_MILLE: Final = 1_000
_LOST_PER_MILLE: Final = 10
"""Readings that are missing one by one."""
_SILENT_PER_MILLE: Final = 30
"""Plugs that say nothing for a spell of ``_SPELL_S``."""
_REPEATED_PER_MILLE: Final = 10
_SPELL_S: Final = 120
_LEVEL_S: Final = 300
"""Shortest time for which a plug keeps its level, in seconds."""
_J_PER_WH: Final = 3_600


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of an input."""

    houses: int = 4
    days: int = 2
    minutes: int = 10
    seed: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        if not 1 <= self.houses <= HOUSES:
            raise ValueError(f"houses is from 1 to {HOUSES}, not {self.houses}")
        if self.days < 1 or not 1 <= self.minutes <= _DAY_S // 60:
            raise ValueError("days is from 1, minutes from 1 to 1440")


def layout(seed: int) -> pl.DataFrame:
    """Return all plugs, as rows (house_id, household_id, plug_id)."""
    sizes = np.linspace(0, 1, HOUSES) ** _SKEW * (_LARGEST - _SMALLEST) + _SMALLEST
    plugs = np.round(sizes).astype(int)
    middle = HOUSES // 2
    excess = int(plugs.sum()) - PLUGS
    for i in range(abs(excess)):  # one each, around the middle: first and last stay as they are
        plugs[middle - abs(excess) // 2 + i] -= np.sign(excess)
    places = np.argsort(draw(seed, "order of houses", np.arange(HOUSES), 0))
    # Houses of a middling size come first: a part of the input is not one of the extremes.
    places = np.concatenate(
        (places[np.abs(places - middle) < 8], places[np.abs(places - middle) >= 8])
    )
    rows = []
    for house, size in enumerate(plugs[places].tolist()):
        households = min(_HOUSEHOLDS_MAX, max(1, round(size / _PLUGS_PER_HOUSEHOLD)))
        rows += [(house, i % households, i // households) for i in range(size)]
    schema = ["house_id", "household_id", "plug_id"]
    return pl.DataFrame(rows, schema, orient="row").sort(schema)


class World:
    """Input of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        plugs = layout(plan.seed).filter(pl.col("house_id") < plan.houses)
        self.plugs = plugs
        self._number = np.arange(plugs.height)
        self._unit_mw = 2_100 + draw(plan.seed, "resolution", self._number, 0) % 200
        self._work_mj = np.zeros(plugs.height, np.int64)
        self._id = 0

    def blocks(self) -> Iterator[pl.DataFrame]:
        """Return the readings in the order of arrival, a minute at a time."""
        for day in range(self.plan.days):
            late: pl.DataFrame | None = None
            for minute in range(self.plan.minutes):
                first_s = FIRST_S + day * _DAY_S + minute * _BLOCK_S
                found = self._minute(first_s)
                if late is not None:
                    found = pl.concat([late, found])
                found = found.sort("arrival", maintain_order=True)
                end_s = first_s + _BLOCK_S
                late = found.filter(pl.col("arrival") >= end_s)
                yield self._numbered(found.filter(pl.col("arrival") < end_s))
            if late is not None and late.height:
                yield self._numbered(late)

    def readings(self) -> pl.DataFrame:
        """Return the whole input."""
        return pl.concat(list(self.blocks()))

    def _numbered(self, rows: pl.DataFrame) -> pl.DataFrame:
        first, self._id = self._id, self._id + rows.height
        ids = pl.int_range(first, self._id, dtype=pl.Int64, eager=True).alias("id")
        return rows.with_columns(ids).select(FIELDS)

    def _minute(self, first_s: int) -> pl.DataFrame:
        """Return the readings of one minute with their second of arrival."""
        seed, plugs = self.plan.seed, self.plugs.height
        number = np.repeat(self._number, _BLOCK_S)
        second = np.tile(first_s + np.arange(_BLOCK_S), plugs)
        load_mw = self._load_mw(number, second)
        by_plug = load_mw.reshape(plugs, _BLOCK_S)
        work_mj = self._work_mj[:, None] + np.cumsum(by_plug, axis=1)
        self._work_mj = work_mj[:, -1].copy()
        is_load = (number + second) % 2 == 0
        work_kwh = (work_mj.ravel() // (_J_PER_WH * 1_000)) / 1_000
        value = np.where(is_load, load_mw / 1_000, work_kwh)
        is_there = draw(seed, "lost", number, second) % _PER_MILLE >= _LOST_PER_MILLE
        spell = second // _SPELL_S
        is_there &= draw(seed, "silent", number, spell) % _PER_MILLE >= _SILENT_PER_MILLE
        is_twice = draw(seed, "twice", number, second) % _PER_MILLE < _REPEATED_PER_MILLE
        columns: dict[str, Any] = {
            "arrival": second,
            "timestamp": second,
            "value": value,
            "property": np.where(is_load, LOAD, WORK),
            **{name: np.repeat(self.plugs[name].to_numpy(), _BLOCK_S) for name in FIELDS[4:]},
        }
        rows = pl.DataFrame(columns)
        again = rows.filter(pl.Series(is_there & is_twice)).with_columns(pl.col("arrival") + 1)
        return pl.concat([rows.filter(pl.Series(is_there)), again]).sort(
            "arrival", maintain_order=True
        )

    def _load_mw(self, number: Any, second: Any) -> Any:
        """Return the load of plug ``number`` at each ``second``."""
        seed = self.plan.seed
        of_plug = draw(seed, "spread", number, 0)
        level = second // (_LEVEL_S + of_plug % (4 * _LEVEL_S))
        kind = draw(seed, "level", number, level)
        of_kind = kind // 100
        steps = np.select(
            [kind % 100 < 40, kind % 100 < 70, kind % 100 < 95],
            [0, 1 + of_kind % 8, 10 + of_kind % 80],
            200 + of_kind % 900,
        )
        noise = draw(seed, "noise", number, second) % 100
        # An unloaded plug measures nothing; a large load varies by more than a small one.
        swing = np.where(noise < 12, 1, np.where(noise < 20, -1, 0)) * (1 + steps // 50)
        steps = np.where(steps > 0, np.maximum(steps + swing, 0), 0)
        return steps * self._unit_mw[number]


def digest(blocks: Iterator[pl.DataFrame]) -> str:
    """Return the SHA-256 of the input as CSV."""
    found = hashlib.sha256()
    for block in blocks:
        found.update(block.write_csv(include_header=False).encode())
    return found.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what the command line asks for. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.smart_grid.generator",
        description="Writes readings in the layout of the challenge, without a header.",
    )
    parser.add_argument("--houses", type=int, default=4)
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("file", type=Path)
    given = parser.parse_args(arguments)
    try:
        plan = Plan(given.houses, given.days, given.minutes, given.seed)
    except ValueError as error:
        parser.error(str(error))
    with given.file.open("w") as file:
        for block in World(plan).blocks():
            file.write(block.write_csv(include_header=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
