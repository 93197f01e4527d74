"""The shards of an output that had another number: how they end, and what their heirs inherit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control.records import DeliveryProgress
from anabranch.protocol.edge.delivery import (
    OTHERS,
    REJECTED,
    CorrectedDelivery,
    Inherited,
    Lack,
    Left,
    Slice,
    begin_of,
    end_of,
)
from anabranch.protocol.edge.output_handover import (
    EndedShards,
    check_earlier,
    end,
    ends_earlier,
    has_ended,
    inherited,
    inherits,
)
from anabranch.protocol.edge.shards import Shard
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import RecordId
from harness.present import present

PARTITIONS = 4
ALONE = Shard()


def progress(
    shard: Shard,
    first: int,
    last: int,
    at: int,
    *,
    rejected: int = 0,
    looks: tuple[tuple[int, int], ...] = (),
) -> DeliveryProgress:
    """Return the progress of a run of buckets ``first`` to ``last``, which begins at offset ``at``
    everywhere.
    """
    positions = ((p, at if shard.has(p) else OTHERS) for p in range(PARTITIONS))
    places = (*positions, (REJECTED, rejected))
    return DeliveryProgress("out", first, last, places, 1, inherited=looks)


def never(process: str = "out") -> DeliveryProgress:
    return end(process, None, 2, 1)


def left(
    shard: Shard, *before: EndedShards, own: DeliveryProgress | None = None
) -> Inherited | None:
    return inherited("out", shard, PARTITIONS, before, own)


def found(shard: Shard, *before: EndedShards) -> Inherited:
    return present(left(shard, *before))


def heir(
    inherits_: Inherited,
    shard: Shard,
    own: DeliveryProgress | None = None,
    starts: tuple[int, ...] = (0, 0, 0, 0, 0),
    ends: tuple[int, ...] = (50, 50, 50, 50, 50),
) -> CorrectedDelivery:
    machine = CorrectedDelivery("out.2-0", own, starts, ends, shard=shard)
    machine.inherit(inherits_, starts)
    return machine


TWO = EndedShards((progress(Shard(0, 2), 3, 5, 10), progress(Shard(1, 2), 7, 8, 20, rejected=4)))


def test_oh1_an_end_has_the_run_and_the_positions_of_the_last_record() -> None:
    last = progress(ALONE, 3, 5, 10)
    assert end("out", last, 3, 99) == replace(last, heirs=3, written_ms=99)
    assert end("out.1", None, 3, 99) == DeliveryProgress("out.1", 1, 0, (), 99, heirs=3)
    assert begin_of(never()) == end_of(never()), "no run"


def test_oh2_who_knows_the_heirs_goes_on_and_who_does_not_stops() -> None:
    open_, ended = progress(ALONE, 3, 5, 10), end("out", None, 3, 1)
    for numbers in ([1], [1, 3], [1, 4]):
        assert not has_ended("out", numbers, 1, None)
        assert not has_ended("out", numbers, 1, open_)
    assert has_ended("out", [1, 3], 1, ended)
    assert has_ended("out", [1, 3, 2], 1, ended)
    with pytest.raises(ConfigurationError, match=r"3 shards by now, .* says 1: .* \[1, 3\]`, and"):
        has_ended("out", [1], 1, ended)
    with pytest.raises(ConfigurationError, match=r"says \[1, 4\]: write `shards: \[1, 3\]`"):
        has_ended("out", [1, 4], 1, ended)


def test_oh3_each_partition_is_read_back_from_where_its_shard_says() -> None:
    of_all = found(ALONE, TWO)
    assert {p: each.position for p, each in of_all.partitions.items()} == {
        0: 10,
        1: 20,
        2: 10,
        3: 20,
    }
    assert of_all.begin == RecordId(3, 0)
    second = found(Shard(1, 4), TWO)
    assert list(second.partitions) == [1]
    assert second.begin == RecordId(7, 0), "what others have to go through is nothing to it"
    machine = heir(second, Shard(1, 4))
    assert machine.read_from == (50, 20, 50, 50, 4)
    assert (machine.cursor, machine.passed) == (RecordId(7, 0), 6)


def test_oh3_rejected_results_of_all_that_had_its_partitions_are_read_back() -> None:
    assert found(ALONE, TWO).rejected == {0: 0, 1: 4}
    assert found(Shard(1, 4), TWO).rejected == {1: 4}
    three = EndedShards(tuple(progress(Shard(i, 3), 3, 5, 10, rejected=i + 5) for i in range(3)))
    assert found(Shard(0, 2), three).rejected == {0: 5, 2: 7}
    assert found(Shard(1, 2), three).rejected == {0: 5, 1: 6}
    machine = heir(found(Shard(1, 2), three), Shard(1, 2))
    assert machine.rejected_from([0, 0, 0], [9, 9, 9]) == [5, 6, 9]
    assert machine.rejected_from([6, 7, 0], [9, 9, 9]) == [6, 7, 9]
    fourth = found(Shard(3, 4), three)
    assert fourth.rejected == {0: 5, 3: 0}, "a partition that nobody had is its own"


def test_without_earlier_shards_its_own_rejected_results_are_read_back() -> None:
    machine = CorrectedDelivery("out.1", None, [0] * 5, [9] * 5, shard=Shard(1, 2))
    assert machine.rejected_from([0, 0, 0], [9, 9, 9]) == [9, 0, 9]


def test_oh4_ids_before_the_bound_of_their_partition_are_written() -> None:
    machine = heir(found(ALONE, TWO), ALONE)
    machine.found(RecordId(7, 3))
    machine.recovered(9)
    assert machine.comparing
    assert machine.there(RecordId(3, 0), 1)
    assert not machine.there(RecordId(3, 0), 0)
    assert machine.there(RecordId(6, 9), 3)
    assert not machine.there(RecordId(7, 0), 3)
    assert machine.there(RecordId(7, 3), 3), "found"


def test_de6_a_bound_within_a_bucket_cuts_only_the_first_bucket_of_a_run() -> None:
    lefts = {p: Left(RecordId(5, 2) if p else RecordId(3, 0), 0, ()) for p in range(PARTITIONS)}
    machine = heir(Inherited(lefts, {0: 0}), ALONE)
    machine.recovered(9)
    sizes = [(3, 2), (5, 4), (6, 1)]
    for slices, following in (
        ((Slice(3, 0, 2),), RecordId(5, 0)),
        ((Slice(5, 0, 2),), RecordId(5, 2)),
        ((Slice(5, 2, 4), Slice(6, 0, 1)), RecordId(10, 0)),
    ):
        left_over = [size for size in sizes if size[0] >= machine.cursor.bucket]
        run = present(machine.plan(9, left_over, 9))
        assert (run.slices, run.next) == (slices, following)
        machine.advance(run, {})


def test_oh4_what_retention_removed_of_the_last_run_counts_as_written() -> None:
    machine = heir(found(ALONE, TWO), ALONE, starts=(11, 20, 0, 21, 0))
    machine.recovered(9)
    assert machine.read_from == (11, 20, 10, 21, 0)
    assert machine.there(RecordId(5, 9), 0)
    assert not machine.there(RecordId(6, 0), 0)
    assert not machine.there(RecordId(3, 0), 2)
    assert not machine.there(RecordId(7, 0), 1)
    assert machine.there(RecordId(8, 9), 3)


def test_oh5_progress_says_so_until_all_that_is_inherited_is_passed() -> None:
    machine = heir(found(ALONE, TWO), ALONE)
    machine.recovered(9)
    early = present(machine.plan(6, [(3, 2), (6, 1)], 9))
    recorded = machine.progress(early, 5)
    assert recorded.inherited == ((0, 0), (1, 4))
    assert inherits(recorded)
    assert inherits(None)
    assert dict(recorded.positions) == {0: 10, 1: 20, 2: 10, 3: 20, REJECTED: 0}
    machine.advance(early, {0: 51})
    late = present(machine.plan(9, [(7, 1)], 9))
    assert machine.progress(late, 6).inherited == ()
    assert not inherits(machine.progress(late, 6))

    again = heir(found(ALONE, TWO), ALONE, recorded, ends=(51, 50, 50, 50, 50))
    again.recovered(9)
    assert again.cursor == RecordId(3, 0)
    assert again.there(RecordId(6, 0), 1), "whatever its own progress is"
    assert again.read_from == (10, 20, 10, 20, 0)
    assert again.rejected_from([0, 0], [9, 9]) == [0, 4]


def test_an_heir_of_an_heir_that_had_not_passed_all_inherits_that_too() -> None:
    second = EndedShards(
        (progress(ALONE, 4, 6, 15, rejected=2, looks=((0, 0), (1, 4))),),
    )
    both = found(Shard(1, 2), TWO, second)
    assert both.partitions[1] == Left(
        RecordId(7, 0), 15, ((20, RecordId(9, 0)), (15, RecordId(7, 0)))
    )
    assert both.rejected == {0: 2, 1: 4}
    of_first = found(Shard(0, 2), TWO, second)
    assert of_first.partitions[0].written == RecordId(4, 0)
    assert of_first.rejected == {0: 0}
    past = EndedShards((progress(ALONE, 9, 9, 30, rejected=7),))
    assert found(Shard(1, 2), TWO, past).partitions[1] == Left(
        RecordId(9, 0), 30, ((30, RecordId(10, 0)),)
    )
    assert found(Shard(1, 2), TWO, past).rejected == {0: 7, 1: 4}


def test_an_heir_that_never_began_leaves_what_was_left_to_it() -> None:
    second = EndedShards((never("out.2-0"), never("out.2-1"), never("out.2-2")))
    assert found(ALONE, TWO, second).partitions == found(ALONE, TWO).partitions
    assert found(ALONE, TWO, second).rejected == {0: 0, 1: 4, 2: 0}, "a torn first transaction"


def test_where_only_the_beginning_is_recorded_they_begin_there() -> None:
    first = progress(Shard(0, 2), 3, 2, 0)
    begun = EndedShards((first, never("out.1")), first)
    both = found(ALONE, begun)
    assert both.begin == RecordId(3, 0)
    assert both.partitions[1] == Left(RecordId(3, 0), 0, ())
    machine = heir(both, ALONE)
    assert machine.beginning() is None, "it is known"
    assert machine.without_blocks(None, (3, 4), lambda: 4) is Lack.AWAITED


def test_nothing_is_inherited_of_shards_that_never_began() -> None:
    assert left(Shard(1, 2), EndedShards((never(),))) is None
    assert left(Shard(1, 2)) is None


def test_lost_progress_is_noticed() -> None:
    own = progress(ALONE, 4, 6, 15, looks=((0, 0),))
    for before in ([EndedShards((never(),))], [EndedShards((never(),)), EndedShards((own,))]):
        with pytest.raises(ConfigurationError, match="progress topics of these are empty"):
            left(ALONE, *before, own=own)


def test_positions_of_another_number_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"has 3 shards .* write all numbers"):
        left(ALONE, EndedShards((*TWO.ends, never("out.2"))))
    with pytest.raises(ConfigurationError, match="has 3 partitions, delivery began with 4"):
        inherited("out", ALONE, 3, [TWO])


def test_oh2_earlier_shards_must_be_as_the_file_says() -> None:
    def check(found: DeliveryProgress | None, partitions: int, shard: Shard = ALONE) -> None:
        check_earlier("out", [shard.count, 2], 1, shard, found, partitions)

    one, ran = progress(ALONE, 1, 0, 10), progress(ALONE, 1, 3, 10)
    for found_ in (None, never(), one, ran, end("out", ran, 2, 1)):
        check(found_, PARTITIONS)
    check(progress(Shard(1, 2), 1, 0, 10), PARTITIONS, Shard(1, 2))
    with pytest.raises(ConfigurationError, match="start it once with `shards: 1`"):
        check(one, 5)
    for found_ in (ran, end("out", one, 2, 1)):
        with pytest.raises(ConfigurationError, match="under a new output name"):
            check(found_, 5)
    with pytest.raises(ConfigurationError, match="under a new output name"):
        check(progress(Shard(1, 2), 1, 0, 10), 5, Shard(1, 2))
    with pytest.raises(ConfigurationError, match="has 3 shards by now"):
        check(end("out", ran, 3, 1), PARTITIONS)


def test_a_topic_that_was_cut_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="partition 3 of its topic ends at 19"):
        heir(found(ALONE, TWO), ALONE, ends=(50, 50, 50, 19, 50))


def test_oh6_one_shard_ends_those_before() -> None:
    assert [ends_earlier(Shard(index, 3)) for index in range(3)] == [True, False, False]
