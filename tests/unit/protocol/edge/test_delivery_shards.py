"""The shards of an output, each by itself: what it counts and records, and where all begin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control.records import DeliveryProgress
from anabranch.protocol.edge.delivery import (
    OTHERS,
    REJECTED,
    CorrectedDelivery,
    Lack,
    Run,
    has_run,
    shard_begins_after,
)
from anabranch.protocol.edge.shards import Shard
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.identifiers import RecordId
from harness.present import present

SECOND = Shard(1, 2)
POSITIONS = ((0, OTHERS), (1, 6), (2, OTHERS), (3, 8), (REJECTED, 2))


def process(
    progress: DeliveryProgress | None,
    shard: Shard = SECOND,
    *,
    starts: tuple[int, ...] = (0, 0, 0, 0, 0),
    ends: tuple[int, ...] = (9, 9, 9, 9, 9),
    after: int = 0,
) -> CorrectedDelivery:
    machine = CorrectedDelivery("out.1", progress, starts, ends, after=after, shard=shard)
    machine.recovered(9)
    return machine


def recorded(positions: tuple[tuple[int, int], ...] = POSITIONS) -> DeliveryProgress:
    return DeliveryProgress("out.1", 2, 3, positions, 1)


def begun(after: int, partitions: int = 4, shards: int = 2) -> DeliveryProgress:
    """Return what the first shard records for all."""
    places = (0,) * (partitions + 1)
    machine = CorrectedDelivery("out.0", None, places, places, after=after, shard=Shard(0, shards))
    run = present(machine.beginning())
    return replace(machine.progress(run, 0), output="out")


def test_de11_a_shard_reads_back_its_own_partitions() -> None:
    assert process(None, starts=(1, 2, 3, 4, 5)).read_from == (9, 2, 9, 4, 5)
    assert process(recorded()).read_from == (9, 6, 9, 8, 2)
    assert process(recorded(), starts=(0, 7, 0, 0, 0)).read_from == (9, 7, 9, 8, 2)


def test_de11_a_shard_records_its_own_partitions() -> None:
    machine = process(recorded())
    run = present(machine.plan(9, [(2, 3), (3, 4)], 9))
    assert machine.progress(run, 7).positions == (
        *((0, OTHERS), (1, 9), (2, OTHERS), (3, 9)),
        (REJECTED, 9),
    )


def test_de11_what_retention_removed_from_others_says_nothing() -> None:
    machine = process(recorded(), starts=(99, 0, 99, 0, 0), ends=(99, 9, 99, 9, 9))
    assert not machine.comparing
    assert not machine.there(RecordId(2, 0), 0)
    assert process(recorded(), starts=(0, 0, 0, 9, 0)).there(RecordId(2, 0), 3)


def test_a_run_without_a_record_of_the_shard_is_passed_when_it_is_recorded() -> None:
    machine = process(None)
    recorded = None
    for bucket, passed in ((2, 0), (3, 2), (4, 3)):
        run = present(machine.plan(bucket, [(bucket, 3)], 9))
        recorded = machine.progress(run, 0)
        machine.advance(run, {})
        assert machine.passed == passed
    again = process(recorded)
    assert (again.cursor, again.passed) == (RecordId(4, 0), 3)


@pytest.mark.parametrize(
    ("shard", "text"),
    [
        (Shard(1, 4), "has 4 shards .* partition 3 was written by shard 1"),
        (Shard(0, 2), "has 2 shards .* partition 0 was not written by shard 0"),
        (Shard(), "has no shards .* partition 0 was not written by shard 0"),
    ],
)
def test_progress_of_another_number_of_shards_is_rejected(shard: Shard, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        process(recorded(), shard)


def test_another_number_of_partitions_is_rejected_even_if_the_shard_has_the_same_ones() -> None:
    with pytest.raises(ConfigurationError, match="has 5 partitions, delivery began with 4"):
        process(recorded(), starts=(0,) * 6, ends=(9,) * 6)


def test_a_topic_that_was_made_anew_is_rejected_by_the_shard_that_wrote_it() -> None:
    process(recorded(), ends=(0, 9, 0, 9, 9))
    with pytest.raises(ConfigurationError, match="partition 3 of its topic ends at 4"):
        process(recorded(), ends=(9, 9, 9, 4, 9))


def test_de12_the_first_shard_records_where_all_begin_and_no_other_does() -> None:
    first = process(None, Shard(0, 2))
    assert first.beginning() == Run(RecordId(1, 0), RecordId(1, 0), ()), "at the beginning, too"
    late = process(None, Shard(0, 2), after=4)
    assert late.beginning() == Run(RecordId(5, 0), RecordId(5, 0), ())
    assert not has_run(begun(4))
    positions = tuple((p, OTHERS if p in {1, 3} else 5) for p in (0, 1, 2, 3, REJECTED))
    assert process(recorded(positions), Shard(0, 2)).beginning() is None, "it has delivered"
    assert process(None, after=4).beginning() is None


@pytest.mark.parametrize("after", [0, 4])
def test_de12_the_others_begin_there(after: int) -> None:
    assert shard_begins_after("out", None, 4, Shard(0, 2)) is None, "not recorded yet"
    with pytest.raises(Unavailable, match=r"out\.0 has not recorded yet where output out begins"):
        shard_begins_after("out", None, 4, SECOND)
    assert shard_begins_after("out", begun(after), 4, SECOND) == after
    assert process(None, after=after).cursor == RecordId(after + 1, 0)


@pytest.mark.parametrize(
    ("partitions", "shards", "text"),
    [
        (4, 3, "has 3 shards .* partition 2 was written by shard 0"),
        (4, 1, "has no shards .* partition 1 was not written by shard 0"),
        (5, 2, "has 5 partitions, delivery began with 4"),
    ],
)
def test_de12_what_is_recorded_of_all_names_partitions_and_shards(
    partitions: int, shards: int, text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        shard_begins_after("out", begun(0), partitions, Shard(0, shards))


def test_de12_blocks_that_are_gone_later_are_waited_for() -> None:
    machine = process(None)
    assert machine.without_blocks(None, (1, 3), lambda: 3) is Lack.AWAITED
