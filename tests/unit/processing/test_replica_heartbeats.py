"""A process that is heard before its query runs."""

from __future__ import annotations

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec import control_records
from anabranch.codec.catalog import TopicSettings
from anabranch.processing.replica_heartbeats import ReplicaHeartbeats
from anabranch.protocol.control.failure_detector import STANDBY_SERVICE
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.limits import PASSIVE_BEAT_MS
from anabranch.protocol.stage.standby import (
    ENDED,
    PRIMARY_SETTLED_MS,
    PRIMARY_SILENT_MS,
    StandbyProcess,
    StandbyWatch,
)
from harness.sources import everything
from harness.waiting import wait_until

TOPIC = "p.control"


def test_nobody_replaces_a_process_that_is_long_in_starting() -> None:
    clock = VirtualClock()
    log = LocalEventLog(clock)
    log.admin().create([TopicSettings(TOPIC, 1)])
    epoch = -1
    made = ReplicaHeartbeats(
        log,
        TOPIC,
        clock,
        lambda: (
            None
            if epoch < 0
            else Heartbeat("processing", "s", "0", epoch, "starting", 0, written_ms=0)
        ),
        every_ms=PASSIVE_BEAT_MS,
    )
    watch = StandbyWatch(StandbyProcess("s", "1"), "0", ["0", "1"])
    watch.log_seen(7, clock.monotonic_ms())
    clock.advance(PRIMARY_SETTLED_MS)
    standby = Heartbeat(STANDBY_SERVICE, "s", "1", -1, "standby", 0, written_ms=0)

    def sent() -> list[Heartbeat]:
        found = [
            control_records.decode(value)
            for chunk in everything(log, TOPIC)
            for value in chunk.values
        ]
        return [beat for beat in found if isinstance(beat, Heartbeat)]

    made.start()
    assert sent() == [], "it has no epoch yet"
    epoch = 7
    for count in range(1, 2 * PRIMARY_SILENT_MS // PASSIVE_BEAT_MS):
        wait_until(lambda: len(sent()) == count, 10, "the next heartbeat")  # noqa: B023 - called in this round only
        watch.receive(standby, clock.monotonic_ms())
        watch.receive(sent()[-1], clock.monotonic_ms())
        assert not watch.due(clock.monotonic_ms(), 0)
        clock.advance(PASSIVE_BEAT_MS)
    made.end()
    assert (sent()[-1].state, sent()[-1].epoch) == (ENDED, 7)
    assert not watch.due(clock.monotonic_ms(), 0), "that was not heard"
    count = len(sent())
    for _ in range(PRIMARY_SILENT_MS // PASSIVE_BEAT_MS):
        clock.advance(PASSIVE_BEAT_MS)
        watch.receive(standby, clock.monotonic_ms())
        watch.log_seen(7, clock.monotonic_ms())
    assert len(sent()) == count
    assert watch.due(clock.monotonic_ms(), 0), "it speaks for itself, or is gone"
