from __future__ import annotations

from anabranch.protocol.edge.other_shards import OtherShards
from anabranch.protocol.log.records import InputPosition


def position(
    partition: int, offset_next: int, event_time_ms: int = 0, *, idle: bool = False
) -> InputPosition:
    return InputPosition("cars", partition, offset_next, event_time_ms, 0, idle=idle)


def test_nothing_is_known_before_anything_was_heard() -> None:
    others = OtherShards()
    assert (others.spoke_ms, others.lowest_ms) == (None, 0)
    assert others.event_times_ms == []


def test_what_is_heard_first_counts_as_said_now_unless_it_was_left_out() -> None:
    others = OtherShards()
    assert not others.hear([position(1, 5, 900, idle=True)], 10)
    assert others.spoke_ms is None
    assert others.hear([position(3, 5, 900)], 20)
    assert others.spoke_ms == 20


def test_a_partition_speaks_when_a_record_has_read_on_in_it() -> None:
    others = OtherShards()
    others.hear([position(1, 5, 900), position(3, 0)], 10)
    assert not others.hear([position(1, 5, 900), position(3, 0)], 20)
    assert others.spoke_ms == 10
    assert others.hear([position(1, 5, 900), position(3, 1)], 30)
    assert others.spoke_ms == 30
    assert others.hear([position(1, 6, 900), position(3, 1)], 40)
    assert not others.hear([position(1, 6, 900, idle=True), position(3, 1)], 50)
    assert others.spoke_ms == 40


def test_the_lowest_time_is_that_of_those_that_are_not_left_out() -> None:
    others = OtherShards()
    others.hear([position(1, 5, 900), position(3, 2, 700, idle=True), position(5, 2, 1_000)], 10)
    assert others.lowest_ms == 900
    assert sorted(others.event_times_ms) == [700, 900, 1_000]
    others.hear([position(7, 0)], 20)
    assert others.lowest_ms == 0, "it may still say anything"
    assert sorted(others.event_times_ms) == [700, 900, 1_000]
