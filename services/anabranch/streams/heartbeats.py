"""Writers and readers of control topics: heartbeats, fences, trim points. Each process writes its
own topic and reads those of others.

Theory of operation. A heartbeat is replaced by the next, so none is ever repaired: a failed send is
followed by the next heartbeat, and an unreadable record is only counted. A process without contact
to the broker sends and receives nothing, and others rightly take it for dead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import fields, replace
from operator import attrgetter
from typing import Final, Protocol

from anabranch.codec import control_records
from anabranch.ports import Clock, EventLog, LogWriter, TopicPartition
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
    DataMissing,
    OutcomeUnknown,
    RecordDamaged,
    RemoteProtocolError,
    Unavailable,
)
from anabranch.protocol.limits import HEARTBEAT_EVERY_MS, HEARTBEAT_SEND_MS
from anabranch.protocol.log.reading_to_end import ReadingToEnd
from anabranch.protocol.stage.scheduling import CorrectionGate
from anabranch.protocol.stage.upstream_selection import choose

HEARTBEAT_NEWS_MS: Final = 50
"""Minimum interval between heartbeats with changes, in ms. A state that flaps must not flood the
control topic.
"""

CONTROL_WAIT_MS: Final = 1_000
"""Timeout for the broker's acknowledgement of control records, in ms. Short: while the broker does
not answer, the writer's other work must continue.
"""

_PROGRESS: Final = frozenset(
    {"written_ms", "bucket", "checkpoint_bucket", "fetched_bytes", "stored"}
)
"""Fields of a heartbeat whose changes wait for the interval. Any other change is sent at once."""
_news: Final = attrgetter(*(each.name for each in fields(Heartbeat) if each.name not in _PROGRESS))
"""Values of a heartbeat's other fields."""

_FETCH_RECORDS: Final = 2_000
_FORMER_MAX: Final = 100
"""Maximum number of former lives that a reader remembers. Of one that it has forgotten it asks the
broker again.
"""
_WAIT_MS: Final = 100
_PAUSE_MS: Final = 5
_ALONE: Final = nullcontext()


class ControlWriter:
    """Writer of records that may be lost to a control topic. Does not block for long while the
    broker does not answer. Not thread-safe.
    """

    def __init__(self, log: EventLog, topic: str, clock: Clock) -> None:
        """Keep the arguments; contact nothing."""
        self._log = log
        self._at = TopicPartition(topic, 0)
        self._clock = clock
        self._writer: LogWriter | None = None
        self._under_way = False
        self._not_before_ms = 0

    def write(self, entries: Sequence[ControlRecord]) -> bool:
        """Write ``entries`` and return whether the broker has acknowledged all. Never raises
        because of the broker; after a failure, calls fail for a while without trying.

        Blocks for milliseconds, at most ``CONTROL_WAIT_MS``. After that it returns False although
        the records may still arrive; until their outcome is known nothing else is written.
        """
        if not (self._free() and self._begin(entries)):
            return False
        deadline_ms = self._clock.monotonic_ms() + CONTROL_WAIT_MS
        while not self._settled():
            if self._clock.monotonic_ms() >= deadline_ms:
                return False
            self._clock.sleep_ms(_PAUSE_MS)
        return self._taken()

    def offer(self, entry: ControlRecord) -> bool:
        """Send ``entry`` without waiting, and return whether it was sent. Returns False while the
        outcome of the record before is unknown.

        So at most one record is in flight while the broker does not answer, and the newest state is
        sent as soon as it does.
        """
        if not (self._free() and self._begin([entry])):
            return False
        return not self._settled() or self._taken()

    def is_under_way(self) -> bool:
        """Return whether the outcome of the records that were sent last is not known yet."""
        return self._under_way

    def settle(self) -> bool:
        """Wait up to ``CONTROL_WAIT_MS`` until the outcome of the records in flight is known.
        Return whether the broker has acknowledged them; False if none are in flight.
        """
        deadline_ms = self._clock.monotonic_ms() + CONTROL_WAIT_MS
        while self._under_way and not self._settled() and self._clock.monotonic_ms() < deadline_ms:
            self._clock.sleep_ms(_PAUSE_MS)
        return self._under_way and self._settled() and self._taken()

    def close(self) -> None:
        """Close the writer once the outcome of the record in flight is known, or was waited for:
        the last record is often the one that matters. Idempotent.
        """
        self.settle()
        self._drop()

    def _drop(self) -> None:
        self._under_way = False
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def _free(self) -> bool:
        """Return whether nothing is in flight; close a writer that has failed in the meantime."""
        return not self._under_way or (self._settled() and self._taken())

    def _begin(self, entries: Sequence[ControlRecord]) -> bool:
        if self._clock.monotonic_ms() < self._not_before_ms:
            return False
        try:
            if self._writer is None:
                self._writer = self._log.writer()
            for entry in entries:
                self._writer.send(
                    self._at, control_records.encode(entry), control_records.key_of(entry)
                )
        except (OutcomeUnknown, Unavailable):
            self._give_up()
            return False
        self._under_way = True
        return True

    def _settled(self) -> bool:
        try:
            return self._writer is None or self._writer.settled()
        except OutcomeUnknown:
            return True

    def _taken(self) -> bool:
        """Return whether the records whose outcome is known are in the topic."""
        try:
            if self._writer is not None:
                self._writer.flush()
        except (OutcomeUnknown, Unavailable):
            self._give_up()
            return False
        self._under_way = False
        return True

    def _give_up(self) -> None:
        self._drop()
        self._not_before_ms = self._clock.monotonic_ms() + HEARTBEAT_SEND_MS


