"""Saying and hearing on the control topic, with a broker that does not always answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from anabranch.adapters.memory.admin import LocalLogAdmin
from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog, LocalLogWriter
from anabranch.codec import control_records
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import RecordPosition, TopicPartition
from anabranch.protocol.control.failure_detector import FailureDetector
from anabranch.protocol.control.records import (
    ControlRecord,
    Fence,
    Heartbeat,
    ReplicaState,
    Speaker,
    TrimPoint,
)
from anabranch.protocol.errors import (
    AnabranchError,
    DataMissing,
    OutcomeUnknown,
    Unavailable,
)
from anabranch.protocol.limits import FAILURE_AFTER_MS, HEARTBEAT_EVERY_MS, HEARTBEAT_SEND_MS
from anabranch.protocol.stage.scheduling import CorrectionGate
from anabranch.streams.heartbeats import (
    CONTROL_WAIT_MS,
    HEARTBEAT_NEWS_MS,
    ControlReader,
    ControlWriter,
    HeartbeatSender,
    ReplicaControl,
    records_so_far,
)
from anabranch.streams.stream_life import life_of
from harness.lost_ends import lose_ends
from harness.sources import everything

TOPIC = "p.control.processing.tolls.0"
BEATS = frozenset(
    ("processing", stage, replica) for stage in ("tolls", "means") for replica in "01"
)
SPEAKERS = {TOPIC: Speaker(BEATS, trims=True, fences=True)}
BEAT = Heartbeat("processing", "tolls", "0", 7, "running", 3, 0, "stable")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def log(clock: VirtualClock) -> LocalEventLog:
    log = LocalEventLog(clock)
    log.admin().create([TopicSettings(TOPIC, 1)])
    return log


def sent_records(log: LocalEventLog) -> list[ControlRecord]:
    return [
        control_records.decode(value) for chunk in everything(log, TOPIC) for value in chunk.values
    ]


def write(log: LocalEventLog, *entries: ControlRecord | bytes) -> None:
    writer = log.writer()
    for entry in entries:
        writer.send(
            TopicPartition(TOPIC, 0),
            entry if isinstance(entry, bytes) else control_records.encode(entry),
        )
    writer.flush()


def test_news_at_once_and_the_rest_now_and_then(log: LocalEventLog, clock: VirtualClock) -> None:
    sender = HeartbeatSender(log, TOPIC, clock)
    assert sender.send(BEAT)
    clock.advance(HEARTBEAT_NEWS_MS - 1)
    assert not sender.send(replace(BEAT, corrects=True))
    clock.advance(1)
    assert not sender.send(replace(BEAT, bucket=4, checkpoint_bucket=4))
    assert sender.send(replace(BEAT, corrects=True))
    clock.advance(HEARTBEAT_EVERY_MS - 1)
    assert not sender.send(replace(BEAT, corrects=True))
    clock.advance(1)
    assert sender.send(replace(BEAT, corrects=True))
    assert [entry.written_ms for entry in sent_records(log)] == [
        clock.now_ms() - 550,
        clock.now_ms() - 500,
        clock.now_ms(),
    ]
    sender.close()
    sender.close()


@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
def test_what_could_not_be_sent_is_sent_later_with_what_is_true_then(
    log: LocalEventLog, clock: VirtualClock, error: type[AnabranchError]
) -> None:
    sender = HeartbeatSender(log, TOPIC, clock)
    log.fail_next(FailingOperation.FLUSH, error=error, applied=0, topic=TOPIC)
    assert not sender.send(BEAT)
    clock.advance(HEARTBEAT_SEND_MS - 1)
    assert not sender.send(BEAT), "a broker in trouble is left alone for a while"
    clock.advance(1)
    assert sender.send(replace(BEAT, bucket=9))
    assert sent_records(log) == [replace(BEAT, bucket=9, written_ms=clock.now_ms())]


class SilentWriter(LocalLogWriter):
    """Writer to a broker that neither accepts nor rejects anything until it answers."""

    is_silent = True

    def settled(self) -> bool:
        return not self.is_silent or not self._sent

    def flush(self) -> list[RecordPosition]:
        assert self.settled(), "it would wait for the broker"
        return super().flush()


@pytest.fixture
def _silent(log: LocalEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SilentWriter, "is_silent", True)
    monkeypatch.setattr(log, "writer", lambda: SilentWriter(log))


@pytest.mark.usefixtures("_silent")
def test_a_broker_that_does_not_answer_holds_no_heartbeat_up(
    log: LocalEventLog, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = HeartbeatSender(log, TOPIC, clock)
    assert sender.send(BEAT), "under way"
    for _ in range(20):
        clock.advance(HEARTBEAT_EVERY_MS)
        begun_ms = clock.monotonic_ms()
        assert not sender.send(replace(BEAT, bucket=4))
        assert clock.monotonic_ms() == begun_ms
    assert sent_records(log) == []
    monkeypatch.setattr(SilentWriter, "is_silent", False)
    assert sender.send(replace(BEAT, bucket=5))
    assert [entry.bucket for entry in sent_records(log) if isinstance(entry, Heartbeat)] == [3, 5]


@pytest.mark.usefixtures("_silent")
def test_a_broker_that_does_not_answer_holds_the_manager_up_for_a_moment_only(
    log: LocalEventLog, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, begun_ms = ControlWriter(log, TOPIC, clock), clock.monotonic_ms()
    assert not writer.write([BEAT])
    assert clock.monotonic_ms() - begun_ms == CONTROL_WAIT_MS
    assert not writer.write([BEAT])
    assert clock.monotonic_ms() - begun_ms == CONTROL_WAIT_MS, (
        "nothing is written before it is known what became of the first"
    )
    monkeypatch.setattr(SilentWriter, "is_silent", False)
    assert writer.write([replace(BEAT, bucket=5)])
    assert [entry.bucket for entry in sent_records(log) if isinstance(entry, Heartbeat)] == [
        3,
        5,
    ], "a slow broker is not given up"


class LateWriter(LocalLogWriter):
    """Writer to a broker that answers each record after longer than anybody waits at once."""

    def __init__(self, log: LocalEventLog, clock: VirtualClock) -> None:
        super().__init__(log)
        self._clock, self._answers_ms = clock, 0

    def settled(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if self._sent and not self._answers_ms:
            self._answers_ms = now_ms + 5 * CONTROL_WAIT_MS // 2
        return now_ms >= self._answers_ms

    def flush(self) -> list[RecordPosition]:
        self._answers_ms = 0
        return super().flush()


def test_what_the_broker_acknowledges_late_is_acknowledged(
    log: LocalEventLog, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "writer", lambda: LateWriter(log, clock))
    sender, lower = HeartbeatSender(log, TOPIC, clock), replace(BEAT, checkpoint_bucket=1)
    assert sender.send(BEAT)
    assert [sender.send_now(lower) for _ in range(5)] == [False, False, False, False, True]
    claimed = [each.checkpoint_bucket for each in sent_records(log) if isinstance(each, Heartbeat)]
    assert claimed == [BEAT.checkpoint_bucket, 1]
    assert not sender.send_now(lower), "that is another one"


@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
def test_what_was_sent_before_or_after_is_no_acknowledgement(
    log: LocalEventLog,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    error: type[AnabranchError],
) -> None:
    silent = SilentWriter(log)
    silent.is_silent = True
    monkeypatch.setattr(log, "writer", lambda: silent)
    sender, lower = HeartbeatSender(log, TOPIC, clock), replace(BEAT, checkpoint_bucket=1)
    assert not sender.send_now(lower)
    silent.is_silent = False
    log.fail_next(FailingOperation.FLUSH, error=error, applied=0, topic=TOPIC)
    clock.advance(HEARTBEAT_EVERY_MS)
    assert not sender.send(BEAT), "the lower claim was lost"
    silent = SilentWriter(log)
    silent.is_silent = True
    clock.advance(HEARTBEAT_SEND_MS)
    assert sender.send(BEAT)
    silent.is_silent = False
    assert sender.send_now(lower)
    claimed = [each.checkpoint_bucket for each in sent_records(log) if isinstance(each, Heartbeat)]
    assert claimed == [BEAT.checkpoint_bucket, 1]


@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
def test_a_rejection_that_is_reported_later_is_no_news(
    log: LocalEventLog, clock: VirtualClock, error: type[AnabranchError]
) -> None:
    """The heartbeat was in flight, or the writer rejects it itself."""
    silent = SilentWriter(log)
    log.writer = lambda: silent  # type: ignore[method-assign]
    sender = HeartbeatSender(log, TOPIC, clock)
    assert sender.send(BEAT)
    silent.is_silent = False
    log.fail_next(FailingOperation.FLUSH, error=error, applied=0, topic=TOPIC)
    clock.advance(HEARTBEAT_EVERY_MS)
    assert not sender.send(BEAT)
    del log.writer
    clock.advance(HEARTBEAT_SEND_MS)
    assert sender.send(replace(BEAT, bucket=6))
    assert [entry.bucket for entry in sent_records(log) if isinstance(entry, Heartbeat)] == [6]


def test_a_writer_that_failed_while_nobody_looked(log: LocalEventLog, clock: VirtualClock) -> None:
    broken = log.writer()
    log.fail_next(FailingOperation.FLUSH, applied=0)
    with pytest.raises(OutcomeUnknown):
        broken.flush()
    log.writer = lambda: broken  # type: ignore[method-assign]
    writer = ControlWriter(log, TOPIC, clock)
    assert not writer.write([BEAT])
    assert not writer.offer(BEAT)


def test_a_reader_begins_now_or_at_the_beginning(log: LocalEventLog) -> None:
    write(log, BEAT)
    now = ControlReader(log, SPEAKERS)
    all_of_it = records_so_far(log, SPEAKERS)
    later = records_so_far(log, {"no_such_topic": SPEAKERS[TOPIC]})
    write(log, replace(BEAT, bucket=4))
    assert [entry.bucket for entry in now.poll() if isinstance(entry, Heartbeat)] == [4]
    assert [entry.bucket for entry in all_of_it if isinstance(entry, Heartbeat)] == [3, 4]
    with pytest.raises(Unavailable):
        next(later)
    now.close()
    now.close()


def test_what_cannot_be_read_is_counted(log: LocalEventLog) -> None:
    reader = ControlReader(log, SPEAKERS)
    write(log, b"rubbish", TrimPoint("s", 1, 1))
    assert len(reader.poll()) == 1
    assert reader.counts == {"undecodable": 1, "trimpoint": 1}


def test_only_what_its_writer_may_say_counts(log: LocalEventLog) -> None:
    """Whatever a record says of who wrote it: the topic tells who did."""
    log.admin().create([TopicSettings("p.control.delivery.out", 1), TopicSettings("p.manager", 1)])
    speakers = {
        TOPIC: Speaker(frozenset({("processing", "tolls", "0")})),
        "p.control.delivery.out": Speaker(frozenset({("delivery", "out", "0")})),
        "p.manager": Speaker(frozenset(), trims=True),
    }
    reader = ControlReader(log, speakers)
    write(
        log,
        BEAT,
        TrimPoint("s", 9, 1),
        Fence("tolls", "1", 7, 1, (), 1),
        replace(BEAT, replica="1"),
        Heartbeat("delivery", "out", "0", -1, "", 9, 1),
    )
    writer = log.writer()
    for entry in (TrimPoint("s", 3, 1), Fence("tolls", "1", 7, 1, (), 2)):
        writer.send(TopicPartition("p.manager", 0), control_records.encode(entry))
    writer.flush()
    found: list[ControlRecord] = []
    while len(found) < 2:
        found += reader.poll(100)
    assert set(found) == {BEAT, TrimPoint("s", 3, 1)}
    assert (reader.counts["forged"], reader.rejected) == (5, 5)


def test_what_names_a_former_life_does_not_count(log: LocalEventLog) -> None:
    """Nor does it after the topic of the stage's log was made anew under a reader."""
    boundaries = "p.tolls.boundaries"
    log.admin().create([TopicSettings(boundaries, 1)])
    former = life_of(log, boundaries)
    reader = ControlReader(log, {TOPIC: Speaker(BEATS, logs={"tolls": boundaries})})
    assert reader.life(boundaries) == former
    write(log, replace(BEAT, life=former))
    assert reader.poll(100) == [replace(BEAT, life=former)]

    log.admin().delete_topics([boundaries])
    log.admin().create([TopicSettings(boundaries, 1)])
    present = life_of(log, boundaries)
    write(log, replace(BEAT, epoch=1, life=present), replace(BEAT, life=former), BEAT)
    assert reader.poll(100) == [replace(BEAT, epoch=1, life=present), BEAT]
    assert reader.counts["former_life"] == 1
    write(log, replace(BEAT, life=former))
    assert reader.poll(100) == []
    assert (reader.counts["former_life"], reader.rejected) == (2, 0)


