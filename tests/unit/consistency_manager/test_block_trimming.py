"""Deletion of blocks that no reader needs, and of no others, on a log in memory."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog, LocalLogAdmin
from anabranch.consistency_manager.block_trimming import BlockTrimming
from anabranch.consistency_manager.service import ConsistencyManager
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import DataMissing, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import TRIM_EVERY_MS
from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.records import BoundaryRecord, Part
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.boundary_reader import BoundaryReader
from harness import outputs
from harness.manager_world import ManagerWorld
from harness.outputs import rows


class World(ManagerWorld):
    """Pipeline whose block topics the tests examine."""

    def delivered(self, bucket: int) -> None:
        self.clock.advance(TRIM_EVERY_MS)
        self.passed(bucket, 9)

    def starts(self) -> list[int]:
        """First offset of each block partition."""
        reader = self.log.reader()
        return [
            reader.offsets(TopicPartition(f"p.totals.blocks.{r}", p))[0]
            for r in "01"
            for p in (0, 1)
        ]

    def readable(self, first: int, last: int) -> list[int]:
        """Return the buckets whose blocks still exist, in the version of the replica that closed
        each first.
        """
        following = BoundaryReader(self.log, "p.totals.boundaries", ["0", "1"])
        following.read_to_end()
        blocks = BlockReader(self.log, lambda replica: f"p.totals.blocks.{replica}", self.clock)
        found = []
        for wanted in following.log_state.stable(first, last):
            try:
                found += [bucket for bucket, _ in blocks.read_buckets([wanted])]
            except DataMissing:
                continue
        return found


@pytest.fixture
def world() -> World:
    made = World()
    for upto in (3, 6, 9):
        for replica in made.replicas:
            replica.close_buckets(upto, {n: rows(n, 6) for n in range(upto - 2, upto + 1)})
    return made


def stepped(manager: ConsistencyManager, count: int = 4) -> ConsistencyManager:
    for _ in range(count):
        manager.step()
    return manager


def test_blocks_go_as_the_delivery_goes_on(world: World) -> None:
    manager = stepped(world.manager())
    assert world.starts() == [0, 0, 0, 0]
    world.delivered(4)
    stepped(manager)
    assert world.readable(1, 9) == [5, 6, 7, 8, 9]
    world.delivered(9)
    stepped(manager)
    assert world.readable(1, 9) == []
    reader = world.log.reader()
    assert world.starts() == [
        reader.offsets(TopicPartition(f"p.totals.blocks.{r}", p))[1] for r in "01" for p in (0, 1)
    ]


def test_a_slower_reader_holds_everything_back(world: World) -> None:
    manager = stepped(world.manager())
    world.delivered(2)
    stepped(manager)
    assert world.readable(1, 9) == [3, 4, 5, 6, 7, 8, 9]
    world.clock.advance(10 * TRIM_EVERY_MS)
    stepped(manager)
    assert world.readable(1, 9) == [3, 4, 5, 6, 7, 8, 9]


def test_without_a_word_of_the_delivery_nothing_is_deleted(world: World) -> None:
    stepped(world.manager(), 10)
    assert world.starts() == [0, 0, 0, 0]


def test_a_restart_makes_up_for_what_was_not_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def reject(_self: LocalLogAdmin, _offsets: Mapping[TopicPartition, int]) -> None:
            raise Unavailable("no answer")

        patch.setattr(LocalLogAdmin, "delete_before", reject)
        manager = stepped(world.manager())
        world.delivered(6)
        stepped(manager)
    assert world.starts() == [0, 0, 0, 0]
    again = stepped(world.manager())
    assert world.readable(1, 9) == [7, 8, 9]
    world.delivered(9)
    stepped(again)
    assert world.readable(1, 9) == []
    manager.stop()
    again.stop()
    again.stop()


def test_a_stream_that_cannot_be_trimmed_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleted: list[str] = []

    def delete(_self: LocalLogAdmin, offsets: Mapping[TopicPartition, int]) -> None:
        (topic,) = {at.topic for at in offsets}
        if topic.startswith("p.a."):
            raise Unavailable("not allowed")
        deleted.append(topic)

    monkeypatch.setattr(LocalLogAdmin, "delete_before", delete)
    pipeline = outputs.pipeline("p")
    stage = pipeline.stages["totals"]
    pipeline = pipeline.model_copy(
        update={"stages": {name: stage.model_copy(update={"name": name}) for name in ("a", "b")}}
    )
    clock = VirtualClock()
    trimming = BlockTrimming(
        outputs.context(
            LocalEventLog(clock), pipeline, clock, SeededEntropy(1), "consistency_manager", "p"
        )
    )
    part = Part(1, 0, "t", 1, 0, 1, 1, 0)
    for stream in ("a", "b"):
        trimming.seen(
            stream,
            BoundaryRecord("0", 0, BatchId("l", 1), None, 1, (part,)),
            Outcome(accepted=True, reason="accepted", replica="0"),
        )
    for _ in range(2):
        trimming.round({"a": 1, "b": 1})
    assert deleted == ["p.b.blocks.0"]
    trimming.close()


def test_a_rejection_is_tried_again_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def reject(_self: LocalLogAdmin, _offsets: Mapping[TopicPartition, int]) -> None:
        attempts.append(1)
        raise Unavailable("no answer")

    manager = stepped(world.manager())
    with monkeypatch.context() as patch:
        patch.setattr(LocalLogAdmin, "delete_before", reject)
        world.delivered(6)
        stepped(manager, 10)
        assert attempts == [1]
    world.clock.advance(TRIM_EVERY_MS)
    stepped(manager)
    assert world.readable(1, 9) == [7, 8, 9]