class HeartbeatSender:
    """Sender of one process' heartbeats. Not thread-safe.

    ``send`` may be called at any rate: it sends changes soon, and otherwise one heartbeat per
    interval.
    """

    def __init__(
        self, log: EventLog, topic: str, clock: Clock, *, every_ms: int = HEARTBEAT_EVERY_MS
    ) -> None:
        """Contact nothing. ``every_ms`` is the interval between heartbeats without changes."""
        self._writer = ControlWriter(log, topic, clock)
        self._clock = clock
        self._every_ms = every_ms
        self._last: Heartbeat | None = None
        self._sent_ms = 0
        self._late: Heartbeat | None = None
        """Heartbeat of ``send_now`` that is still in flight."""

    def send(self, beat: Heartbeat) -> bool:
        """Send ``beat`` if one is due, with ``written_ms`` set, and return whether it was sent.
        Never raises because of the broker.

        Does not wait for the acknowledgement, which is checked when the next heartbeat is due.
        """
        now_ms = self._clock.monotonic_ms()
        if self._last is not None and not self._is_due(beat, self._last, now_ms - self._sent_ms):
            return False
        sent = self._writer.offer(replace(beat, written_ms=self._clock.now_ms()))
        if sent:
            self._last, self._sent_ms, self._late = beat, now_ms, None
        return sent

    def _is_due(self, beat: Heartbeat, last: Heartbeat, since_ms: int) -> bool:
        """Return whether to send ``beat``, ``since_ms`` after ``last`` was sent."""
        # The comparison last: every loop of a process asks, and most ask too early for any news.
        return since_ms >= self._every_ms or (
            since_ms >= HEARTBEAT_NEWS_MS and _news(beat) != _news(last)
        )

    def send_now(self, beat: Heartbeat) -> bool:
        """Send ``beat`` now, after the one in flight, and wait up to ``CONTROL_WAIT_MS`` for each.
        Return whether the broker has acknowledged it. To try again, call it with the same ``beat``.
        """
        if self._writer.settle() and beat == self._late:
            # Not sent again: a broker that always answers too late would never acknowledge it.
            self._late = None
            return True
        if self._writer.is_under_way():
            return False
        is_acknowledged = self._writer.write([replace(beat, written_ms=self._clock.now_ms())])
        self._late = beat if self._writer.is_under_way() else None
        return is_acknowledged

    def close(self) -> None:
        """Close the topics. Idempotent."""
        self._writer.close()


