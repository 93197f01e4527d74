"""``anabranch restate``: what it finds in the logs, what it writes down, and what is rejected."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import topic_settings
from anabranch.operating.restate import Restating, describe
from anabranch.ports import LogWriter, TopicPartition
from anabranch.protocol.errors import ConfigurationError, OutcomeUnknown, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part
from anabranch.protocol.stage.restating import Restatement
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.placement import PlacementReader
from harness.plain_pipelines import pipeline, stage


class World:
    """A stage ``t``, of version 2 by now, which reads a stage ``s``; both have closed buckets up
    to 20, with a row in each.
    """

    def __init__(self, **of_the_stage: Any) -> None:
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        fields: dict[str, Any] = {"version": 2, "state_horizon_ms": 500} | of_the_stage
        self.pipeline = pipeline(stage("s"), stage("t", "s", **fields))
        self.log.admin().create(
            [
                topic_settings("placement", "p.placement"),
                *(topic_settings("boundaries", f"p.{each}.boundaries") for each in "st"),
                topic_settings("blocks", "p.s.blocks.0", partitions=1),
            ]
        )

    def run(self, upto: int = 20) -> None:
        """Both stages make their buckets up to ``upto``, one block for each."""
        blocks = self.log.writer()
        for bucket in range(1, upto + 1):
            blocks.send(TopicPartition("p.s.blocks.0", 0), b"block %d" % bucket)
        blocks.flush()
        for name in "st":
            writer = BoundaryWriter(
                self.log,
                f"p.{name}.boundaries",
                ["0"],
                EpochStarted("0", "f", SeededEntropy(1).token()),
                self.clock,
            )
            epoch = writer.start()
            parts = tuple(
                Part(bucket, 0, "x", 1, bucket - 1, bucket, 1, 0) for bucket in range(1, upto + 1)
            )
            writer.append(BoundaryRecord("0", epoch, BatchId("a", 0), None, upto, parts))
            writer.close()

    def command(self, from_ms: int | None = None, stage: str = "t") -> Restating:
        return Restating(self.log, self.pipeline, stage, from_ms, self.clock)

    def decided(self) -> int | None:
        reader = PlacementReader(self.log, "p.placement", self.pipeline.places())
        reader.read_to_end()
        assert reader.ignored == 0
        return reader.restatements.after("t", 2)


def test_it_begins_one_horizon_before_the_last_result() -> None:
    world = World()
    world.run()
    assert world.command().plan() == Restatement(15, 20, 0)
    assert world.decided() is None, "nothing is written before it is done"
    assert world.command().do() == Restatement(15, 20, 0)
    assert world.decided() == 15
    world.command(901).do()
    assert world.decided() == 9, "the command may be given again"


def test_what_is_not_retained_is_not_taken() -> None:
    world = World()
    world.run()
    world.log.admin().delete_before({TopicPartition("p.s.blocks.0", 0): 18})
    assert world.command().do() == Restatement(18, 20, 23)
    assert world.decided() == 18
    with pytest.raises(ConfigurationError, match=r"retained from 1970-01-01T00:00:01\.800Z on"):
        world.command(901).do()


def test_what_cannot_be_is_rejected() -> None:
    world = World(state_horizon_ms=None)
    world.run()
    with pytest.raises(ConfigurationError, match="state_horizon"):
        world.command().do()
    with pytest.raises(ConfigurationError, match="has no stage u; it has s, t"):
        world.command(stage="u")
    assert world.decided() is None
    with pytest.raises(ConfigurationError, match="no results yet"):
        World().command().plan()


def test_where_it_is_not_known_whether_it_was_written_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.run()

    def unknown(_self: LogWriter) -> None:
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(type(world.log.writer()), "flush", unknown)
    with pytest.raises(Unavailable, match="give the command again"):
        world.command().do()


def test_it_says_what_follows() -> None:
    said: list[str] = []
    describe("t", 2, Restatement(15, 20, 0), 100, said.append)
    assert (
        "version 2 begins with empty state, from the input after 1970-01-01T00:00:01.5" in said[0]
    )
    assert "up to 1970-01-01T00:00:02.000Z" in said[1]
    assert said[2] == "  no result is left out"
    describe("t", 2, Restatement(0, 20, 0), 100, said.append)
    assert "after its beginning" in said[3]
    describe("t", 2, Restatement(18, 20, 23), 100, said.append)
    assert "after 1970-01-01T00:00:02.000Z up to 1970-01-01T00:00:02.300Z are left out" in said[8]
