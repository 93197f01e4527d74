"""Which shard reads which partition, and what shards know of one another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.identifiers import is_name
from anabranch.protocol.limits import INPUTS_MAX
from anabranch.protocol.log.records import InputPosition
from anabranch.protocol.log.shards import OtherShards, Shard, input_of, members, strangers

COUNTS = st.integers(1, INPUTS_MAX)


def test_a_source_without_shards_is_one_stream_of_its_name() -> None:
    assert members("cars", 1) == ["cars"]
    assert members("cars", 3) == ["cars.0", "cars.1", "cars.2"]


@given(st.sampled_from(("cars", "cars_0", "cars-0", "c")), COUNTS)
def test_no_member_is_taken_for_another_stream(source: str, shards: int) -> None:
    found = members(source, shards)
    assert len(set(found)) == shards
    assert {input_of(stream) for stream in found} == {source}
    assert shards == 1 or not any(is_name(stream) for stream in found)


@given(COUNTS, st.integers(0, 5_000))
def test_every_partition_is_one_shards(shards: int, partition: int) -> None:
    readers = [i for i in range(shards) if Shard(i, shards).reads(partition)]
    assert len(readers) == 1


@given(COUNTS, st.integers(0, 40))
def test_every_shard_has_one_of_as_many_partitions(shards: int, more: int) -> None:
    for index in range(shards):
        assert any(Shard(index, shards).reads(i) for i in range(shards + more))


@given(COUNTS)
def test_strangers_are_the_streams_of_all_other_numbers(shards: int) -> None:
    own, others = members("cars", shards), strangers("cars", shards)
    assert not set(own) & set(others)
    assert {*own, *others} == {"cars", *members("cars", INPUTS_MAX)}


@pytest.mark.parametrize(
    ("partitions", "found"), [((), None), ((1, 3, 5), None), ((1, 2, 4), 2), ((0,), 0)]
)
def test_a_log_of_another_number_of_shards_is_known_by_its_partitions(
    partitions: tuple[int, ...], found: int | None
) -> None:
    read = [InputPosition("cars", partition, 7, 0, 0) for partition in partitions]
    misdealt = Shard(1, 2).misdealt(read)
    assert (None if misdealt is None else misdealt.partition) == found


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
