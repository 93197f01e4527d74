from __future__ import annotations

import json
from collections import Counter

import polars as pl

from demo.traffic import (
    BAD,
    COLUMNS,
    DAY_MS,
    OUT_OF_ORDERNESS_MS,
    Traffic,
    Truth,
    plan,
    span,
)

START_MS = 1_700_000_000_000
TRAFFIC = Traffic(
    start_ms=START_MS, end_ms=START_MS + 20_000, rate=300, expressways=3, seed=7, bad_share=0.02
)


def test_same_seed_makes_the_same_records_and_another_seed_others() -> None:
    again = Traffic(start_ms=START_MS, end_ms=START_MS + 2_000, rate=300, seed=7)
    other = Traffic(start_ms=START_MS, end_ms=START_MS + 2_000, rate=300, seed=8)
    assert list(plan(again)) == list(plan(again))
    assert list(plan(again)) != list(plan(other))


def test_rate_order_and_out_of_orderness_are_as_asked() -> None:
    planned = list(plan(TRAFFIC))
    good = [record for record in planned if not record.rejected]
    assert len(good) == TRAFFIC.reports_total() == 18_000
    assert [record.due_ms for record in planned] == sorted(record.due_ms for record in planned)
    assert all(0 <= record.due_ms - record.report.time < OUT_OF_ORDERNESS_MS for record in good)
    assert all(START_MS <= record.report.time < START_MS + 20_000 for record in good)
    assert Counter(record.xway for record in good) == {0: 6_000, 1: 6_000, 2: 6_000}


def test_good_records_are_the_json_of_their_report_within_the_bounds_of_linear_road() -> None:
    for record in plan(TRAFFIC):
        if not record.rejected:
            assert record.value is not None
            assert list(json.loads(record.value).items()) == list(
                zip(COLUMNS, record.report, strict=True)
            )
            assert 0 <= record.report.speed <= 100
            assert 0 <= record.report.lane <= 4
            assert record.report.seg == record.report.pos // 5280 < 100


def test_every_kind_of_bad_record_is_there_and_differs_from_a_good_one() -> None:
    bad = [record for record in plan(TRAFFIC) if record.rejected]
    counts = Counter(record.rejected for record in bad)
    assert set(counts) == set(BAD)
    for record in bad:
        if record.rejected == "late":
            assert record.due_ms >= START_MS + 10_000
            assert record.value is not None
            assert json.loads(record.value)["time"] == record.report.time - DAY_MS


def test_a_preloaded_topic_has_no_late_records() -> None:
    traffic = Traffic(
        start_ms=START_MS, end_ms=START_MS + 20_000, rate=300, bad_share=0.05, has_late=False
    )
    assert "late" not in {record.rejected for record in plan(traffic)}


def test_vehicles_enter_and_leave_and_some_segments_are_crowded() -> None:
    reports = [record.report for record in plan(TRAFFIC) if not record.rejected]
    lanes = Counter(report.lane for report in reports)
    assert lanes[0] > 100
    assert lanes[4] > 100
    middle = [report.speed for report in reports if 40 <= report.seg < 60]
    edge = [report.speed for report in reports if report.seg < 15 or report.seg >= 85]
    assert sum(middle) / len(middle) < sum(edge) / len(edge) - 5


def test_truth_gives_back_what_was_added() -> None:
    truth = Truth()
    reports = [
        record.report
        for record in plan(Traffic(START_MS, START_MS + 1_000, rate=50))
        if not record.rejected
    ]
    for report in reports:
        truth.add(report)
    assert truth.reports().rows() == [tuple(report) for report in reports]
    assert truth.reports().columns == list(COLUMNS)
    assert set(truth.reports().dtypes) == {pl.Int64}
    assert Truth().reports().is_empty()


def test_traffic_ends_with_a_window() -> None:
    assert span(1_003, 40, 10_000, is_paced=True) == (1_003, 50_000)
    assert span(10_000, 40, 10_000, is_paced=True) == (10_000, 50_000)
    start_ms, end_ms = span(123_456, 30, 10_000, is_paced=False)
    assert (start_ms, end_ms) == (80_000, 110_000)
