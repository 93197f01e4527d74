from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.identifiers import is_name
from anabranch.protocol.limits import INPUTS_MAX
from anabranch.protocol.log.records import InputPosition
from anabranch.protocol.log.shards import Shard, input_of, members, strangers

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
