from __future__ import annotations

import pytest

from demo.comparing import (
    Delivered,
    Result,
    compare,
    compare_rejected,
    followed,
    percentile_ms,
    result,
)
from demo.traffic import Rejected


def row(
    seg: int, toll: object, event_time_ms: int = 100, key: bytes = b"k", partition: int | None = 0
) -> Result:
    return result({"seg": seg, "toll": toll}, event_time_ms, key, partition)


ANSWER = {1: [row(1, 0), row(2, 8)], 2: [row(3, 18)]}
GOOD = [
    Delivered((1, 0), row(1, 0), 0),
    Delivered((1, 1), row(2, 8), 0),
    Delivered((2, 0), row(3, 18), 0),
]


def test_equal() -> None:
    assert compare(ANSWER, GOOD).is_equal()
    assert compare(
        ANSWER, [each._replace(result=each.result._replace(partition=None)) for each in GOOD]
    ).is_equal(), "who does not know"


def test_nothing_where_nothing_must_be_shows_nothing() -> None:
    assert not compare({}, []).is_equal()
    assert not compare_rejected([], []).is_equal()


def test_missing() -> None:
    found = compare(ANSWER, GOOD[:2])
    assert (found.missing, found.duplicated, found.wrong, found.is_equal()) == (1, 0, 0, False)


def test_duplicated_whatever_it_says() -> None:
    found = compare(ANSWER, [*GOOD, GOOD[0], Delivered((2, 0), row(9, 9), 0)])
    assert (found.missing, found.duplicated, found.wrong) == (0, 2, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        row(1, 1),
        row(1, 0.0),
        row(1, "0"),
        row(2, 8),
        row(1, 0, event_time_ms=101),
        row(1, 0, key=b"other"),
        row(1, 0, partition=1),
        result({"seg": 1}, 100, b"k", 0),
    ],
    ids=["value", "type", "text", "place", "event_time", "key", "partition", "column"],
)
def test_anything_about_a_result_may_be_wrong(wrong: Result) -> None:
    found = compare(ANSWER, [GOOD[0]._replace(result=wrong), *GOOD[1:]])
    assert (found.missing, found.duplicated, found.wrong, found.is_equal()) == (0, 0, 1, False)


def test_a_result_that_nobody_expects_is_wrong() -> None:
    assert compare(ANSWER, [*GOOD, Delivered((3, 0), row(4, 0), 0)]).wrong == 1


def test_out_of_order_in_one_partition() -> None:
    found = compare(ANSWER, [GOOD[1], GOOD[0], GOOD[2]])
    assert (found.missing, found.wrong, found.out_of_order, found.is_equal()) == (0, 0, 1, False)


def test_who_followed_a_topic_saw_the_beginning_of_what_is_there() -> None:
    late = [each._replace(received_ms=7) for each in GOOD]
    assert followed("t", late[:2], GOOD) == []
    assert followed("t", [], []) == []
    (text,) = followed("t", [GOOD[0], GOOD[2]], GOOD)
    assert text.startswith("t, partition 0: its follower saw Delivered(identifier=(2, 0)")
    assert len(followed("t", GOOD, GOOD[:2])) == 1, "what was there has gone"


def test_dead_letters_count_once_and_must_be_what_was_written() -> None:
    expected = [
        Rejected("reports.0", 0, 5, "not_json", b"x"),
        Rejected("reports.0", 1, 5, "late", None),
    ]
    assert compare_rejected(expected, [*expected, expected[0]]).is_equal()
    for altered in (
        expected[0]._replace(reason="wrong_type"),
        expected[0]._replace(value=b"y"),
        expected[0]._replace(value=None),
    ):
        found = compare_rejected(
            expected, [expected[0], altered, Rejected("reports.0", 0, 6, "late", b"z")]
        )
        assert (found.expected, found.found, found.missing, found.unexpected, found.altered) == (
            2,
            2,
            1,
            1,
            1,
        )
        assert not found.is_equal()


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile_ms([5, 1, 3], 0.5) == 3
    assert percentile_ms(list(range(1, 101)), 0.99) == 99
    assert percentile_ms([7], 0.99) == 7
    assert percentile_ms([], 0.5) is None
