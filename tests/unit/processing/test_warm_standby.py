"""The life of a process that stands by, with a log in memory and a query that runs when it is
asked whether it has ended.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.adapters.disk.checkpoints import ReplicaFolder
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog, LocalLogWriter
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.plan_offsets import INITIAL, position_of
from anabranch.pipeline.control_topics import control_topics
from anabranch.ports import PreparedStage, QueryDriver, QueryOutput
from anabranch.process.threads import OWN_THREADS
from anabranch.processing.rehearsing import Rehearsing
from anabranch.processing.warm_standby import WarmStandby
from anabranch.processing.warming import WARM_UP_BATCHES
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.log.records import EpochStarted
from anabranch.protocol.stage.planner import PlanTraits
from anabranch.protocol.stage.rehearsal import Rehearsal
from anabranch.protocol.stage.standby import StandbyProcess
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.heartbeats import HeartbeatSender
from harness.plain_pipelines import pipeline, stage
from harness.present import present
from harness.waiting import wait_until


class Engine:
    """``ports.PreparedStage`` and its one query."""

    def __init__(self) -> None:
        self.traits = PlanTraits(is_stateful=True, is_batch_safe=True)
        self.batches, self.is_stopped = 0, False
        self._start: dict[str, Any] = dict(INITIAL)

    def start(self, query: str, driver: QueryDriver, output: QueryOutput, *_: object) -> Engine:
        self._query = query
        self._driver = driver
        self.output = output
        return self

    def ended(self, wait_ms: int) -> bool:
        del wait_ms
        found = self._driver.advance(self._query, "a", self._start)
        if found is not None:
            offset, before = json.loads(json.dumps(found)), position_of(self._start)
            self._driver.begin(self._query, [offset], 100 * offset["bucket"], before)
            self._driver.finish(self._query, self.batches, ())
            self._start, self.batches = offset, self.batches + 1
        return False

    def stop(self) -> None:
        self.is_stopped = True


class Connections(LocalEventLog):
    """Notes how many writers were opened ahead, and how many wanted."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.ahead = 0

    def open_ahead(self, writers: int) -> None:
        self.ahead = writers

    def writer(self) -> LocalLogWriter:
        self.ahead -= 1
        return super().writer()


class Rehearsals:
    """Notes which rehearsal was begun, and what was done then."""

    def __init__(self) -> None:
        self.rehearsal: Rehearsal | None = None
        self.closed = -1
        self.done: list[str] = []

    def begin(self, rehearsal: Rehearsal, token: str, closed: int) -> None:
        assert token == "0" * 16
        self.rehearsal, self.closed = rehearsal, closed
        self.done.append("begun")

    def stop(self) -> None:
        self.done.append("stopped")

    def join(self) -> None:
        self.done.append("waited for")


class World:
    """Process "1" of a passive stage of two; or replica "1" of an active one, which moves to the
    node north.9.
    """

    def __init__(self, folder: Path, rehearsing: Rehearsals | None = None) -> None:
        self.clock, self.logged = VirtualClock(), list[tuple[str, dict[str, Any]]]()
        self.log = Connections(self.clock)
        ha = "passive" if rehearsing is None else "active"
        self.pipeline = pipeline(stage("s", "a", replicas=2, ha=ha))
        topics = ["p.s.boundaries", *control_topics(self.pipeline)]
        self.log.admin().create([TopicSettings(topic, 1) for topic in topics])
        self.engine = Engine()
        context: Any = SimpleNamespace(
            log=self.log,
            clock=self.clock,
            pipeline=self.pipeline,
            settings=SimpleNamespace(name="s.1"),
            stopping=threading.Event(),
            threads=OWN_THREADS,
            crash_point=lambda _: None,
            logger=SimpleNamespace(info=lambda event, **facts: self.logged.append((event, facts))),
        )
        disk = ReplicaFolder(folder / "s.1", {"0": folder / "s.0"})
        self.copies = 0
        node, replica = (None, "0") if rehearsing is None else ("north.9", "1")
        own = StandbyProcess("s", "1", node, token="0" * 16)
        self.made = WarmStandby(
            context,
            cast("PreparedStage", self.engine),
            own,
            disk,
            replica,
            cast("Rehearsing | None", rehearsing),
        )
        self.made.standby.copy = self._copy  # type: ignore[method-assign]

    def _copy(self, *, takes_over: bool = False) -> bool:
        self.copies += 1
        return False


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_one_that_is_due_tells_where_the_time_of_its_failover_went(world: World) -> None:
    made = world.made
    engine = world.engine
    clock = world.clock
    assert made.standby.must_wait()
    made.warm_up()
    assert world.log.ahead == 3, "it connects while it gets warm"
    assert world.copies == 1, "and copies"
    assert (engine.batches, engine.output) == (WARM_UP_BATCHES, QueryOutput("0", -1))
    assert made.round(), "no epoch ever began"
    assert world.log.ahead == 3, "though its heartbeats took one"
    wait_until(lambda: engine.is_stopped, 20, "the end of the warm query")
    for phase, ms in (("epoch", 300), ("steps", 20)):
        clock.advance(ms)
        made.passed(phase)
    clock.advance(900)
    made.batch_done(0.65)
    made.batch_done(0.4)
    phases = {"silence": 0, "copy": 0, "epoch": 300, "steps": 20, "query": 250, "first_batch": 650}
    assert world.logged == [
        ("becoming_primary", {"stage": "s.1", "bucket": 0}),
        ("failed_over", {"stage": "s.1", "ms": phases}),
    ]
    made.cool_down()
    made.close()


def test_while_there_is_a_primary_it_stays_warm_until_it_is_told_to_end(world: World) -> None:
    started = EpochStarted("0", "f", SeededEntropy(1).token())
    BoundaryWriter(world.log, "p.s.boundaries", ["0"], started, world.clock).start()
    assert not world.made.round(), "it need not be warm"
    world.made.warm_up()
    assert not world.made.round()
    assert not world.engine.is_stopped
    for _ in range(2):
        world.made.cool_down()
        assert world.engine.is_stopped
    world.made.passed("epoch")
    world.made.batch_done(0.5)
    assert world.logged == [], "there was no failover"
    world.made.close()


def test_one_that_moves_rehearses_once_and_takes_over_afterwards(tmp_path: Path) -> None:
    rehearsals = Rehearsals()
    world = World(tmp_path, rehearsals)
    made = world.made
    started = EpochStarted("1", "f", SeededEntropy(1).token(), node="north.0")
    writer = BoundaryWriter(world.log, "p.s.boundaries", ["0", "1"], started, world.clock)
    epoch, beats = (
        writer.start(),
        HeartbeatSender(world.log, "p.control.processing.s.1", world.clock),
    )
    beats.send(Heartbeat("processing", "s", "1", epoch, "running", 0, 0))
    for _ in range(3):
        assert not made.round()
        world.clock.advance(100)
    assert (rehearsals.done, rehearsals.closed) == (["begun"], 0)
    assert "rehearses" in str(made.standby.waiting_for)
    present(rehearsals.rehearsal).ended()
    assert "rehearses" not in str(made.standby.waiting_for)
    assert made.round()
    assert rehearsals.done == ["begun", "stopped"]
    made.cool_down()
    assert rehearsals.done[2:] == ["stopped", "waited for"]
    made.close()