class ControlReader:
    """Reader of control topics, by default from their present ends: living processes soon send
    again. Not thread-safe.

    Only records that the topic's writer is entitled to write count (``protocol.control.records``).
    """

    def __init__(
        self, log: EventLog, speakers: Mapping[str, Speaker], *, from_beginning: bool = False
    ) -> None:
        """Open the topics. ``speakers`` maps each to its writer and its rights.

        Raises:
            Unavailable: one of them does not exist, or there is no answer.
        """
        self._speakers = {TopicPartition(topic, 0): speaker for topic, speaker in speakers.items()}
        self._lives = _Lives(log, speakers.values())
        self._reader = log.reader(committed=False, headers=False, follows=True)
        self._next = {
            at: self._reader.offsets(at)[0 if from_beginning else 1] for at in self._speakers
        }
        self._reader.assign(self._next)
        self.counts: Counter[str] = Counter()
        """Number of records by kind, and of ``undecodable``, ``forged`` (its writer may not write
        it), ``former_life`` (SK5) and ``lost`` ones (times that retention overtook this reader).
        """

    def poll(self, wait_ms: int = 0) -> list[ControlRecord]:
        """Return new records, waiting up to ``wait_ms`` for the first."""
        try:
            chunks = self._reader.fetch(_FETCH_RECORDS, wait_ms)
        except RecordDamaged as error:
            # What still holds is written again. A damaged batch of records is passed by steps.
            self.counts["lost"] += 1
            at = TopicPartition(error.topic, error.partition)
            self._next[at] = max(self._next[at], error.offset) + 1
            self._reader.assign(self._next)
            return []
        except DataMissing:
            # The lost records are obsolete: what still holds is written again.
            self.counts["lost"] += 1
            for at, (start, end) in [(at, self._reader.offsets(at)) for at in self._next]:
                self._next[at] = self._next[at] if start <= self._next[at] <= end else start
            self._reader.assign(self._next)
            return []
        self._lives.fetched()
        found: list[ControlRecord] = []
        for chunk in chunks:
            self._next[chunk.at] = chunk.offset_next
            for value in chunk.values:
                try:
                    entry = control_records.decode(value)
                except RemoteProtocolError:
                    self.counts["undecodable"] += 1
                    continue
                speaker = self._speakers[chunk.at]
                heard = speaker.accept(entry)
                if heard is None:
                    self.counts["forged"] += 1
                    continue
                if not self._lives.is_current(speaker.log_of(entry), entry):
                    self.counts["former_life"] += 1
                    continue
                self.counts[type(entry).__name__.lower()] += 1
                found.append(heard)
        return found

    def life(self, topic: str) -> str:
        """Return the identity of the life of the stream whose boundary log is ``topic``, as last
        read from the broker; empty if unknown.
        """
        return self._lives.current.get(topic, "")

    @property
    def rejected(self) -> int:
        """Number of records that could not be used."""
        return self.counts["undecodable"] + self.counts["forged"]

    def to_end(self) -> Iterator[ControlRecord]:
        """Yield all records up to the present ends of the topics.

        Raises:
            Unavailable: no record arrived for a while although an end is not reached.
        """
        ends = {at: self._reader.offsets(at)[1] for at in self._next}
        reading = ReadingToEnd(ends, self._reader.position)
        while not reading.is_over():
            yield from self.poll(_WAIT_MS)

    def close(self) -> None:
        """Close the topics. Idempotent."""
        self._reader.close()


class _Lives:
    """Lives of the streams that control records are about."""

    def __init__(self, log: EventLog, speakers: Iterable[Speaker]) -> None:
        """Read all lives from the broker.

        Raises:
            Unavailable: there is no answer.
        """
        self._log = log
        self._topics = sorted({topic for each in speakers for topic in each.logs.values()})
        self.current: dict[str, str] = {}
        """Identity by boundary log topic. Lacks topics that do not exist yet, or that this process
        may not see.
        """
        self._former: dict[str, None] = {}
        """Lives that are known to have ended, _FORMER_MAX at most: an identity is never reused."""
        self._answered: bool | None = None
        """Whether the broker was asked since the last records were fetched, and has answered; None:
        it was not asked.
        """
        self._ask()

    def _ask(self) -> None:
        with closing(self._log.admin()) as admin:
            self.current = admin.topic_ids(self._topics)

    def fetched(self) -> None:
        """Note that records were fetched. For these the broker is asked once at most: an answer
        that is younger than a record judges it, and writers can make up any number of lives.
        """
        self._answered = None

    def is_current(self, topic: str, entry: ControlRecord) -> bool:
        """Return whether ``entry``, about the log ``topic``, is of the log's present life. True
        also if it names no life, or the log's is unknown.
        """
        if not topic or not isinstance(entry, (Heartbeat, Fence, TrimPoint)):
            return True
        is_known = self.current.get(topic, entry.life) == entry.life or entry.life in self._former
        if not is_known and self._answered is None:
            # The topic may have been recreated since its identity was last read.
            self._answered = False
            with suppress(Unavailable):
                self._ask()
                self._answered = True
        if not is_known and not self._answered:
            return False  # in doubt trim less; heartbeats are repeated
        if self.current.get(topic, entry.life) == entry.life:
            return True
        self._former[entry.life] = None
        if len(self._former) > _FORMER_MAX:
            del self._former[next(iter(self._former))]
        return False


