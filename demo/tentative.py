"""Judge of the tentative tolls of a live topic: they must be the answer without the inputs that
were missing. No project code.

A missing source leaves a hole in its reports, in whole buckets: a window has what came before the
hole and what came after it. The results of a branch do not say which buckets it lacked, only which
streams. So of a tentative bucket

    TT1  all results name the same streams, and none that cannot have been missing;
    TT2  the results of every expressway whose source is not named are those of the whole answer,
        each of them;
    TT3  those of an expressway whose source is named are the answer to its reports with some
        buckets left out: the same ones for all of its segments, in at most two holes (any, if a
        window has few buckets). A source may fall silent inside a bucket, and what was read of one
        of its partitions may end a bucket before the other: of the first two buckets of a hole any
        subset of the reports may be there;
    TT4  the results have the order of the whole answer, each with its key, time and partition.

    TT6 where a half of the stage before is named, the results of an expressway whose source is not
        named are some of the whole answer's, in its order. (Of one whose source is named, too,
        nothing is judged.)

    TT7 all results state the same share of left-out rows, and one only where a stage leaves out
        rows (``Road.kept``). Instead of TT2 and TT3 those that state one are each made from at
        least the reports of its segment that are kept at this share (none, if the source is named,
        too), and at most from all: a report that is kept at some share is kept at every smaller
        one, and the stated share is the largest of any bucket in the window. So vehicles and
        average speed are between what such reports give, the toll is that of both, and a segment
        of which a report is kept has a result.

And a bucket that is shown without a single result has, in the whole answer, only results of
expressways whose sources were missing, or of segments of which no report was kept (TT5).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from demo import oracle
from demo.comparing import Result
from demo.live_checker import TENTATIVE, LiveRecord, Transaction

OUTPUT: Final = "tolls"
STAGE: Final = "segment_statistics"
"""Stage between the sources and the stage whose results are judged: while it is missing there are
no results at all.
"""
HALVES: Final = (f"{STAGE}.0", f"{STAGE}.1")
"""Halves of that stage, where it may be split: while one is missing each expressway lacks the
results of its segments, and the others are there.
"""
_SUBSETS_MAX: Final = 8
"""Maximum number of buckets of a window for which every set of left-out buckets is tried."""
_BEGUN_MAX: Final = 2
"""Maximum number of buckets of a hole that may have arrived in part."""
_REPORTS_MAX: Final = 10
"""Maximum number of a segment's reports in a partly arrived bucket for which every subset
is tried.
"""
_Place = tuple[int, int]
"""Direction and segment."""
Kept = Callable[[int], npt.NDArray[np.bool_]]
"""Function of the per mille that is left out: for each report, whether it is kept."""


class _Report(NamedTuple):
    speed: int
    vehicle: int
    number: int
    """Number among the reports of the window."""


@dataclass(frozen=True)
class Road:
    """Traffic and parameters of the tolls."""

    reports: pl.DataFrame
    sources: Sequence[str]
    """Source of each expressway, in the order of their numbers."""
    bucket_ms: int
    window_ms: int
    free_vehicles: int
    free_speed: int
    partitions: int
    kept: Kept | None = None
    """Reports that the overloaded stage keeps; None: no stage leaves out any."""
    _tried: dict[tuple[int, tuple[Result, ...]], bool] = field(default_factory=dict)

    @cached_property
    def answer(self) -> Mapping[int, Sequence[Result]]:
        """Whole answer, of all reports."""
        return self._results(self.reports)

    def can_be(self, bucket: int, xway: int, rows: Sequence[Result]) -> bool:
        """Return whether ``rows`` are tolls of an expressway without some of its reports (TT3)."""
        name = (bucket * 1_000 + xway, tuple(rows))
        if name not in self._tried:
            self._tried[name] = self._can_be(bucket, xway, rows)
        return self._tried[name]

    def _can_be(self, bucket: int, xway: int, rows: Sequence[Result]) -> bool:
        """Try all sets of reports that may have arrived."""
        stated = _stated(rows)
        end_ms = bucket * self.bucket_ms
        mine = (
            self.reports.filter(
                pl.col("xway") == xway,
                pl.col("time") >= end_ms - self.window_ms,
                pl.col("time") < end_ms,
            )
            .with_columns((-(-pl.col("time") // self.bucket_ms)).alias("bucket"))
            .sort("time")
            .with_row_index("number")
        )
        first, last = (
            -(-(end_ms - self.window_ms) // self.bucket_ms),
            -(-(end_ms - 1) // self.bucket_ms),
        )
        for arrived in _arrivals(mine, first, last - first + 1, stated):
            if self._results(mine.filter(pl.col("number").is_in(arrived))).get(bucket, []) == list(
                rows
            ):
                return True
        return False

    def wrong_share(
        self, bucket: int, xway: int, rows: Sequence[Result], shed: int, *, is_missing: bool
    ) -> str:
        """Return why ``rows`` are not the tolls of an expressway of whose reports ``shed`` per
        mille are left out (TT7); empty: they are. ``is_missing``: its source is, too.
        """
        stated = _stated(rows)
        if rows != self._tolls(bucket, xway, stated):
            return "toll, order, key, time or partition differ from those of the stated values"
        reports = {} if self.kept is None else self._by_place(bucket, xway, self.kept(shed))
        for place in reports.keys() | stated.keys():
            kept, others = reports.get(place, ([], []))
            least = [] if is_missing else kept
            more = [*kept, *others] if is_missing else others
            if (place in stated or least) and not _is_between(stated.get(place), least, more):
                return (
                    f"direction and segment {place} have average speed and vehicles"
                    f" {stated.get(place)} of {len(least)} kept reports and {len(more)} others"
                )
        return ""

    def must_have(self, bucket: int, row: Result, shed: int) -> bool:
        """Return whether a report is kept of the segment of ``row`` if ``shed`` per mille are left
        out.
        """
        if self.kept is None:
            return True
        ((place, _),) = _stated([row]).items()
        return bool(self._by_place(bucket, _xway(row), self.kept(shed))[place][0])

    def _by_place(
        self, bucket: int, xway: int, kept: npt.NDArray[np.bool_]
    ) -> Mapping[_Place, tuple[list[_Report], list[_Report]]]:
        """Return the reports of each segment in the window of a bucket: kept ones, and others."""
        end_ms = bucket * self.bucket_ms
        mine = self.reports.with_columns(pl.Series("kept", kept)).filter(
            pl.col("xway") == xway,
            pl.col("time") >= end_ms - self.window_ms,
            pl.col("time") < end_ms,
        )
        found: dict[_Place, tuple[list[_Report], list[_Report]]] = {}
        for direction, seg, speed, vehicle, is_kept in mine.select(
            "dir", "seg", "speed", "vehicle", "kept"
        ).iter_rows():
            both = found.setdefault((direction, seg), ([], []))
            both[0 if is_kept else 1].append(_Report(speed, vehicle, 0))
        return found

    def _tolls(
        self, bucket: int, xway: int, stated: Mapping[_Place, tuple[int, int]]
    ) -> list[Result]:
        """Return the results with the stated average speeds and vehicles."""
        rows = [
            (xway, *place, bucket * self.bucket_ms, speed, vehicles)
            for place, (speed, vehicles) in stated.items()
        ]
        names = ("xway", "dir", "seg", "window_end_ms", "average_speed", "vehicles")
        columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
        statistics = pl.DataFrame(columns, dict.fromkeys(names, pl.Int64), strict=False)
        tolls = oracle.tolls(statistics, self.free_vehicles, self.free_speed)
        return oracle.results(OUTPUT, tolls, self.bucket_ms, self.partitions).get(bucket, [])

    def _results(self, reports: pl.DataFrame) -> dict[int, list[Result]]:
        """Compute the answer to some reports."""
        rows = oracle.answers(
            reports.select(self.reports.columns),
            [OUTPUT],
            self.window_ms,
            self.free_vehicles,
            self.free_speed,
        )[OUTPUT]
        return oracle.results(OUTPUT, rows, self.bucket_ms, self.partitions)


def _stated(rows: Sequence[Result]) -> Mapping[_Place, tuple[int, int]]:
    """Return average speed and vehicles of each segment that has a result."""
    values = [json.loads(row.value) for row in rows]
    return {
        (value.get("dir"), value.get("seg")): (value.get("average_speed"), value.get("vehicles"))
        for value in values
    }


def _is_between(
    stated: tuple[int, int] | None, least: Sequence[_Report], more: Sequence[_Report]
) -> bool:
    """Return whether average speed and vehicles are between those of the reports ``least`` and some
    of ``more``.
    """
    if stated is None or not (least or more):
        return False
    average, vehicles = stated
    fewest = max(1, len({report.vehicle for report in least}))
    sure, rest = [report.speed for report in least], [report.speed for report in more]
    lowest = _lowest(sure, rest)
    highest = -_lowest([-speed for speed in sure], [-speed for speed in rest])
    most = len({report.vehicle for report in (*least, *more)})
    return fewest <= vehicles <= most and math.floor(lowest) <= average <= highest


def _lowest(sure: Sequence[int], rest: Iterable[int]) -> float:
    """Return the lowest average of ``sure`` and some of ``rest``."""
    total, number = sum(sure), len(sure)
    lowest = total / number if number else math.inf
    for value in sorted(rest):
        total, number = total + value, number + 1
        lowest = min(lowest, total / number)
    return lowest


def _arrivals(
    mine: pl.DataFrame, first: int, count: int, stated: Mapping[_Place, tuple[int, int]]
) -> Iterator[list[int]]:
    """Yield the sets of reports, by their numbers, with which every segment has its stated speed
    and vehicles.
    """
    reports: dict[_Place, dict[int, list[_Report]]] = {}
    for direction, seg, bucket, *report in mine.select(
        "dir", "seg", "bucket", "speed", "vehicle", "number"
    ).iter_rows():
        reports.setdefault((direction, seg), {}).setdefault(bucket - first, []).append(
            _Report(*report)
        )
    if not stated.keys() <= reports.keys():
        return
    speed, number = np.zeros((2, count, len(reports)), dtype=np.int64)
    for place, buckets in enumerate(reports.values()):
        for bucket, some in buckets.items():
            speed[bucket, place], number[bucket, place] = (
                sum(report.speed for report in some),
                len(some),
            )
    averages = np.array([stated.get(place, (-1, 0))[0] for place in reports], dtype=np.int64)
    holes = list(_holes(count))
    masks = np.array([_mask(count, hole) for hole in holes], dtype=np.int64)
    counted = masks @ number
    is_right = np.where(counted > 0, (masks @ speed) // np.maximum(counted, 1), -1) == averages
    for choice, right in enumerate(is_right):
        for begun in _begun(holes[choice]):
            if right[number[list(begun)].sum(axis=0) == 0].all():
                arrived = _arrived(
                    reports, stated, set(np.flatnonzero(masks[choice]).tolist()), begun
                )
                if arrived is not None:
                    yield arrived


def _arrived(
    reports: Mapping[_Place, Mapping[int, list[_Report]]],
    stated: Mapping[_Place, tuple[int, int]],
    kept: set[int],
    begun: Sequence[int],
) -> list[int] | None:
    """Return the reports of the buckets ``kept``, with those of the buckets ``begun`` that make
    each segment right; None if there are none such.
    """
    arrived: list[int] = []
    for place, buckets in reports.items():
        there = [report for bucket, some in buckets.items() if bucket in kept for report in some]
        for some in _subsets([report for bucket in begun for report in buckets.get(bucket, [])]):
            both = [*there, *some]
            speed = sum(report.speed for report in both) // max(len(both), 1)
            if ((speed, len({report.vehicle for report in both})) if both else None) == stated.get(
                place
            ):
                arrived += [report.number for report in both]
                break
        else:
            return None
    return arrived


def _subsets(some: Sequence[_Report]) -> Iterator[Sequence[_Report]]:
    """Yield the subsets of a segment's reports of a bucket that may have arrived: any of a few, the
    first ones of many.
    """
    if len(some) > _REPORTS_MAX:
        yield from (some[:number] for number in range(len(some) + 1))
    else:
        yield from (
            chosen for number in range(len(some) + 1) for chosen in combinations(some, number)
        )


def _holes(count: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield the sets of holes among ``count`` buckets, each as (first, after the last)."""
    if count <= _SUBSETS_MAX:
        for size in range(count + 1):
            for left_out in combinations(range(count), size):
                yield tuple((place, place + 1) for place in left_out)
        return
    yield ()
    yield from (((first, end),) for first, end in combinations(range(count + 1), 2))
    yield from (((a, b), (c, d)) for a, b, c, d in combinations(range(count + 1), 4))


