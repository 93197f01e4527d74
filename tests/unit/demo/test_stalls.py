"""Which delays are judged, given the stalls of the machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from demo.live import Delay
from demo.stalls import (
    LATE_MS,
    Spent,
    Stall,
    judged,
    late_wake,
    merged,
    overlapping,
    taken_away,
)

TIMES = some.integers(0, 40)
STALLS = some.lists(some.builds(lambda at, length: Stall(at, at + length), TIMES, TIMES))


def span(delay: Delay) -> tuple[int, int]:
    return delay


def test_a_thread_that_wakes_a_little_late_shows_no_stall() -> None:
    assert late_wake(1_000, 1_000 + LATE_MS - 1) == []
    assert late_wake(1_000, 990) == []
    assert late_wake(1_000, 1_000 + LATE_MS) == [Stall(1_000, 1_000 + LATE_MS)]


@pytest.mark.parametrize(
    ("after", "stalls"),
    [
        (Spent(2_000, 12.0, 7.0), []),
        (Spent(2_000, 12.0, 6.6), []),
        (Spent(2_000, 12.0, 6.4), [Stall(1_000, 2_000)]),
        (Spent(2_000, 12.0, 5.0), [Stall(1_000, 2_000)]),
        (Spent(2_000, 12.0, 5.0, is_whole=False), []),
        (Spent(1_000, 12.0, 5.0), []),
    ],
)
def test_the_machine_stalls_while_others_have_more_than_a_quarter_of_two_processors(
    after: Spent, stalls: list[Stall]
) -> None:
    """The system had 2.0, 1.6, 1.4, and 0 s of 2 s; or ended, with what it had."""
    assert taken_away([Spent(1_000, 10.0, 5.0), after], 2) == stalls


def test_stalls_that_touch_are_one() -> None:
    stalls = [Stall(5, 8), Stall(0, 2), Stall(2, 3), Stall(6, 7)]
    assert merged(stalls) == [Stall(0, 3), Stall(5, 8)]


@given(STALLS, TIMES, TIMES)
def test_a_stall_overlaps_what_it_shares_time_with(
    stalls: list[Stall], begin: int, length: int
) -> None:
    distinct = merged(stalls)
    assert overlapping(distinct, begin, begin + length) == [
        each for each in distinct if each.begin_ms < begin + length and each.end_ms > begin
    ]


def test_only_delays_that_a_stall_overlaps_are_left_unjudged() -> None:
    stalls = [Stall(1_000, 2_400), Stall(9_000, 9_200)]
    before, into, within, out_of, around, after, slow = delays = [
        Delay(0, 1_000),
        Delay(900, 1_100),
        Delay(1_500, 1_600),
        Delay(2_300, 3_000),
        Delay(500, 9_500),
        Delay(2_400, 2_500),
        Delay(3_000, 9_000),
    ]
    clear, stalled, apart = judged(delays, stalls, span)
    assert clear == [before, after, slow], "what is slow without a stall is judged"
    assert stalled == [into, within, out_of, around]
    assert str(apart) == (
        "4 of 7 delays fell into stalls of the machine (longest 1.4 s): not judged"
    )
