"""Saying and hearing on the control topic, with a broker that does not always answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.adapters.local.clock import VirtualClock
from anabranch.adapters.local.log import LocalEventLog, Operation
from anabranch.codec import control_records
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.control import ControlRecord, Fence, Grant, Heartbeat, TrimPoint
from anabranch.protocol.errors import AnabranchError, DataMissing, Fenced, OutcomeUnknown, Unavailable
from anabranch.protocol.limits import FAILURE_AFTER_MS, GRANT_MS, HEARTBEAT_EVERY_MS, HEARTBEAT_NEWS_MS, HEARTBEAT_SEND_MS
from anabranch.protocol.staggering import CorrectionGate, Why
from anabranch.protocol.switching import StatesSeen
from anabranch.runtime.heartbeats import ControlReader, HeartbeatSender, ReplicaControl
from harness.sources import everything

TOPIC = "p.control"
BEAT = Heartbeat("processing", "tolls", "0", 7, "running", 3, 0, "stable")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def log(clock: VirtualClock) -> LocalEventLog:
    log = LocalEventLog(clock)
    log.admin().create([TopicSettings(TOPIC, 1)])
    return log


def said(log: LocalEventLog) -> list[ControlRecord]:
    return [control_records.decode(value) for chunk in everything(log, TOPIC) for value in chunk.values]


def write(log: LocalEventLog, *entries: ControlRecord | bytes) -> None:
    writer = log.writer()
    for entry in entries:
        writer.send(TopicPartition(TOPIC, 0), entry if isinstance(entry, bytes) else control_records.encode(entry))
    writer.flush()


def test_news_at_once_and_the_rest_now_and_then(log: LocalEventLog, clock: VirtualClock) -> None:
    sender = HeartbeatSender(log, TOPIC, clock)
    assert sender.send(BEAT)
    clock.advance(HEARTBEAT_NEWS_MS - 1)
    assert not sender.send(replace(BEAT, wants_grant=True))
    clock.advance(1)
    assert not sender.send(replace(BEAT, bucket=4, checkpoint_bucket=4))
    assert sender.send(replace(BEAT, wants_grant=True))
    clock.advance(HEARTBEAT_EVERY_MS - 1)
    assert not sender.send(replace(BEAT, wants_grant=True))
    clock.advance(1)
    assert sender.send(replace(BEAT, wants_grant=True))
    assert [entry.written_ms for entry in said(log)] == [clock.now_ms() - 550, clock.now_ms() - 500, clock.now_ms()]
    sender.close()
    sender.close()


@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
def test_what_could_not_be_said_is_said_later_with_what_is_true_then(
    log: LocalEventLog, clock: VirtualClock, error: type[AnabranchError]
) -> None:
    sender = HeartbeatSender(log, TOPIC, clock)
    log.fail_next(Operation.FLUSH, error=error, applied=0, topic=TOPIC)
    assert not sender.send(BEAT)
    clock.advance(HEARTBEAT_SEND_MS - 1)
    assert not sender.send(BEAT), "a broker in trouble is left alone for a while"
    clock.advance(1)
    assert sender.send(replace(BEAT, bucket=9))
    assert said(log) == [replace(BEAT, bucket=9, written_ms=clock.now_ms())]


def test_a_reader_begins_now_or_at_the_beginning(log: LocalEventLog) -> None:
    write(log, BEAT)
    now, all_of_it = ControlReader(log, TOPIC), ControlReader(log, TOPIC, from_beginning=True)
    write(log, replace(BEAT, bucket=4))
    assert [entry.bucket for entry in now.poll() if isinstance(entry, Heartbeat)] == [4]
    found: list[ControlRecord] = []
    all_of_it.read_to_end(found.append)
    assert [entry.bucket for entry in found if isinstance(entry, Heartbeat)] == [3, 4]
    now.close()
    now.close()


def test_what_cannot_be_read_is_counted(log: LocalEventLog) -> None:
    reader = ControlReader(log, TOPIC)
    write(log, b"rubbish", TrimPoint("s", 1, 1))
    assert len(reader.poll()) == 1
    assert reader.counts == {"undecodable": 1, "trimpoint": 1}


def test_what_retention_took_is_no_loss(log: LocalEventLog) -> None:
    reader = ControlReader(log, TOPIC)
    log.fail_next(Operation.FETCH, error=DataMissing, topic=TOPIC)
    write(log, BEAT)
    assert reader.poll() == []
    assert reader.poll() == [BEAT]
    assert reader.counts["lost"] == 1


class Neighbours:
    """Replica 0 of tolls, which reads the stage means; its sibling is replica 1."""

    def __init__(self, log: LocalEventLog, clock: VirtualClock) -> None:
        self._log, self._clock = log, clock
        self.gate = CorrectionGate("tolls", "0", ["1"], epoch=7)
        self.control = ReplicaControl(ControlReader(log, TOPIC), clock, self.gate, {"means": StatesSeen("means", ["0", "1"])})

    def hears(self, *entries: ControlRecord) -> None:
        now_ms = self._clock.now_ms()
        write(self._log, *(replace(entry, written_ms=now_ms) for entry in entries))
        assert self.control.poll() == len(entries)


@pytest.fixture
def neighbours(log: LocalEventLog, clock: VirtualClock) -> Neighbours:
    return Neighbours(log, clock)


def test_one_stays_with_a_replica_until_another_is_better(neighbours: Neighbours) -> None:
    assert neighbours.control.choose("means", {}) is None
    assert not neighbours.control.works_on_tentative("means")
    neighbours.hears(*(Heartbeat("processing", "means", r, 5, "", 0, 0, "up_failure") for r in "01"))
    assert neighbours.control.works_on_tentative("means")
    assert neighbours.control.choose("means", {"1": 4}) == "1"
    assert neighbours.control.choose("means", {"0": 9, "1": 4}) == "1"
    neighbours.hears(Heartbeat("processing", "means", "1", 5, "", 0, 0, "stabilization"))
    assert neighbours.control.choose("means", {"0": 9, "1": 4}) == "0"


def test_a_grant_is_heard(neighbours: Neighbours, clock: VirtualClock) -> None:
    assert not neighbours.control.may_correct(False)
    neighbours.hears(replace(BEAT, replica="1"))
    assert not neighbours.control.may_correct(True)
    neighbours.hears(Grant("tolls", "0", 7, 1, 0, clock.now_ms() + GRANT_MS))
    assert neighbours.control.may_correct(True)
    assert not neighbours.control.may_correct(False)
    assert not neighbours.control.may_correct(True)
    assert neighbours.gate.why is Why.WAITING


def test_without_anybody_it_corrects_all_the_same(neighbours: Neighbours, clock: VirtualClock) -> None:
    for _ in range(0, FAILURE_AFTER_MS, 500):
        assert not neighbours.control.may_correct(True)
        clock.advance(500)
    assert neighbours.control.may_correct(True)
    neighbours.control.close()


def test_polling_lets_time_pass_also_while_nobody_says_anything(neighbours: Neighbours, clock: VirtualClock) -> None:
    neighbours.hears(Heartbeat("processing", "means", "0", 5, "", 0, 0, "up_failure"))
    neighbours.control.may_correct(True)
    for _ in range(0, FAILURE_AFTER_MS, 500):
        assert neighbours.control.works_on_tentative("means")
        clock.advance(500)
        assert neighbours.control.poll() == 0
    assert not neighbours.control.works_on_tentative("means")
    assert neighbours.control.may_correct(True)


def test_a_fenced_process_ends(neighbours: Neighbours) -> None:
    neighbours.hears(Fence("tolls", "0", 6, "an older process", 0), TrimPoint("means", 1, 0))
    with pytest.raises(Fenced, match="replica 0 of tolls, epoch 7, must end: outvoted"):
        neighbours.hears(Fence("tolls", "0", 7, "outvoted", 0))
