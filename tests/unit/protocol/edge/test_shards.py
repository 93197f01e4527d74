"""Which shard of a source or an output has which partition, and what its processes are called."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.edge.shards import Shard, members, unexpected_members, whole_of
from anabranch.protocol.identifiers import is_name
from anabranch.protocol.limits import SHARDS_MAX

COUNTS = st.integers(1, SHARDS_MAX)


def test_one_shard_is_one_process_of_the_name() -> None:
    assert members("cars", 1) == ["cars"]
    assert members("cars", 3) == ["cars.0", "cars.1", "cars.2"]


@given(st.sampled_from(("cars", "cars_0", "cars-0", "c")), COUNTS)
def test_no_member_is_taken_for_another_name(source: str, shards: int) -> None:
    found = members(source, shards)
    assert len(set(found)) == shards
    assert {whole_of(stream) for stream in found} == {source}
    assert shards == 1 or not any(is_name(stream) for stream in found)


@given(COUNTS, st.integers(0, 5_000))
def test_every_partition_is_one_shards(shards: int, partition: int) -> None:
    owners = [i for i in range(shards) if Shard(i, shards).has(partition)]
    assert len(owners) == 1


@given(COUNTS, st.integers(0, 40))
def test_every_shard_has_one_of_as_many_partitions(shards: int, more: int) -> None:
    for index in range(shards):
        assert any(Shard(index, shards).has(i) for i in range(shards + more))


@given(COUNTS, COUNTS, st.integers(1, 9), st.integers(1, 9))
def test_mb3_no_two_generations_have_a_name_in_common(
    one: int, other: int, first: int, second: int
) -> None:
    mine, theirs = members("cars", one, first), members("cars", other, second)
    assert first == second or not set(mine) & set(theirs)
    assert {whole_of(stream) for stream in (*mine, *theirs)} == {"cars"}


def test_a_later_generation_has_its_number_in_its_names() -> None:
    assert members("cars", 1, 2) == ["cars.2-0"]
    assert members("cars", 2, 3) == ["cars.3-0", "cars.3-1"]
    assert unexpected_members("cars", 14, 2) == ["cars.2-14", "cars.2-15"]


@given(COUNTS)
def test_strangers_are_the_processes_of_all_other_numbers(shards: int) -> None:
    own, others = members("cars", shards), unexpected_members("cars", shards)
    assert not set(own) & set(others)
    assert {*own, *others} == {"cars", *members("cars", SHARDS_MAX)}