def test_a_life_that_cannot_be_asked_for_does_not_count_yet(log: LocalEventLog) -> None:
    boundaries = "p.tolls.boundaries"
    log.admin().create([TopicSettings(boundaries, 1)])
    reader = ControlReader(log, {TOPIC: Speaker(BEATS, logs={"tolls": boundaries})})
    log.admin().delete_topics([boundaries])
    log.admin().create([TopicSettings(boundaries, 1)])
    present = replace(BEAT, life=life_of(log, boundaries))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalLogAdmin, "topic_ids", unavailable)
        write(log, present)
        assert reader.poll(100) == []
    write(log, present)
    assert reader.poll(100) == [present]


@pytest.mark.parametrize("answers", [True, False])
def test_lives_that_are_made_up_cost_one_question_and_little_memory(
    log: LocalEventLog, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """A node of another owner writes heartbeats, and may write any life into them."""
    boundaries = "p.tolls.boundaries"
    log.admin().create([TopicSettings(boundaries, 1)])
    reader = ControlReader(log, {TOPIC: Speaker(BEATS, logs={"tolls": boundaries})})
    real, asked = LocalLogAdmin.topic_ids, list[object]()

    def counted(admin: LocalLogAdmin, topics: Sequence[str]) -> dict[str, str]:
        asked.append(topics)
        return real(admin, topics) if answers else unavailable()

    monkeypatch.setattr(LocalLogAdmin, "topic_ids", counted)
    present = replace(BEAT, life=real(log.admin(), [boundaries])[boundaries])
    write(log, *(replace(BEAT, life=f"made up {number}") for number in range(500)), present)
    assert reader.poll(100) == [present]
    assert (len(asked), reader.counts["former_life"]) == (1, 500)
    assert len(reader._lives._former) <= 100
    write(log, replace(BEAT, life="made up 499"))
    assert reader.poll(100) == []
    assert len(asked) == (1 if answers else 2), "what is remembered is not asked for"


def test_a_topic_that_loses_its_end_is_not_waited_for(
    log: LocalEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, BEAT)
    lose_ends(monkeypatch)
    reader = ControlReader(log, SPEAKERS, from_beginning=True)
    found = reader.to_end()
    assert next(found) == BEAT
    with pytest.raises(Unavailable, match="no record arrived after offset 1"):
        next(found)


def unavailable(*_: object) -> dict[str, str]:
    raise Unavailable("no answer")


def test_what_retention_took_is_no_loss(log: LocalEventLog) -> None:
    reader = ControlReader(log, SPEAKERS)
    log.fail_next(FailingOperation.FETCH, error=DataMissing, topic=TOPIC)
    write(log, BEAT)
    assert reader.poll() == []
    assert reader.poll() == [BEAT]
    assert reader.counts["lost"] == 1


def test_damaged_records_are_passed(log: LocalEventLog) -> None:
    """A damaged record of one topic holds up the records of no other topic."""
    reader = ControlReader(log, SPEAKERS)
    write(log, BEAT)
    assert reader.poll() == [BEAT]
    for offset in (1, 2):
        log.damage(TopicPartition(TOPIC, 0), offset)
        write(log, BEAT)
    write(log, BEAT)
    assert [reader.poll() for _ in range(3)] == [[], [], [BEAT]]
    assert reader.counts["lost"] == 2


class Neighbours:
    """Replica 0 of tolls, which reads the stage means; its peer is replica 1."""

    def __init__(self, log: LocalEventLog, clock: VirtualClock) -> None:
        self._log, self._clock = log, clock
        detector = FailureDetector.of_replicas({"tolls": "01", "means": "01"})
        self.gate = CorrectionGate("tolls", "0", detector)
        self.control = ReplicaControl(ControlReader(log, SPEAKERS), clock, self.gate, detector)

    def hears(self, *entries: ControlRecord) -> None:
        now_ms = self._clock.now_ms()
        write(self._log, *(replace(entry, written_ms=now_ms) for entry in entries))
        assert self.control.poll() == len(entries)


@pytest.fixture
def neighbours(log: LocalEventLog, clock: VirtualClock) -> Neighbours:
    return Neighbours(log, clock)


def test_the_topic_is_read_with_no_lock_held(
    log: LocalEventLog, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is slow would hold up every decision of the replica. What follows from
    the records changes under the lock.
    """
    detector = FailureDetector.of_replicas({"tolls": "01"})
    lock = threading.Lock()
    reader = ControlReader(log, SPEAKERS)
    gate = CorrectionGate("tolls", "0", detector)
    control = ReplicaControl(reader, clock, gate, detector, lock=lock)
    poll = reader.poll
    look = detector.look
    seen = list[bool]()

    def polls(wait_ms: int) -> list[ControlRecord]:
        seen.append(lock.locked())
        return poll(wait_ms)

    def looks(now_ms: int) -> int:
        seen.append(lock.locked())
        return look(now_ms)

    monkeypatch.setattr(reader, "poll", polls)
    monkeypatch.setattr(detector, "look", looks)
    control.poll()
    assert seen == [False, True]


def test_one_stays_with_a_replica_until_another_is_better(neighbours: Neighbours) -> None:
    assert neighbours.control.choose("means", {}) is None
    assert set(neighbours.control.states("means").values()) == {ReplicaState.FAILURE}
    neighbours.hears(
        *(Heartbeat("processing", "means", r, 5, "", 0, 0, "up_failure") for r in "01")
    )
    assert neighbours.control.states("means") == dict.fromkeys("01", ReplicaState.UP_FAILURE)
    assert neighbours.control.choose("means", {"1": 4}) == "1"
    assert neighbours.control.choose("means", {"0": 9, "1": 4}) == "1"
    neighbours.hears(Heartbeat("processing", "means", "1", 5, "", 0, 0, "stabilization"))
    assert neighbours.control.choose("means", {"0": 9, "1": 4}) == "0"
    neighbours.hears(Heartbeat("processing", "means", "1", 5, "", 0, 0, "stable"))
    assert neighbours.control.states("means") == {
        "0": ReplicaState.UP_FAILURE,
        "1": ReplicaState.STABLE,
    }


def test_without_anybody_it_corrects_all_the_same(
    neighbours: Neighbours, clock: VirtualClock
) -> None:
    for _ in range(0, FAILURE_AFTER_MS, 500):
        assert not neighbours.control.may_correct(True)
        clock.advance(500)
    assert neighbours.control.may_correct(True)
    neighbours.control.close()


def test_polling_lets_time_pass_also_while_nobody_says_anything(
    neighbours: Neighbours, clock: VirtualClock
) -> None:
    neighbours.hears(Heartbeat("processing", "means", "0", 5, "", 0, 0, "up_failure"))
    neighbours.control.may_correct(True)
    for _ in range(0, FAILURE_AFTER_MS, 500):
        assert neighbours.control.states("means")["0"] is ReplicaState.UP_FAILURE
        clock.advance(500)
        assert neighbours.control.poll() == 0
    assert neighbours.control.states("means")["0"] is ReplicaState.FAILURE
    assert neighbours.control.may_correct(True)
