"""Tests of what the shards of a source know of each other, and of its progress while its boundary
does not move.
"""

from __future__ import annotations

import pytest

from anabranch.protocol.edge.shards import Shard
from anabranch.protocol.edge.sources import (
    PACE_CATCH_UP_MS,
    PACE_LEAST_MS,
    PACE_OVER_MS,
    OtherShards,
    SourcePace,
    wrong_shard,
)
from anabranch.protocol.log.records import InputPosition


@pytest.mark.parametrize(
    ("partitions", "found"), [((), None), ((1, 3, 5), None), ((1, 2, 4), 2), ((0,), 0)]
)
def test_a_log_of_another_number_of_shards_is_known_by_its_partitions(
    partitions: tuple[int, ...], found: int | None
) -> None:
    read = [InputPosition("cars", partition, 7, 0, 0) for partition in partitions]
    wrong = wrong_shard(Shard(1, 2), read)
    assert (None if wrong is None else wrong.partition) == found


def position(
    partition: int, offset_next: int, event_time_ms: int = 0, *, idle: bool = False
) -> InputPosition:
    return InputPosition("cars", partition, offset_next, event_time_ms, 0, idle=idle)


def test_nothing_is_known_before_anything_was_heard() -> None:
    others = OtherShards()
    assert (others.spoke_ms, others.lowest_ms) == (None, 0)
    assert others.event_times_ms == []


def test_what_is_heard_first_counts_as_of_now_unless_it_was_left_out() -> None:
    others = OtherShards()
    assert not others.observe([position(1, 5, 900, idle=True)], 10)
    assert others.spoke_ms is None
    assert others.observe([position(3, 5, 900)], 20)
    assert others.spoke_ms == 20


def test_a_partition_speaks_when_a_record_has_read_on_in_it() -> None:
    others = OtherShards()
    others.observe([position(1, 5, 900), position(3, 0)], 10)
    assert not others.observe([position(1, 5, 900), position(3, 0)], 20)
    assert others.spoke_ms == 10
    assert others.observe([position(1, 5, 900), position(3, 1)], 30)
    assert others.spoke_ms == 30
    assert others.observe([position(1, 6, 900), position(3, 1)], 40)
    assert not others.observe([position(1, 6, 900, idle=True), position(3, 1)], 50)
    assert others.spoke_ms == 40


def test_the_lowest_time_is_that_of_those_that_are_not_left_out() -> None:
    others = OtherShards()
    others.observe([position(1, 5, 900), position(3, 2, 700, idle=True), position(5, 2, 1_000)], 10)
    assert others.lowest_ms == 900
    assert sorted(others.event_times_ms) == [700, 900, 1_000]
    others.observe([position(7, 0)], 20)
    assert others.lowest_ms == 0, "it may still say anything"
    assert sorted(others.event_times_ms) == [700, 900, 1_000]


def paced(factor: float, until_ms: int = 5_000) -> SourcePace:
    """Return a source whose boundary has moved ``factor`` times as fast as the clock until
    ``until_ms``; its event time began at 1 000 000.
    """
    pace = SourcePace(0, 0)
    for now_ms in range(0, until_ms + 1, 100):
        event_time_ms = 1_000_000 + int(factor * now_ms)
        pace.moved(event_time_ms, now_ms)
        pace.go_on(event_time_ms, now_ms, speaks=True)
        assert pace.upto_ms == event_time_ms
    return pace


def test_nothing_was_read() -> None:
    pace = SourcePace(0, 0)
    pace.go_on(0, 1_000, speaks=False)
    assert pace.upto_ms == 0


def test_before_the_boundary_moved_first_it_goes_on_from_the_first_record_by_the_clock() -> None:
    pace = SourcePace(0, 0)
    pace.go_on(5_000, 1_000, speaks=True)
    assert pace.upto_ms == 5_000
    pace.go_on(90_000, 1_400, speaks=True)
    assert pace.upto_ms == 5_400


def test_sp1_it_is_never_beyond_what_was_read_nor_goes_back() -> None:
    pace = paced(1)
    pace.go_on(1_006_000, 9_000, speaks=True)
    assert pace.upto_ms == 1_006_000
    pace.moved(1_005_100, 9_100)
    pace.go_on(1_006_000, 9_100, speaks=True)
    assert pace.upto_ms == 1_006_000


