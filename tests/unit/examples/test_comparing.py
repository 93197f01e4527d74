from __future__ import annotations

import polars as pl

from examples.toll_road.comparing import Delivered, compare, compare_refused, percentile_ms
from examples.toll_road.traffic import Refused

EXPECTED = pl.DataFrame({"seg": [1, 2, 3], "toll": [0, 8, 18]})


def record(bucket: int, value: dict[str, object], position: int = 0, partition: int = 0) -> Delivered:
    return Delivered(value, (bucket, position), 0, partition, 0, 0)


GOOD = [record(1, {"seg": 1, "toll": 0}), record(1, {"seg": 2, "toll": 8}, 1), record(2, {"seg": 3, "toll": 18})]


def test_equal_whatever_the_order_across_partitions() -> None:
    moved = [record(2, {"seg": 3, "toll": 18}, partition=1), *GOOD[:2]]
    assert compare(EXPECTED, GOOD, ["seg"]).is_equal()
    assert compare(EXPECTED, moved, ["seg"]).is_equal()


def test_missing() -> None:
    found = compare(EXPECTED, GOOD[:2], ["seg"])
    assert (found.missing, found.duplicated, found.wrong, found.is_equal()) == (1, 0, 0, False)


def test_duplicated_by_key_and_by_id() -> None:
    found = compare(EXPECTED, [*GOOD, GOOD[0], record(9, {"seg": 2, "toll": 8}), record(2, {"seg": 4, "toll": 0})], ["seg"])
    assert (found.missing, found.duplicated, found.wrong) == (0, 3, 0)


def test_wrong_value_type_column_and_key() -> None:
    values: list[dict[str, object]] = [
        {"seg": 1, "toll": 1},
        {"seg": 2, "toll": 8.0},
        {"seg": 3, "toll": 18, "stime": 1},
        {"seg": 4, "toll": 0},
    ]
    found = compare(EXPECTED, [record(bucket, value) for bucket, value in enumerate(values)], ["seg"])
    assert (found.missing, found.duplicated, found.wrong) == (0, 0, 4)


def test_out_of_order_in_one_partition() -> None:
    found = compare(EXPECTED, [GOOD[1], GOOD[0], GOOD[2]], ["seg"])
    assert (found.missing, found.wrong, found.out_of_order, found.is_equal()) == (0, 0, 1, False)


def test_dead_letters_count_once_and_must_have_their_reason() -> None:
    expected = [Refused("reports.0", 0, 5, "not_json"), Refused("reports.0", 1, 5, "late")]
    assert compare_refused(expected, [*expected, expected[0]]).is_equal()
    found = compare_refused(expected, [Refused("reports.0", 0, 5, "wrong_type"), Refused("reports.0", 0, 6, "late")])
    assert (found.expected, found.found, found.missing, found.unexpected, found.other_reason) == (2, 2, 1, 1, 1)
    assert not found.is_equal()


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile_ms([5, 1, 3], 0.5) == 3
    assert percentile_ms(list(range(1, 101)), 0.99) == 99
    assert percentile_ms([7], 0.99) == 7
    assert percentile_ms([], 0.5) is None
