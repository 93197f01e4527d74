"""A process and its fences: it ends by one that is proven, and nothing else changes anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.codec import control_records
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Fence, TrimPoint, Vote
from anabranch.protocol.errors import DataMissing, Outvoted, Unavailable
from anabranch.protocol.log.boundary_log import contents
from anabranch.streams import fences
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.fences import FenceWatch
from anabranch.streams.stream_logs import open_stream
from harness import outputs
from harness.control_topics import say
from harness.outputs import Replica, create_topics, rows

STAGE = "totals"


class World:
    """Three replicas of a stage, of which the last one made another row of bucket 2."""

    def __init__(self, replicas: int = 3) -> None:
        clock = VirtualClock()
        self.log = LocalEventLog(clock)
        self.pipeline = outputs.pipeline("p", replicas=replicas)
        create_topics(self.log, self.pipeline)
        self.replicas = [
            Replica(self.log, self.pipeline, clock, SeededEntropy(1), name)
            for name in self.pipeline.stream_writers(STAGE)
        ]
        for replica, count in zip(self.replicas, (6, 6, 7), strict=False):
            replica.close_buckets(2, {2: rows(2, count)})
        reader = open_stream(self.log, self.pipeline, STAGE)
        reader.read_to_end()
        votes = [
            Vote(name, replica.epoch, *contents(reader.log_state.replica_bucket(name, 2) or ()))
            for name, replica in zip(reader.log_state.writers, self.replicas, strict=True)
        ]
        self.fence = Fence(STAGE, "2", self.replicas[-1].epoch, 2, tuple(votes), 1)

    def watch(self, replica: str) -> FenceWatch:
        made = FenceWatch(self.log, self.pipeline, STAGE, replica)
        made.epoch = self.replicas[int(replica)].epoch
        return made


@pytest.fixture
def world() -> World:
    return World()


def test_it_ends_by_a_fence_that_means_it_and_is_proven(world: World) -> None:
    with pytest.raises(Outvoted, match="replica 2 of totals, epoch 2, must end: a majority"):
        world.watch("2").receive(world.fence)
    world.watch("1").receive(world.fence)
    later = world.watch("2")
    later.epoch += 1
    later.receive(world.fence)
    world.watch("2").receive(TrimPoint(STAGE, 2, 1))


def test_a_forged_one_changes_nothing(world: World) -> None:
    fence = world.fence
    right = Vote("0", fence.votes[0].epoch, 1, 1)
    for forged in (
        replace(fence, votes=()),
        replace(fence, bucket=3),
        replace(fence, votes=(right, *fence.votes[1:])),
    ):
        world.watch("2").receive(forged)
        say(world.log, world.pipeline, forged)
    say(world.log, world.pipeline, replace(fence, stage="another"))
    assert world.watch("0").fenced() == {}


def test_who_starts_knows_of_every_proven_fence_of_its_stage(world: World) -> None:
    assert world.watch("0").fenced() == {}
    say(world.log, world.pipeline, world.fence)
    assert world.watch("0").fenced() == {"2": world.fence.epoch}


def test_one_that_cannot_be_judged_is_not_passed_over(world: World) -> None:
    world.log.fail_next(FailingOperation.FETCH, error=Unavailable, topic="p.totals.boundaries")
    with pytest.raises(Unavailable):
        world.watch("2").receive(world.fence)


def test_where_nobody_can_be_outvoted_none_is_looked_for() -> None:
    world = World(replicas=2)
    writer = world.log.writer()
    writer.send(TopicPartition("p.fences", 0), control_records.encode(world.fence))
    writer.flush()
    world.log.fail_next(FailingOperation.FETCH, error=Unavailable, topic="p.fences")
    assert world.watch("0").fenced() == {}


@pytest.mark.parametrize("trimmed", [1, 3])
def test_a_log_that_is_trimmed_while_it_is_read_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch, trimmed: int
) -> None:
    opened = 0

    def open_trimmed(*arguments: Any) -> BoundaryReader:
        nonlocal opened
        opened += 1
        reader = open_stream(*arguments)
        if opened <= trimmed:

            def gone() -> None:
                raise DataMissing("it begins later now")

            monkeypatch.setattr(reader, "read_to_end", gone)
        return reader

    monkeypatch.setattr(fences, "open_stream", open_trimmed)
    forged = replace(world.fence, votes=())
    if trimmed == 3:
        with pytest.raises(DataMissing):
            world.watch("2").receive(forged)
    else:
        world.watch("2").receive(forged)
    assert opened == min(trimmed + 1, 3)
