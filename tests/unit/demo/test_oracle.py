from __future__ import annotations

import polars as pl
import pytest

from demo import oracle
from demo.traffic import COLUMNS

WINDOW_MS = 10_000


def reports(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    """Reports of (time, vehicle, speed, lane), all in segment 7 of expressway 0, going east."""
    return pl.DataFrame(
        [(time, vehicle, speed, 0, lane, 0, 7, 7 * 5280) for time, vehicle, speed, lane in rows],
        schema=list(COLUMNS),
        orient="row",
    )


def test_a_report_at_the_bound_belongs_to_the_next_window() -> None:
    rows = oracle.segment_statistics(reports((9_999, 1, 30, 1), (10_000, 2, 50, 1)), WINDOW_MS)
    assert rows.select("window_end_ms", "average_speed", "vehicles", "reports").rows() == [
        (10_000, 30, 1, 1),
        (20_000, 50, 1, 1),
    ]


def test_average_is_rounded_down_and_vehicles_are_counted_once() -> None:
    rows = oracle.segment_statistics(
        reports((1, 1, 30, 1), (2, 1, 30, 1), (3, 2, 31, 1)), WINDOW_MS
    )
    assert rows.select("average_speed", "vehicles", "reports").rows() == [(30, 2, 3)]


def test_toll_only_where_it_is_slow_and_crowded() -> None:
    statistics = pl.DataFrame(
        [
            (0, 0, 1, 10_000, 39, 53, 9),
            (0, 0, 2, 10_000, 40, 53, 9),
            (0, 0, 3, 10_000, 39, 50, 9),
            (0, 0, 4, 10_000, 39, 49, 9),
        ],
        schema=["xway", "dir", "seg", "window_end_ms", "average_speed", "vehicles", "reports"],
        orient="row",
    )
    assert oracle.tolls(statistics, 50, 40)["toll"].to_list() == [18, 0, 0, 0]


def test_who_enters_pays_the_toll_of_the_window_before() -> None:
    rows = reports(
        (5_000, 1, 10, 1),
        (9_999, 2, 10, 0),
        (10_000, 3, 10, 0),
        (19_999, 4, 10, 0),
        (20_000, 5, 10, 1),
        (30_000, 6, 10, 0),
    )
    tolls = oracle.tolls(oracle.segment_statistics(rows, WINDOW_MS), 0, 40)
    assert oracle.toll_notices(rows, tolls, WINDOW_MS).rows() == [
        (3, 10_000, 0, 0, 7, 8),
        (4, 19_999, 0, 0, 7, 8),
        (6, 30_000, 0, 0, 7, 2),
    ]


def test_results_have_their_place_key_time_and_partition() -> None:
    rows = pl.DataFrame(
        {
            "xway": [1, 0, 0],
            "dir": [0, 1, 0],
            "seg": [5, 6, 7],
            "window_end_ms": [2_000, 2_000, 2_001],
            "toll": [1, 2, 3],
        }
    )
    found = oracle.results("tolls", rows, 500, 2)
    assert {
        bucket: [(each.key, each.event_time_ms) for each in some] for bucket, some in found.items()
    } == {
        4: [(b'{"xway":0,"dir":1,"seg":6}', 2_000), (b'{"xway":1,"dir":0,"seg":5}', 2_000)],
        5: [(b'{"xway":0,"dir":0,"seg":7}', 2_001)],
    }, "the upper bound of a bucket is in it"
    assert all(
        each.partition == (oracle.murmur2(each.key or b"") & 0x7FFFFFFF) % 2
        for some in found.values()
        for each in some
    )
    assert found[4][0].value == '{"dir": 1, "seg": 6, "toll": 2, "window_end_ms": 2000, "xway": 0}'


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, expected: int) -> None:
    assert oracle.murmur2(key) == expected & 0xFFFFFFFF