def records_so_far(log: EventLog, speakers: Mapping[str, Speaker]) -> Iterator[ControlRecord]:
    """Yield all records of the control topics, which are opened at the first ``next``.

    Raises:
        Unavailable: one of them does not exist, or there is no answer.
    """
    reader = ControlReader(log, speakers, from_beginning=True)
    try:
        yield from reader.to_end()
    finally:
        reader.close()


class ControlSource(Protocol):
    """Interface of a reader of control records."""

    def poll(self, wait_ms: int = 0) -> list[ControlRecord]:
        """Return new records, waiting up to ``wait_ms`` for the first."""

    def close(self) -> None:
        """Close the topics. Idempotent."""


class ReplicaControl:
    """Control records as one replica uses them: from which replica to take tentative buckets, and
    whether to correct. Not thread-safe.

    ``processing.replica`` calls ``choose``, ``states``, ``may_correct`` and ``peer_serves``.
    """

    def __init__(
        self,
        reader: ControlSource,
        clock: Clock,
        gate: CorrectionGate,
        detector: FailureDetector,
        listener: Callable[[ControlRecord], None] = lambda _: None,
        lock: AbstractContextManager[object] = _ALONE,
    ) -> None:
        """Keep the arguments. ``detector`` watches its peers and the replicas of its inputs.

        ``listener`` is called with every record; ``poll`` passes on what it raises. ``lock`` guards
        the state for callers in other threads; it is not held while the topics are read.
        """
        self._listener, self._lock = listener, lock
        self._reader = reader
        self._clock = clock
        self._gate = gate
        self._detector = detector
        self._current: dict[str, str] = {}

    def poll(self, wait_ms: int = 0) -> int:
        """Read and apply new records, and return their number. Call it before the other methods."""
        entries = self._reader.poll(wait_ms)
        for entry in entries:
            self._listener(entry)
        with self._lock:
            self._take(entries, self._clock.monotonic_ms())
        return len(entries)

    def _take(self, entries: Sequence[ControlRecord], now_ms: int) -> None:
        for entry in entries:
            if isinstance(entry, Heartbeat):
                self._detector.receive(entry, now_ms)
        self._detector.look(now_ms)

    def choose(self, stream: str, offers: Mapping[str, int]) -> str | None:
        """Return the replica, of those in ``offers``, from which to take tentative buckets of
        ``stream``; None if none will do. Keeps the present one as long as it is good.
        """
        chosen = choose(self._current.get(stream), self.states(stream), offers)
        if chosen is not None:
            self._current[stream] = chosen
        return chosen

    def states(self, stream: str) -> Mapping[str, ReplicaState]:
        """Return the state that each replica of ``stream`` reports; FAILURE if it reports nothing.
        Empty if the stream has no replicas.
        """
        return self._detector.states(stream, self._clock.monotonic_ms())

    def may_correct(self, wanted: bool) -> bool:
        """Tell the gate whether corrections are ``wanted`` now, and return whether the replica may
        correct at full speed.
        """
        if not wanted:
            self._gate.done()
            return False
        now_ms = self._clock.monotonic_ms()
        self._gate.want(now_ms)
        return self._gate.open(now_ms)

    def peer_serves(self) -> bool:
        """Return whether another replica of the stage delivers new results."""
        return self._gate.peer_serves(self._clock.monotonic_ms())

    def close(self) -> None:
        """Close the topics. Idempotent."""
        self._reader.close()
