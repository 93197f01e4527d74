"""Comparison of a system's answers with the right ones, as multisets of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of the answers of one query that differ."""

    expected: int
    missing: int
    """Right rows that are not there as often as they should be."""
    extra: int
    """Rows that are wrong, or there too often."""
    example: str = ""
    """One row that differs."""

    @property
    def is_right(self) -> bool:
        """Whether the answers are exactly the right ones."""
        return self.missing == self.extra == 0


def parse(expected: pl.DataFrame, values: Sequence[bytes]) -> pl.DataFrame:
    """Parse records into a table with the columns of ``expected``; other fields are ignored.

    Raises:
        polars.exceptions.ComputeError: a record is no JSON object, or a field has another type.
    """
    if not values:
        return expected.clear()
    return pl.read_ndjson(b"\n".join(values), schema=expected.schema)


def judge(expected: pl.DataFrame, got: pl.DataFrame) -> Verdict:
    """Compare ``got`` with ``expected``; the order of rows does not count."""
    columns = expected.columns
    wanted = expected.group_by(columns).agg(pl.len().cast(pl.Int64).alias("_wanted"))
    found = got.select(columns).group_by(columns).agg(pl.len().cast(pl.Int64).alias("_found"))
    both = wanted.join(found, on=columns, how="full", coalesce=True, nulls_equal=True).with_columns(
        (pl.col("_found").fill_null(0) - pl.col("_wanted").fill_null(0)).alias("_more")
    )
    missing, extra = both.select(
        (-pl.col("_more")).clip(lower_bound=0).sum().alias("missing"),
        pl.col("_more").clip(lower_bound=0).sum().alias("extra"),
    ).row(0)
    different = both.filter(pl.col("_more") != 0)
    example = str(different.sort(columns).row(0, named=True)) if different.height else ""
    return Verdict(expected.height, missing, extra, example)
