"""Shape of the input stream and of the expected answers, and their files.

An input line has fifteen integers, unused ones are -1. A stream is sorted by time; within a second
by type, car and the other fields, so that a seed makes the same bytes everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import polars as pl

INPUT: Final = (
    "type",
    "time",
    "vid",
    "spd",
    "xway",
    "lane",
    "dir",
    "seg",
    "pos",
    "qid",
    "s_init",
    "s_end",
    "dow",
    "tod",
    "day",
)
"""Fields of an input line, in the benchmark's order."""

POSITION: Final = 0
BALANCE: Final = 2
EXPENDITURE: Final = 3
TRAVEL_TIME: Final = 4

FEET_PER_SEGMENT: Final = 5280
SEGMENTS: Final = 100
EXIT_LANE: Final = 4

SCHEMAS: Final = {
    "tolls": ("vid", "time", "lav", "toll", "xway", "dir", "seg"),
    "accidents": ("vid", "time", "seg"),
    "charges": ("vid", "time", "toll"),
    "balances": ("qid", "vid", "time", "balance"),
    "expenditures": ("qid", "vid", "time", "toll"),
    "crashes": ("xway", "dir", "lane", "pos", "seg", "detected", "cleared"),
}
"""Columns of each table of ``Expected``, all 64-bit integers."""


_DIGEST_ROWS: Final = 1_000_000
"""Rows that are text at once where a digest is made of them."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Answers that are right for one input, as an oracle computes them."""

    tolls: pl.DataFrame
    """Toll notifications; the segment is that which the car enters."""
    accidents: pl.DataFrame
    """Accident notifications; the segment is the accident's."""
    charges: pl.DataFrame
    """Tolls charged, those of 0 left out. ``time``: of the report that left the segment."""
    balances: pl.DataFrame
    """Answers of type 2 as of the second of their query."""
    expenditures: pl.DataFrame
    """Answers of type 3. A query without a row in the history has none."""
    crashes: pl.DataFrame
    """Accidents, with the second of detection and of clearing (-1: not cleared)."""

    def differences(self, other: Expected) -> list[str]:
        """Name the tables in which two oracles differ, each with its first different rows."""
        found = []
        for field in fields(self):
            mine = getattr(self, field.name)
            its = getattr(other, field.name)
            if not mine.equals(its):
                only = [
                    _counted(one).join(_counted(two), on=_counted(one).columns, how="anti").rows()
                    for one, two in ((mine, its), (its, mine))
                ]
                found.append(
                    f"{field.name}: {mine.height} and {its.height} rows; only in the first:"
                    f" {only[0][:3]}; only in the second: {only[1][:3]}"
                )
        return found

    def write(self, folder: Path) -> None:
        """Write each table as TABLE.csv."""
        folder.mkdir(parents=True, exist_ok=True)
        for field in fields(self):
            getattr(self, field.name).write_csv(folder / f"{field.name}.csv")


def _counted(table: pl.DataFrame) -> pl.DataFrame:
    return table.group_by(table.columns).agg(pl.len().cast(pl.Int64).alias("rows"))


def expected(**tables: pl.DataFrame | Sequence[tuple[int, ...]]) -> Expected:
    """Make ``Expected`` of tables or lists of rows: columns of 64 bits, sorted by all of them."""
    made = {}
    for name, columns in SCHEMAS.items():
        given = tables[name]
        table = (
            given
            if isinstance(given, pl.DataFrame)
            else pl.DataFrame(given, schema=dict.fromkeys(columns, pl.Int64), orient="row")
        )
        made[name] = table.select(pl.col(columns).cast(pl.Int64)).sort(columns)
    return Expected(**made)


@dataclass(frozen=True, slots=True)
class World:
    """Input of a run, and what its maker knows about it."""

    stream: pl.DataFrame
    """Columns ``INPUT``."""
    history: pl.DataFrame
    """Tolls of earlier days: ``vid``, ``day``, ``xway``, ``toll``. One row for each key."""
    crashes: pl.DataFrame
    """Accidents that the maker arranged, as in ``Expected``."""
    trips: pl.DataFrame
    """Trips: ``vid``, ``xway``, ``dir``, ``entry_time``, ``entry_seg``, ``exit_time``,
    ``exit_seg``; the last two are -1 where the run ends before the trip.
    """

    def digest(self) -> str:
        """Return the SHA-256 of the input and its history, as they are in files."""
        found = hashlib.sha256()
        for table in (self.stream, self.history):
            # In slices: as text, the whole stream would be twice as large as it is.
            for rows in table.iter_slices(_DIGEST_ROWS):
                found.update(rows.write_csv(include_header=False).encode())
        return found.hexdigest()

    def write(self, folder: Path) -> None:
        """Write input.csv and history.csv without headers, the sidecars with one."""
        folder.mkdir(parents=True, exist_ok=True)
        self.stream.write_csv(folder / "input.csv", include_header=False)
        self.history.write_csv(folder / "history.csv", include_header=False)
        self.crashes.write_csv(folder / "crashes.csv")
        self.trips.write_csv(folder / "trips.csv")


def in_order(stream: pl.DataFrame) -> pl.DataFrame:
    """Sort an input stream by time, then type, car and all other fields."""
    first = ["time", "type", "vid"]
    rest = [name for name in INPUT if name not in first]
    return stream.select(pl.col(INPUT).cast(pl.Int32)).sort([*first, *rest])


def read_input(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read input.csv and history.csv, as ``World.write`` writes them."""
    stream = pl.read_csv(
        folder / "input.csv",
        has_header=False,
        new_columns=list(INPUT),
        schema_overrides=[pl.Int32] * len(INPUT),
    )
    names = ["vid", "day", "xway", "toll"]
    file = folder / "history.csv"
    if not file.stat().st_size:
        return stream, pl.DataFrame(schema=dict.fromkeys(names, pl.Int64))
    history = pl.read_csv(
        file, has_header=False, new_columns=names, schema_overrides=[pl.Int64] * len(names)
    )
    return stream, history
