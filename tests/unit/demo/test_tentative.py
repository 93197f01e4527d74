"""Tests of the judge of tentative tolls: it finds each planted wrong one."""

from __future__ import annotations

import json
from collections.abc import Iterable

import polars as pl
import pytest

from demo.comparing import Result, result
from demo.live_checker import (
    BOUNDARY,
    INSERTION,
    TENTATIVE,
    LiveRecord,
    transactions,
)
from demo.tentative import HALVES, STAGE, Road, check
from demo.traffic import COLUMNS

SOURCES = ("a", "b")
WINDOW_MS, BUCKET_MS = 10_000, 500
SMALL_MS = 2_000


def reports() -> pl.DataFrame:
    """Two windows on two expressways, with a report in every half second of each, in two
    segments.
    """
    rows = [
        (
            time_ms,
            time_ms // 1_500 + 100 * xway,
            10 + (time_ms // 500 * 7 + xway) % 50,
            xway,
            1,
            0,
            time_ms // 500 % 2,
            0,
        )
        for time_ms in range(0, 20_000, 250)
        for xway in (0, 1)
    ]
    return pl.DataFrame(rows, schema=list(COLUMNS), orient="row")


def road(some: pl.DataFrame | None = None, window_ms: int = WINDOW_MS) -> Road:
    return Road(reports() if some is None else some, SOURCES, BUCKET_MS, window_ms, 2, 60, 2)


WHOLE = road()
LAST = 20


def without_b(first: int, last: int, window_ms: int = WINDOW_MS) -> list[Result]:
    """Bucket 20 where the buckets ``first`` to ``last`` of b are missing."""
    bucket = (-(-pl.col("time") // BUCKET_MS)).is_between(first, last)
    some = reports().filter(~((pl.col("xway") == 1) & bucket))
    return list(road(some, window_ms).answer.get(LAST, []))


def shown(
    rows: Iterable[Result], missing: tuple[str, ...] = ("b",), bucket: int = LAST
) -> list[LiveRecord]:
    made = [
        LiveRecord(0, 0, TENTATIVE, (bucket, place), (1, 1), row, missing=missing)
        for place, row in enumerate(rows)
    ]
    return [*made, LiveRecord(0, 0, BOUNDARY, stable=bucket - 1, shown=bucket, sequence=1)]


def judged(
    records: list[LiveRecord], may_miss: tuple[str, ...] = ("b",), of: Road = WHOLE
) -> list[str]:
    return check(transactions(records, 1)[0], of, lambda _: may_miss, lambda _: may_miss)


def test_a_hole_in_the_reports_of_a_missing_source_is_right() -> None:
    whole = list(WHOLE.answer[LAST])
    assert len(whole) == 4
    assert judged(shown(without_b(7, 99))) == [], "it was cut off in the window"
    assert judged(shown(without_b(0, 99))) == [], "before it"
    assert judged(shown(without_b(7, 12))) == [], "and is back"
    assert judged(shown(whole)) == [], "it had all of it"
    assert judged(shown(whole, ())) == []


def test_two_holes_in_a_long_window_any_in_a_short_one() -> None:
    hole = (-(-pl.col("time") // BUCKET_MS)).is_in([3, 4, 9])
    some = reports().filter(~((pl.col("xway") == 1) & hole))
    assert judged(shown(road(some).answer[LAST])) == []
    small, odd = road(window_ms=SMALL_MS), (-(-pl.col("time") // BUCKET_MS)).is_in([17, 19])
    some = reports().filter(~((pl.col("xway") == 1) & odd))
    assert judged(shown(road(some, SMALL_MS).answer[LAST]), of=small) == []


def dense() -> pl.DataFrame:
    """Return a report of each of ten segments of b in each half second; those of a stay."""
    rows = [
        (time_ms, time_ms // 50, time_ms * 7919 % 97, 1, 1, 0, time_ms // 50 % 10, 0)
        for time_ms in range(0, 20_000, 50)
    ]
    of_b = pl.DataFrame(rows, schema=list(COLUMNS), orient="row")
    return pl.concat([reports().filter(pl.col("xway") == 0), of_b])


DENSE = road(dense())


def torn(*parts: tuple[int, int], after: int = 99, window_ms: int = WINDOW_MS) -> list[Result]:
    """Bucket 20 where of b's buckets some lack the reports of one segment, and those after
    ``after`` are missing.
    """
    place = -(-pl.col("time") // BUCKET_MS)
    gone = place > after
    for bucket, seg in parts:
        gone = gone | ((place == bucket) & (pl.col("seg") == seg))
    some = dense().filter(~((pl.col("xway") == 1) & gone))
    return list(road(some, window_ms).answer[LAST])


def test_a_source_falls_silent_inside_a_bucket() -> None:
    some = torn((8, 0), (8, 3), after=8)
    assert some not in (torn(after=7), torn(after=8)), (
        "it is neither with the whole bucket nor without it"
    )
    assert judged(shown(some), of=DENSE) == []


def test_one_partition_is_read_a_bucket_further_than_the_other() -> None:
    assert judged(shown(torn((7, 1), (7, 4), (8, 0), (8, 2), (8, 3), after=8)), of=DENSE) == []
    assert judged(shown(torn((6, 1), (7, 4), (8, 0), after=8)), of=DENSE), "two further"


def test_in_a_short_window_too() -> None:
    """Reports of the last two of four buckets arrived in part, then one bucket is missing, or none;
    not three.
    """
    small = road(dense(), SMALL_MS)
    for parts, after in ((((18, 1), (19, 0), (19, 2)), 19), (((19, 1), (20, 0), (20, 3)), 20)):
        assert judged(shown(torn(*parts, after=after, window_ms=SMALL_MS)), of=small) == []
    three = torn((18, 1), (18, 2), (19, 4), (20, 0), (20, 5), window_ms=SMALL_MS)
    assert judged(shown(three), of=small)


def test_any_other_bucket_has_all_its_reports_or_none() -> None:
    assert any(
        "whatever reports" in text
        for text in judged(shown(torn((4, 0), (9, 1), (14, 2))), of=DENSE)
    )
    assert any(
        "whatever reports" in text
        for text in judged(shown(torn((4, 0), (8, 1), after=8)), of=DENSE)
    )


def other(row: Result, **fields: object) -> Result:
    value = {
        "xway": 0,
        "dir": 0,
        "seg": 0,
        "window_end_ms": 10_000,
        "average_speed": 1,
        "vehicles": 1,
        "toll": 0,
    }
    return result({**value, **fields}, row.event_time_ms, row.key, row.partition)


RIGHT = without_b(7, 99)


@pytest.mark.parametrize(
    ("records", "says"),
    [
        (shown(RIGHT, ()), "none of its reports left out"),
        (shown(RIGHT, ("a",)), "cannot have been missing"),
        (shown(RIGHT[1:]), "it has 1 results of expressway 0, not 2"),
        (shown(RIGHT[2:]), "it has 0 results of expressway 0, not 2"),
        (shown([other(RIGHT[0]), *RIGHT[1:]]), "none of its reports left out"),
        (
            shown([*RIGHT[:3], other(RIGHT[3], xway=1, seg=1)]),
            "whatever reports of it are left out",
        ),
        (
            shown([*RIGHT[:3], other(RIGHT[3], xway=1, seg=77)]),
            "whatever reports of it are left out",
        ),
        (
            shown([*RIGHT[:3], RIGHT[3]._replace(key=b"other")]),
            "whatever reports of it are left out",
        ),
        (shown([RIGHT[0]._replace(event_time_ms=1), *RIGHT[1:]]), "none of its reports left out"),
        (shown([RIGHT[0]._replace(partition=7), *RIGHT[1:]]), "none of its reports left out"),
        (shown([result({"nonsense": True}, 10_000, None, 0)]), "it has results of no expressway"),
        (shown([*RIGHT[2:], *RIGHT[:2]]), "its results are not in order"),
        (shown([RIGHT[1], RIGHT[0], *RIGHT[2:]]), "none of its reports left out"),
        (
            [shown(RIGHT)[0]._replace(missing=("b", "c")), *shown(RIGHT)[1:]],
            "name different streams",
        ),
        (shown([]), "is shown without results, but has 2"),
    ],
    ids=[
        "names nothing",
        "wrong name",
        "one lost",
        "healthy left out",
        "wrong value",
        "made up",
        "no such segment",
        "key",
        "event_time",
        "partition",
        "nonsense",
        "order",
        "order within",
        "two names",
        "empty",
    ],
)
def test_a_wrong_tentative_bucket_is_found(records: list[LiveRecord], says: str) -> None:
    assert any(says in text for text in judged(records)), judged(records)


def test_while_a_half_is_missing_the_results_of_the_other_are_there() -> None:
    whole = list(WHOLE.answer[LAST])
    for some in (whole, whole[::2], whole[1::2], []):
        assert judged(shown(some, HALVES[:1]), HALVES) == []
    (twice,) = judged(shown([*whole[:2], *whole[1:]], HALVES[:1]), HALVES)
    assert "expressway 0 that the whole answer has not" in twice
    (wrong,) = judged(shown([other(whole[0]), *whole[1:]], HALVES[:1]), HALVES)
    assert "has not" in wrong
    assert judged(shown(without_b(7, 99)[:1], ("b", HALVES[1])), ("b", *HALVES)) == []


SHEDS = Road(
    reports(),
    SOURCES,
    BUCKET_MS,
    WINDOW_MS,
    2,
    60,
    2,
    lambda shed: reports()["time"].to_numpy() // 250 % 1_000 >= shed,
)
"""A road of which the reports of ten seconds begin with those that are left out first: one for each
per mille.
"""


def without_first(number: int, xways: tuple[int, ...] = (0, 1)) -> list[Result]:
    """Bucket 20 of the expressways without their first ``number`` reports."""
    kept = (pl.col("time") // 250 >= number) | ~pl.col("xway").is_in(xways)
    return list(road(reports().filter(kept)).answer[LAST])


def shed(
    rows: Iterable[Result], per_mille: int, missing: tuple[str, ...] = (), of: Road = SHEDS
) -> list[str]:
    records = [
        each._replace(shed=per_mille) if each.kind == TENTATIVE else each
        for each in shown(rows, missing)
    ]
    return judged(records, ("a", "b"), of)


def test_a_result_has_at_least_the_reports_that_are_kept_at_the_share_that_it_states() -> None:
    for left_out in (0, 4, 9):
        assert shed(without_first(left_out), 9) == []
    assert shed(without_first(9)[1::2], 39) == [], "one report is kept: the other segment is absent"
    assert shed(list(WHOLE.answer[LAST]), 39) == []
    assert shed([*without_first(9, (0,))[:2], *without_b(7, 99)[2:]], 9, ("b",)) == []
    assert shed(without_first(9)[:2], 9, ("b",)) == [], "b is missing whole"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (without_first(20), "of expressway 0, which lack 9 per mille: direction and segment"),
        (without_first(9)[1:], "(0, 0) have average speed and vehicles None of 15 kept reports"),
        (without_first(9)[:2], "of expressway 1, which lack 9 per mille"),
        ([*without_first(9)[:3], other(without_first(9)[3], xway=1, seg=1, toll=8)], "toll, order"),
        ([without_first(9)[0]._replace(partition=7), *without_first(9)[1:]], "toll, order, key"),
        ([result({"xway": 0, "seg": "?"}, 10_000, None, 0)], "toll, order, key"),
    ],
    ids=["too few", "one lost", "one expressway lost", "toll", "partition", "nonsense"],
)
def test_a_result_without_a_report_that_is_kept_is_found(rows: list[Result], says: str) -> None:
    assert any(says in text for text in shed(rows, 9)), shed(rows, 9)


def test_a_value_that_no_reports_give_is_found() -> None:
    (first, *rest) = without_first(9)
    value = json.loads(first.value)
    for name, added in (("average_speed", 30), ("average_speed", -30), ("vehicles", 9)):
        changed = value | {name: value[name] + added}
        above = changed["vehicles"] - 2
        changed["toll"] = 2 * above * above if changed["average_speed"] < 60 and above > 0 else 0
        (found,) = shed([other(first, **changed), *rest], 9)
        assert "(0, 0) have average speed and vehicles" in found


def test_only_a_stage_that_leaves_out_rows_states_a_share() -> None:
    assert any("no stage leaves out any" in text for text in shed(without_first(9), 9, of=WHOLE))
    mixed = [each._replace(shed=number) for number, each in enumerate(shown(without_first(9)))]
    assert any("shares" in text for text in judged(mixed, of=SHEDS))


def test_a_bucket_without_results_is_right_where_no_report_was_kept() -> None:
    def empty(per_mille: int) -> list[str]:
        ordered = transactions(shown([]), 1)[0]
        return check(ordered, SHEDS, lambda _: (), lambda _: (), lambda _: per_mille)

    assert empty(40) == []
    (found,) = empty(39)
    assert "is shown without results, but has 2" in found
    (whole,) = empty(0)
    assert "has 4" in whole


def test_a_bucket_without_results_is_right_where_all_were_missing() -> None:
    assert judged(shown([]), ("a", "b")) == []
    assert judged(shown([]), (STAGE,)) == []
    assert judged(shown([], bucket=19)) == [], "it has none"
    stable = [
        LiveRecord(0, 0, INSERTION, (LAST, 0), row=RIGHT[0]),
        LiveRecord(0, 0, BOUNDARY, stable=LAST, sequence=1),
    ]
    assert judged(stable) == [], "stable ones are judged elsewhere"
