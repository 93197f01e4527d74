"""A node that is started again, beside logs in memory that others write on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.pipeline.model import Stage
from anabranch.processing.yield_to_primary import yield_to_primary
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.protocol.stage.standby import YIELD_MS_MAX
from anabranch.streams.boundary_writer import BoundaryWriter
from harness.plain_pipelines import pipeline, stage

HERE, THERE = "north.0", "north.1"


def passive(name: str) -> Stage:
    return stage(name, replicas=2, ha="passive")


class World:
    """The logs of two passive stages."""

    def __init__(self) -> None:
        self.clock, self.count = VirtualClock(), 0
        self.log = LocalEventLog(self.clock)
        self.pipeline = pipeline(passive("s"), passive("t"))
        self.log.admin().create([TopicSettings(f"p.{name}.boundaries", 1) for name in "st"])

    def begins(self, stage: str, node: str) -> BoundaryWriter:
        self.count += 1
        started = EpochStarted("0", "f", SeededEntropy(self.count).token(), node=node)
        made = BoundaryWriter(self.log, f"p.{stage}.boundaries", ["0"], started, self.clock)
        made.start()
        return made

    def writes(self, writer: BoundaryWriter) -> None:
        ident = BatchId(f"l{writer.epoch}", 1)
        writer.append(BoundaryRecord("0", writer.epoch, ident, writer.tip(), 10))

    def waited_ms(
        self, stages: str, meanwhile: Callable[[int], None] = lambda _: None, stop_ms: int = 60_000
    ) -> int:
        """``meanwhile``: called at every look, with the ms that have passed."""
        begun_ms = self.clock.monotonic_ms()

        def stopping() -> bool:
            passed_ms = self.clock.monotonic_ms() - begun_ms
            meanwhile(passed_ms)
            return passed_ms >= stop_ms

        return yield_to_primary(self.log, self.clock, self.pipeline, HERE, list(stages), stopping)


def test_it_waits_for_the_first_record_of_who_became_the_primary_elsewhere() -> None:
    world = World()
    world.writes(world.begins("s", HERE))
    begun: list[BoundaryWriter] = []
    written: list[int] = []

    def meanwhile(passed_ms: int) -> None:
        if passed_ms >= 1_000 and not begun:
            begun.append(world.begins("s", THERE))
        if passed_ms >= 2_000 and not written:
            world.writes(begun[0])
            written.append(passed_ms)

    assert 2_000 <= world.waited_ms("s", meanwhile) <= 2_300


def test_of_several_stages_it_waits_for_each() -> None:
    world = World()
    world.writes(world.begins("s", THERE))
    world.begins("t", HERE)
    assert world.waited_ms("s") == 0
    assert YIELD_MS_MAX <= world.waited_ms("st") <= YIELD_MS_MAX + 300


def test_where_nobody_ever_ran_it_does_not_wait() -> None:
    assert World().waited_ms("st") == 0


def test_told_to_stop_it_waits_no_longer() -> None:
    world = World()
    world.begins("s", HERE)
    assert 500 <= world.waited_ms("s", stop_ms=500) <= 700


def test_what_cannot_be_read_is_no_reason_to_wait() -> None:
    world = World()
    world.pipeline = pipeline(passive("u"))
    with pytest.raises(Unavailable):
        world.waited_ms("u")
