"""Answers of a system under test: the lines of its output, as tables.

An output line has one of these forms, by its first field and number of fields:

- ``0,VID,TIME,EMIT,LAV,TOLL``: toll notification;
- ``1,TIME,EMIT,VID,SEG`` or ``1,TIME,EMIT,XWAY,SEG,DIR,VID``: accident notification;
- ``2,TIME,EMIT,RESULT_TIME,QID,BALANCE``: account balance;
- ``3,TIME,EMIT,QID,TOLL``: expenditure of a day.

Times are seconds since the beginning of the run; EMIT may have decimals, of which three count.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

KINDS: Final = ("tolls", "accidents", "balances", "expenditures")

COLUMNS: Final = {
    "tolls": ("vid", "time", "emit_ms", "lav", "toll"),
    "accidents": ("vid", "time", "emit_ms", "seg"),
    "balances": ("qid", "time", "emit_ms", "result_time", "balance"),
    "expenditures": ("qid", "time", "emit_ms", "toll"),
}
"""Columns of the table of each kind. Its rows are in the order of the output."""

_EMIT: Final = "emit"
_FORMS: Final[dict[tuple[str, int], tuple[str, tuple[str, ...]]]] = {
    ("0", 6): ("tolls", ("vid", "time", _EMIT, "lav", "toll")),
    ("1", 5): ("accidents", ("time", _EMIT, "vid", "seg")),
    ("1", 7): ("accidents", ("time", _EMIT, "xway", "seg", "dir", "vid")),
    ("2", 6): ("balances", ("time", _EMIT, "result_time", "qid", "balance")),
    ("3", 5): ("expenditures", ("time", _EMIT, "qid", "toll")),
}
"""Fields behind the first one, by first field and number of fields."""


_LINES: Final = 1_000_000
"""Lines that are split at once: as fields they take several times as much memory as in a table."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Output of a system: a table for each of ``KINDS``, and lines that have none of the forms."""

    tolls: pl.DataFrame
    accidents: pl.DataFrame
    balances: pl.DataFrame
    expenditures: pl.DataFrame
    unreadable: tuple[str, ...] = ()

    def table(self, kind: str) -> pl.DataFrame:
        """Return the table of one of ``KINDS``."""
        found: pl.DataFrame = getattr(self, kind)
        return found

    def with_table(self, kind: str, table: pl.DataFrame) -> Answers:
        """Return these answers with another table of one of ``KINDS``."""
        tables = {each: self.table(each) for each in KINDS} | {kind: table}
        return of_tables(tables, self.unreadable)


def parse(lines: Iterable[str], *, qid_first: bool = False) -> Answers:
    """Read output lines. ``qid_first``: balances have QID before RESULT_TIME."""
    rest = iter(lines)
    parts = [_parse([], qid_first=qid_first)]
    while some := [line.rstrip("\n") for line in itertools.islice(rest, _LINES)]:
        parts.append(_parse(some, qid_first=qid_first))
    tables = {kind: pl.concat([part.table(kind) for part in parts], rechunk=True) for kind in KINDS}
    return of_tables(tables, tuple(line for part in parts for line in part.unreadable))


def read(path: Path, *, qid_first: bool = False) -> Answers:
    """Read a file of output lines. A byte that is no text makes its line unreadable, not the file.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open(errors="backslashreplace") as lines:
        return parse(lines, qid_first=qid_first)


def _parse(lines: Sequence[str], *, qid_first: bool) -> Answers:
    text = pl.Series("line", lines, dtype=pl.String).to_frame().filter(pl.col("line") != "")
    split = text.with_row_index("place").with_columns(pl.col("line").str.split(",").alias("parts"))
    split = split.with_columns(
        pl.col("parts").list.first().str.strip_chars().alias("first"),
        pl.col("parts").list.len().alias("count"),
    )
    tables: dict[str, list[pl.DataFrame]] = {kind: [] for kind in KINDS}
    read = []
    for (first, count), (kind, names) in _FORMS.items():
        given = names
        if kind == "balances" and qid_first:
            given = tuple({"qid": "result_time", "result_time": "qid"}.get(n, n) for n in names)
        rows = split.filter((pl.col("first") == first) & (pl.col("count") == count)).select(
            "place",
            *(_number(number + 1, name) for number, name in enumerate(given)),
        )
        # Not a number, or one beyond 64 bits, becomes null here, and its line unreadable.
        emit_ms = (pl.col(_EMIT) * 1_000).round().cast(pl.Int64, strict=False)
        rows = rows.with_columns(emit_ms.alias("emit_ms"))
        rows = rows.drop_nulls()
        read.append(rows["place"])
        tables[kind].append(rows.select("place", *COLUMNS[kind]))
    unreadable = split.filter(~pl.col("place").is_in(pl.concat(read).implode()))["line"]
    joined = {kind: pl.concat(parts).sort("place").drop("place") for kind, parts in tables.items()}
    return of_tables(joined, tuple(unreadable))


def _number(position: int, name: str) -> pl.Expr:
    text = pl.col("parts").list.get(position, null_on_oob=True).str.strip_chars()
    kind = pl.Float64 if name == _EMIT else pl.Int64
    return text.cast(kind, strict=False).alias(name)


def of_rows(**rows: Iterable[tuple[int, ...]]) -> Answers:
    """Make answers of rows, in the order of ``COLUMNS``; a kind that is not given has none."""
    return of_tables(
        {
            kind: pl.DataFrame(
                list(rows.get(kind, ())), schema=dict.fromkeys(columns, pl.Int64), orient="row"
            )
            for kind, columns in COLUMNS.items()
        }
    )


def of_tables(tables: Mapping[str, pl.DataFrame], unreadable: tuple[str, ...] = ()) -> Answers:
    """Make answers of a table for each of ``KINDS``."""
    return Answers(
        tables["tolls"],
        tables["accidents"],
        tables["balances"],
        tables["expenditures"],
        unreadable,
    )
