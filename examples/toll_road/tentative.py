"""What the tentative tolls of a live topic must be: the answer without the inputs that were missing. No project code.

A source that is missing leaves a hole in its reports, a bucket at a time: a window has what came before the hole and what came after it. Which
buckets a branch had to do without is not written on its results, only the names of the streams are. So of a tentative bucket

    T1  all results name the same streams, and none that cannot have been missing;
    T2  the results of every expressway whose source is not named are those of the whole answer, each of them;
    T3  those of an expressway whose source is named are the answer to its reports with some buckets left out: the same ones for all of its
        segments, in at most two holes (any, where a window has few buckets);
    T4  the results stand in the order in which the whole answer would have them, each with its key, time and partition.

And a bucket that is shown without a single result has none but of expressways whose sources were missing (T5).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl

from examples.toll_road import oracle
from examples.toll_road.comparing import Result
from examples.toll_road.live_checker import TENTATIVE, LiveRecord, Transaction

OUTPUT: Final = "tolls"
STAGE: Final = "segment_statistics"
"""Between the sources and the stage whose results are judged: where it is missing there are no results at all."""
_SUBSETS_MAX: Final = 8
"""Windows of up to so many buckets are tried with every set of buckets left out."""


@dataclass(frozen=True)
class Road:
    """The traffic, and how tolls are made of it."""

    reports: pl.DataFrame
    sources: Sequence[str]
    """Each of one expressway, in the order of their numbers."""
    bucket_ms: int
    window_ms: int
    free_vehicles: int
    free_speed: int
    partitions: int
    _tried: dict[tuple[int, tuple[Result, ...]], bool] = field(default_factory=dict)

    @cached_property
    def answer(self) -> Mapping[int, Sequence[Result]]:
        """The whole one."""
        return self._results(self.reports)

    def can_be(self, bucket: int, xway: int, rows: Sequence[Result]) -> bool:
        """T3: whether ``rows`` are tolls of an expressway without some of its reports."""
        name = (bucket * 1_000 + xway, tuple(rows))
        if name not in self._tried:
            self._tried[name] = self._can_be(bucket, xway, rows)
        return self._tried[name]

    def _can_be(self, bucket: int, xway: int, rows: Sequence[Result]) -> bool:
        end_ms = bucket * self.bucket_ms
        mine = self.reports.filter(pl.col("xway") == xway, pl.col("time") >= end_ms - self.window_ms, pl.col("time") < end_ms).with_columns(
            (-(-pl.col("time") // self.bucket_ms)).alias("bucket")
        )
        first, last = -(-(end_ms - self.window_ms) // self.bucket_ms), -(-(end_ms - 1) // self.bucket_ms)
        for kept in self._kept(mine, first, last - first + 1, rows):
            if self._results(mine.filter(pl.col("bucket").is_in(kept))).get(bucket, []) == list(rows):
                return True
        return False

    @staticmethod
    def _kept(mine: pl.DataFrame, first: int, count: int, rows: Sequence[Result]) -> Iterator[list[int]]:
        """The sets of buckets with which the average speeds are right: the few that are worth a whole computation."""
        sums = mine.group_by("dir", "seg", "bucket").agg(pl.col("speed").sum(), pl.len().alias("reports"))
        places = {place: number for number, place in enumerate(sums.select("dir", "seg").unique().sort("dir", "seg").rows())}
        speed, reports = np.zeros((2, count, len(places)), dtype=np.int64)
        for direction, seg, bucket, total, number in sums.select("dir", "seg", "bucket", "speed", "reports").iter_rows():
            speed[bucket - first, places[direction, seg]] = total
            reports[bucket - first, places[direction, seg]] = number
        values = [json.loads(row.value) for row in rows]
        said = np.full(len(places), -1, dtype=np.int64)
        for value in values:
            place = places.get((value.get("dir"), value.get("seg")))
            if place is None:
                return
            said[place] = value.get("average_speed", -1)
        masks = np.array([_mask(count, holes) for holes in _holes(count)], dtype=np.int64)
        number = masks @ reports
        average = np.where(number > 0, (masks @ speed) // np.maximum(number, 1), -1)
        for mask in masks[(average == said).all(axis=1)]:
            yield [first + place for place in np.flatnonzero(mask).tolist()]

    def _results(self, reports: pl.DataFrame) -> dict[int, list[Result]]:
        rows = oracle.answers(reports.select(self.reports.columns), [OUTPUT], self.window_ms, self.free_vehicles, self.free_speed)[OUTPUT]
        return oracle.results(OUTPUT, rows, self.bucket_ms, self.partitions)


def _holes(count: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """What may be left out of ``count`` buckets, as (first, after the last)."""
    if count <= _SUBSETS_MAX:
        for size in range(count + 1):
            for left_out in combinations(range(count), size):
                yield tuple((place, place + 1) for place in left_out)
        return
    yield ()
    yield from (((first, end),) for first, end in combinations(range(count + 1), 2))
    yield from (((a, b), (c, d)) for a, b, c, d in combinations(range(count + 1), 4))


def _mask(count: int, holes: tuple[tuple[int, int], ...]) -> list[int]:
    kept = [1] * count
    for first, end in holes:
        kept[first:end] = [0] * (end - first)
    return kept


def check(ordered: Sequence[Transaction], road: Road, may_miss: Collection[str], missing_of: Callable[[int], Collection[str]]) -> list[str]:
    """What is wrong with the tentative results of a live topic, in words.

    Args:
        ordered: The transactions that count (``live_checker.until``).
        road: What came in.
        may_miss: Streams that a result may name.
        missing_of: The streams that were missing of a bucket that is shown without results.
    """
    wrong: list[str] = []
    upto = 0
    for transaction in ordered:
        shown: dict[int, list[LiveRecord]] = {}
        for record in transaction.records:
            if record.kind == TENTATIVE and record.ident is not None:
                shown.setdefault(record.ident[0], []).append(record)
        for bucket, records in shown.items():
            wrong += [
                f"tentative bucket {bucket}, transaction {transaction.sequence}: {text}" for text in _check(bucket, records, road, may_miss)
            ]
        covered = max(upto, transaction.stable)
        for bucket in road.answer if transaction.shown > covered else ():
            if covered < bucket <= transaction.shown and bucket not in shown:
                there = _must_be(bucket, road, missing_of(bucket))
                wrong += (
                    [
                        f"bucket {bucket}, transaction {transaction.sequence}, is shown without results, but has {len(there)}, such as {there[0]}"
                    ]
                    if there
                    else []
                )
        upto = max(covered, transaction.shown)
    return wrong


def _must_be(bucket: int, road: Road, missing: Collection[str]) -> list[Result]:
    """T5."""
    if STAGE in missing:
        return []
    return [row for row in road.answer[bucket] if road.sources[_xway(row)] not in missing]


def _check(bucket: int, records: Sequence[LiveRecord], road: Road, may_miss: Collection[str]) -> Iterator[str]:
    """T1 to T4, of one bucket as one transaction shows it."""
    said = {(record.missing, record.branch) for record in records}
    if len(said) > 1:
        yield f"its results name different streams or branches: {sorted(said)}"
    missing = {name for record in records for name in record.missing}
    if not missing <= set(may_miss):
        yield f"its results name {sorted(missing - set(may_miss))}, which cannot have been missing"
    rows = [row for _, row in sorted((record.ident or (0, 0), record.row) for record in records) if isinstance(row, Result)]
    if any(not 0 <= _xway(row) < len(road.sources) for row in rows):
        yield f"it has results of no expressway, such as {rows[0]}"
        return
    if [_xway(row) for row in rows] != sorted(_xway(row) for row in rows):
        yield "its results are not in order"
    for xway, source in enumerate(road.sources):
        mine = [row for row in rows if _xway(row) == xway]
        whole = [row for row in road.answer.get(bucket, ()) if _xway(row) == xway]
        if mine != whole and (source not in missing or not road.can_be(bucket, xway, mine)):
            other = next((pair for pair in zip(mine, whole, strict=False) if pair[0] != pair[1]), "one is the beginning of the other")
            without = "none of its reports left out" if source not in missing else "whatever reports of it are left out"
            yield f"it has {len(mine)} results of expressway {xway}, not {len(whole)}, or other ones, {without}: {other}"


def _xway(row: Result) -> int:
    number = json.loads(row.value).get("xway")
    return number if isinstance(number, int) else -1
