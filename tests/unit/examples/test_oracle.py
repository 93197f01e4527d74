from __future__ import annotations

import polars as pl

from examples.toll_road import oracle
from examples.toll_road.traffic import COLUMNS

WINDOW_MS = 10_000


def reports(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    """Reports of (time, vehicle, speed, lane), all in segment 7 of expressway 0, going east."""
    return pl.DataFrame(
        [(time, vehicle, speed, 0, lane, 0, 7, 7 * 5280) for time, vehicle, speed, lane in rows], schema=list(COLUMNS), orient="row"
    )


def test_a_report_at_the_bound_belongs_to_the_next_window() -> None:
    rows = oracle.segment_statistics(reports((9_999, 1, 30, 1), (10_000, 2, 50, 1)), WINDOW_MS)
    assert rows.select("window_end_ms", "average_speed", "vehicles", "reports").rows() == [(10_000, 30, 1, 1), (20_000, 50, 1, 1)]


def test_average_is_rounded_down_and_vehicles_are_counted_once() -> None:
    rows = oracle.segment_statistics(reports((1, 1, 30, 1), (2, 1, 30, 1), (3, 2, 31, 1)), WINDOW_MS)
    assert rows.select("average_speed", "vehicles", "reports").rows() == [(30, 2, 3)]


def test_toll_only_where_it_is_slow_and_crowded() -> None:
    statistics = pl.DataFrame(
        [(0, 0, 1, 10_000, 39, 53, 9), (0, 0, 2, 10_000, 40, 53, 9), (0, 0, 3, 10_000, 39, 50, 9), (0, 0, 4, 10_000, 39, 49, 9)],
        schema=["xway", "dir", "seg", "window_end_ms", "average_speed", "vehicles", "reports"],
        orient="row",
    )
    assert oracle.tolls(statistics, 50, 40)["toll"].to_list() == [18, 0, 0, 0]


def test_who_enters_pays_the_toll_of_the_window_before() -> None:
    rows = reports((5_000, 1, 10, 1), (9_999, 2, 10, 0), (10_000, 3, 10, 0), (19_999, 4, 10, 0), (20_000, 5, 10, 1), (30_000, 6, 10, 0))
    tolls = oracle.tolls(oracle.segment_statistics(rows, WINDOW_MS), 0, 40)
    assert oracle.toll_notices(rows, tolls, WINDOW_MS).rows() == [(3, 10_000, 0, 0, 7, 8), (4, 19_999, 0, 0, 7, 8), (6, 30_000, 0, 0, 7, 2)]