@pytest.mark.parametrize("factor", [1, 3, 100])
def test_sp2_a_boundary_that_stands_is_taken_to_go_on_as_fast_as_it_did(factor: int) -> None:
    pace = paced(factor)
    for now_ms in range(5_100, 8_000, 100):
        pace.go_on(10**9, now_ms, speaks=True)
        assert pace.upto_ms == 1_000_000 + factor * now_ms


def test_sp2_at_least_as_fast_as_the_clock() -> None:
    pace = paced(0.1)
    pace.go_on(10**9, 6_000, speaks=True)
    assert pace.upto_ms == 1_000_000 + 6_000


@pytest.mark.parametrize("outage_ms", [2_000, 3_600_000])
def test_after_an_outage_of_all_the_first_that_is_back_does_not_lag_by_it(outage_ms: int) -> None:
    pace, back_ms = paced(1), 5_000 + outage_ms
    pace.moved(1_005_010, back_ms)
    pace.go_on(1_000_000 + back_ms, back_ms, speaks=True)
    assert pace.upto_ms == 1_000_000 + back_ms


def test_a_boundary_that_lags_from_now_on_is_believed_after_a_while() -> None:
    pace = paced(1)
    for now_ms in range(5_000, 5_000 + PACE_OVER_MS + 8_000, 100):
        pace.moved(1_000_000 + now_ms - 4_000, now_ms)
    pace.go_on(10**9, now_ms, speaks=True)
    assert pace.upto_ms == 1_000_000 + now_ms - 4_000


def test_sp2_one_that_has_caught_up_goes_as_fast_as_the_clock_again() -> None:
    pace = paced(1_000, 2_000)
    for now_ms in range(2_100, 2_100 + PACE_OVER_MS + 300, 100):
        pace.moved(3_000_000 + now_ms, now_ms)
    pace.go_on(10**9, now_ms + 500, speaks=True)
    assert pace.upto_ms == 3_000_000 + now_ms + 500


def test_sp2_that_its_first_records_are_late_by_differing_amounts_is_no_speed() -> None:
    pace = SourcePace(0, 0)
    pace.moved(1_000_004, 368)
    pace.moved(1_001_451, 368 + PACE_LEAST_MS + 211)
    pace.go_on(10**9, 6_368, speaks=True)
    assert pace.upto_ms == 1_001_451 + 6_368 - 368 - PACE_LEAST_MS - 211


def test_sp2_one_that_has_caught_up_is_not_taken_to_go_on_as_it_caught_up() -> None:
    pace = paced(10, 2_000)
    for now_ms in range(2_100, 2_000 + PACE_LEAST_MS + 100, 100):
        pace.moved(1_018_000 + now_ms, now_ms)
    pace.go_on(10**9, now_ms + 1_000, speaks=True)
    assert pace.upto_ms == 1_018_000 + now_ms + 1_000


def test_a_jump_of_which_nothing_else_is_known_is_no_pace() -> None:
    pace = SourcePace(0, 0)
    pace.moved(1_000_000, 0)
    pace.moved(90_000_000, PACE_LEAST_MS - 1)
    pace.go_on(10**9, PACE_LEAST_MS + 99, speaks=True)
    assert pace.upto_ms == 90_000_100


def test_sp3_in_silence_it_ends_what_it_had_begun_and_waits_for_no_record_far_ahead() -> None:
    pace = paced(1)
    pace.go_on(1_005_000 + PACE_CATCH_UP_MS, 5_000, speaks=False)
    pace.go_on(1_005_000 + PACE_CATCH_UP_MS, 60_000, speaks=False)
    assert pace.upto_ms == 1_005_000 + PACE_CATCH_UP_MS
    pace.go_on(1_036_000, 60_100, speaks=False)
    pace.go_on(1_036_000, 90_000, speaks=False)
    assert pace.upto_ms == 1_005_000 + PACE_CATCH_UP_MS


def test_what_was_reported_before_is_gone_on_from() -> None:
    pace = SourcePace(700_000, -2_000)
    pace.go_on(10**9, 500, speaks=True)
    assert pace.upto_ms == 702_500
