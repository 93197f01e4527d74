"""Tests of what an agent learns about the node that runs a stage, from logs in memory."""

from __future__ import annotations

import contextlib
from typing import cast

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.agent.stage_logs import StageLogs
from anabranch.codec.catalog import TopicSettings
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import Pipeline
from anabranch.ports import EventLog
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import HEARTBEAT_SEND_MS, LONG_SILENT_MS
from anabranch.protocol.log.records import EpochStarted
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.heartbeats import HeartbeatSender
from harness.outages import Away
from harness.plain_pipelines import pipeline, stage

LOOK_MS = 100


def new_logs() -> tuple[VirtualClock, LocalEventLog, Pipeline]:
    """Return a clock, a log with the topics of a pipeline of one stage, and the pipeline."""
    clock = VirtualClock()
    log = LocalEventLog(clock)
    plain = pipeline(stage("s"))
    topics = ["p.s.boundaries", *control_topics(plain)]
    log.admin().create([TopicSettings(topic, 1) for topic in topics])
    return clock, log, plain


def begin(log: LocalEventLog, clock: VirtualClock, node: str) -> int:
    """Begin an epoch of the stage on ``node``, and return it."""
    started = EpochStarted("0", "f", SeededEntropy(1).token(), node=node)
    return BoundaryWriter(log, "p.s.boundaries", ["0"], started, clock).start()


def test_who_runs_a_stage_is_silent_only_while_the_broker_answers() -> None:
    clock, log, plain = new_logs()
    epoch = begin(log, clock, "south.0")
    agents, runners = Away(log), Away(log)
    beats = HeartbeatSender(cast("EventLog", runners), "p.control.processing.s.0", clock)
    made = StageLogs(cast("EventLog", agents), clock, plain, "s", with_heartbeats=True)

    def passes(ms: int, *, speaks: bool = True) -> None:
        """Up to the first time that it is silent."""
        until_ms = clock.monotonic_ms() + ms
        while clock.monotonic_ms() < until_ms and not made.is_silent():
            if speaks:
                beats.send(Heartbeat("processing", "s", "0", epoch, "running", 3, 0))
            with contextlib.suppress(Unavailable):
                made.poll()
            clock.advance(LOOK_MS)

    passes(2 * LONG_SILENT_MS)
    for outage_ms in (LONG_SILENT_MS, 8_000, 10 * LONG_SILENT_MS):
        agents.is_away = runners.is_away = True
        passes(outage_ms)
        agents.is_away = False
        passes(HEARTBEAT_SEND_MS)  # who runs it tries again a little later
        runners.is_away = False
        passes(2 * LONG_SILENT_MS)
        assert not made.is_silent(), f"it takes home what runs, after {outage_ms} ms"
    assert made.runs_on == "south.0"
    begun_ms = clock.monotonic_ms()
    passes(60_000, speaks=False)
    assert made.is_silent()
    assert LONG_SILENT_MS - 1_000 <= clock.monotonic_ms() - begun_ms <= LONG_SILENT_MS + LOOK_MS
    made.close()


def test_an_epoch_that_a_seller_makes_up_does_not_silence_the_node_that_runs_next() -> None:
    clock, log, plain = new_logs()
    south = begin(log, clock, "south.0")
    beats = HeartbeatSender(log, "p.control.processing.s.0", clock)
    made = StageLogs(log, clock, plain, "s", with_heartbeats=True)

    def passes(*epochs: int) -> None:
        """Let somebody speak in each of ``epochs`` in turn, for longer than silence may last."""
        for _ in range(LONG_SILENT_MS // LOOK_MS + 20):
            for epoch in epochs:
                beats.send(Heartbeat("processing", "s", "0", epoch, "running", 3, 0))
                made.poll()
                clock.advance(LOOK_MS)

    passes(south, 2**62)
    assert not made.is_silent()
    west = begin(log, clock, "west.0")
    passes(west)
    assert (made.runs_on, made.is_silent()) == ("west.0", False)
    passes(2**62)
    assert made.is_silent(), "who makes up epochs is not heard"
    made.close()
