"""What counts as having waited."""

from __future__ import annotations

from anabranch.protocol.control.observed_time import ObservedTime
from anabranch.protocol.limits import OBSERVED_STEP_MS


def test_it_begins_with_the_first_look() -> None:
    time = ObservedTime()
    assert [time.at(now) for now in (5_000, 5_010, 5_010, 5_300)] == [0, 10, 10, 300]


def test_ot2_a_pause_counts_as_one_step() -> None:
    time = ObservedTime()
    assert [time.at(now) for now in (0, 60_000, 60_100)] == [
        0,
        OBSERVED_STEP_MS,
        OBSERVED_STEP_MS + 100,
    ]


def test_ot1_a_clock_that_is_set_back_stops_it_for_a_moment_only() -> None:
    time = ObservedTime()
    assert [time.at(now) for now in (10_000, 10_500, 3_000, 3_200)] == [0, 500, 500, 700]