def _begun(holes: tuple[tuple[int, int], ...]) -> list[tuple[int, ...]]:
    """Return the buckets of the holes that may have arrived in part: none, or the first ones of one
    hole. Two adjacent holes may be one.
    """
    ends = dict(holes)
    return [
        (),
        *(
            tuple(range(first, upto))
            for first, end in holes
            for upto in range(first + 1, min(ends.get(end, end), first + _BEGUN_MAX) + 1)
        ),
    ]


def _mask(count: int, holes: tuple[tuple[int, int], ...]) -> list[int]:
    """Return 1 for each bucket that is not in a hole, else 0."""
    kept = [1] * count
    for first, end in holes:
        kept[first:end] = [0] * (end - first)
    return kept


def check(
    ordered: Sequence[Transaction],
    road: Road,
    may_miss: Callable[[int], Collection[str]],
    missing_of: Callable[[int], Collection[str]],
    shed_of: Callable[[int], int] = lambda _: 0,
) -> list[str]:
    """Check the tentative results of a live topic. Return what is wrong, in words.

    Args:
        ordered: The transactions that count (``live_checker.until``).
        road: The traffic.
        may_miss: Streams that a result of a bucket may name.
        missing_of: Streams that were missing for a bucket that is shown without results.
        shed_of: Per mille of the rows that such a bucket lacks.
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
                f"tentative bucket {bucket}, transaction {transaction.sequence}: {text}"
                for text in _check(bucket, records, road, may_miss(bucket))
            ]
        covered = max(upto, transaction.stable)
        for bucket in road.answer if transaction.shown > covered else ():
            if covered < bucket <= transaction.shown and bucket not in shown:
                there = _must_be(bucket, road, missing_of(bucket), shed_of(bucket))
                wrong += (
                    [
                        (
                            f"bucket {bucket}, transaction {transaction.sequence}, is shown without"
                            f" results, but has {len(there)}, such as {there[0]}"
                        )
                    ]
                    if there
                    else []
                )
        upto = max(covered, transaction.shown)
    return wrong


def _must_be(bucket: int, road: Road, missing: Collection[str], shed: int) -> list[Result]:
    """Return the results that a bucket must have without the streams ``missing``, and without
    ``shed`` per mille of the rows (TT5).
    """
    if not {STAGE, *HALVES}.isdisjoint(missing):
        return []
    return [
        row
        for row in road.answer[bucket]
        if road.sources[_xway(row)] not in missing and road.must_have(bucket, row, shed)
    ]


def _check(
    bucket: int, records: Sequence[LiveRecord], road: Road, may_miss: Collection[str]
) -> Iterator[str]:
    """Check one bucket as one transaction shows it (TT1 to TT4, TT6, TT7)."""
    origins = {(record.missing, record.branch, record.shed) for record in records}
    if len(origins) > 1:
        yield f"its results name different streams, branches or shares: {sorted(origins)}"
    shed = max(record.shed for record in records)
    if shed and road.kept is None:
        yield f"its results lack {shed} per mille of the rows, and no stage leaves out any"
    missing = {name for record in records for name in record.missing}
    if not missing <= set(may_miss):
        yield f"its results name {sorted(missing - set(may_miss))}, which cannot have been missing"
    rows = [
        row
        for _, row in sorted((record.ident or (0, 0), record.row) for record in records)
        if isinstance(row, Result)
    ]
    if any(not 0 <= _xway(row) < len(road.sources) for row in rows):
        yield f"it has results of no expressway, such as {rows[0]}"
        return
    if [_xway(row) for row in rows] != sorted(_xway(row) for row in rows):
        yield "its results are not in order"
    for xway, source in enumerate(road.sources):
        mine = [row for row in rows if _xway(row) == xway]
        whole = [row for row in road.answer.get(bucket, ()) if _xway(row) == xway]
        if not missing.isdisjoint(HALVES):
            if source not in missing and not _is_part(mine, whole):
                yield (
                    f"it has results of expressway {xway} that the whole answer has not, though"
                    " only those of some segments are missing"
                )
            continue
        if shed and road.kept is not None:
            wrong = road.wrong_share(bucket, xway, mine, shed, is_missing=source in missing)
            if wrong:
                yield f"its results of expressway {xway}, which lack {shed} per mille: {wrong}"
            continue
        if mine != whole and (source not in missing or not road.can_be(bucket, xway, mine)):
            other = next(
                (pair for pair in zip(mine, whole, strict=False) if pair[0] != pair[1]),
                "one is the beginning of the other",
            )
            without = (
                "none of its reports left out"
                if source not in missing
                else "whatever reports of it are left out"
            )
            yield (
                f"it has {len(mine)} results of expressway {xway}, not {len(whole)}, or other ones,"
                f" {without}: {other}"
            )


def _is_part(some: Sequence[Result], whole: Sequence[Result]) -> bool:
    """Whether ``whole`` has ``some``, in this order."""
    rest = iter(whole)
    return all(row in rest for row in some)


def _xway(row: Result) -> int:
    """Return the expressway of a result; -1 if it has none."""
    number = json.loads(row.value).get("xway")
    return number if isinstance(number, int) else -1
