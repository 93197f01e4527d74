"""Heartbeats: saying what a process does, on the control topic that it alone writes, and hearing
what others do, on theirs.

Theory of operation. What a heartbeat says is news only, so nothing is ever repaired: one that could
not be sent is followed by the next, one that could not be read is counted. A process without
contact to the broker says nothing and hears nothing, and others take it for dead, which is what
they should.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
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
    RemoteProtocolError,
    Unavailable,
)
from anabranch.protocol.limits import HEARTBEAT_EVERY_MS, HEARTBEAT_SEND_MS
from anabranch.protocol.stage.scheduling import CorrectionGate
from anabranch.protocol.stage.upstream_selection import choose

HEARTBEAT_NEWS_MS: Final = 50
"""Least time between two heartbeats with news: a state that flaps must not flood the control
topic.
"""

CONTROL_WAIT_MS: Final = 1_000
"""What the manager waits for the broker to take a fence or a trim point: where the broker is
away its other work must go on.
"""

_FETCH_RECORDS: Final = 2_000
_WAIT_MS: Final = 100
_PAUSE_MS: Final = 5
_ALONE: Final = nullcontext()


class ControlWriter:
    """Writes to a control topic what may be lost. Never holds its caller up where the broker
    does not answer. Not thread-safe.
    """

    def __init__(self, log: EventLog, topic: str, clock: Clock) -> None:
        """Nothing is contacted yet."""
        self._log = log
        self._at = TopicPartition(topic, 0)
        self._clock = clock
        self._writer: LogWriter | None = None
        self._under_way = False
        self._not_before_ms = 0

    def write(self, entries: Sequence[ControlRecord]) -> bool:
        """Write ``entries``; whether all of them are there. Never raises because of the broker;
        after a failure it tries only a while later.

        Blocks until the broker has them: milliseconds, and ``CONTROL_WAIT_MS`` at most; then it is
        a failure, though they may come yet. Until that is known nothing else is written.
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
        """Send ``entry`` and wait for nothing; whether it is under way, or there. False while the
        one before is not settled.

        So where the broker does not answer one record is under way at most, and the newest news are
        sent as soon as it does.
        """
        if not (self._free() and self._begin([entry])):
            return False
        return not self._settled() or self._taken()

    def close(self) -> None:
        """Idempotent. The last word is often the one that matters: what is under way is
        waited for, ``CONTROL_WAIT_MS`` at most.
        """
        deadline_ms = self._clock.monotonic_ms() + CONTROL_WAIT_MS
        while self._under_way and not self._settled() and self._clock.monotonic_ms() < deadline_ms:
            self._clock.sleep_ms(_PAUSE_MS)
        self._drop()

    def _drop(self) -> None:
        self._under_way = False
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def _free(self) -> bool:
        """Whether nothing is under way; a writer that failed in the meantime is given up."""
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
        """Of what is settled: whether it is in the topic."""
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
    """Sends the heartbeats of one process. Not thread-safe.

    Call ``send`` as often as you like: it sends what is news soon, and otherwise one heartbeat
    every now and then.
    """

    def __init__(
        self, log: EventLog, topic: str, clock: Clock, *, every_ms: int = HEARTBEAT_EVERY_MS
    ) -> None:
        """Nothing is contacted yet. ``every_ms``: between two heartbeats without news."""
        self._writer = ControlWriter(log, topic, clock)
        self._clock = clock
        self._every_ms = every_ms
        self._last: Heartbeat | None = None
        self._sent_ms = 0

    def send(self, beat: Heartbeat) -> bool:
        """Send ``beat`` if it is time to; its ``written_ms`` is set here. Returns whether it was
        sent. Never raises because of the broker.

        Waits for nothing: that the broker has it is looked at when the next one is due.
        """
        now_ms = self._clock.monotonic_ms()
        stated = _news(beat)
        wait_ms = (
            HEARTBEAT_NEWS_MS
            if self._last is not None and stated != _news(self._last)
            else self._every_ms
        )
        if self._last is not None and now_ms - self._sent_ms < wait_ms:
            return False
        sent = self._writer.offer(replace(beat, written_ms=self._clock.now_ms()))
        if sent:
            self._last, self._sent_ms = beat, now_ms
        return sent

    def say_last(self, beat: Heartbeat) -> None:
        """Send ``beat`` now, whatever the last one was, and wait for the broker to have
        it, ``CONTROL_WAIT_MS`` at most.
        """
        self._writer.write([replace(beat, written_ms=self._clock.now_ms())])

    def close(self) -> None:
        """Idempotent."""
        self._writer.close()


class ControlReader:
    """Follows all control topics, by default from now on: what is alive is heard again within a
    moment. Not thread-safe.

    Of each topic only what its writer may say counts (``protocol.control.records``).
    """

    def __init__(
        self, log: EventLog, speakers: Mapping[str, Speaker], *, from_beginning: bool = False
    ) -> None:
        """Open the topics. ``speakers``: who writes each.

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
        """Records by kind, and ``undecodable``, ``forged`` (its writer may not say it),
        ``former_life`` (SK5) and ``lost`` (retention was faster than this reader).
        """

    def poll(self, wait_ms: int = 0) -> list[ControlRecord]:
        """What is there; waits up to ``wait_ms`` for the first record."""
        try:
            chunks = self._reader.fetch(_FETCH_RECORDS, wait_ms)
        except DataMissing:
            # Old news is no loss; what counts is written again.
            self.counts["lost"] += 1
            for at, (start, end) in [(at, self._reader.offsets(at)) for at in self._next]:
                self._next[at] = self._next[at] if start <= self._next[at] <= end else start
            self._reader.assign(self._next)
            return []
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
                heard = speaker.heard(entry)
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
        asked for; empty: it is not known.
        """
        return self._lives.current.get(topic, "")

    @property
    def rejected(self) -> int:
        """Records that could not be used."""
        return self.counts["undecodable"] + self.counts["forged"]

    def to_end(self) -> Iterator[ControlRecord]:
        """Everything up to the ends that the topics have now."""
        ends = {at: self._reader.offsets(at)[1] for at in self._next}
        while any(self._reader.position(at) < end for at, end in ends.items()):
            yield from self.poll(_WAIT_MS)

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()


class _Lives:
    """Lives of the streams of which control records speak."""

    def __init__(self, log: EventLog, speakers: Iterable[Speaker]) -> None:
        """Ask for all of them.

        Raises:
            Unavailable: there is no answer.
        """
        self._log = log
        self._topics = sorted({topic for each in speakers for topic in each.logs.values()})
        self.current: dict[str, str] = {}
        """Topic of a boundary log -> its identity. Without those that do not exist yet, or that
        this process may not see.
        """
        self._former = set[str]()
        """Lives that were asked about and are over: an identity never comes again."""
        self._ask()

    def _ask(self) -> None:
        with closing(self._log.admin()) as admin:
            self.current = admin.topic_ids(self._topics)

    def is_current(self, topic: str, entry: ControlRecord) -> bool:
        """Whether ``entry``, which speaks of the log ``topic``, counts now. It does where it names
        no life, or nothing is known of the log's.
        """
        if not topic or not isinstance(entry, (Heartbeat, Fence, TrimPoint)):
            return True
        if entry.life not in (self.current.get(topic, entry.life), *self._former):
            # The topic may have been made anew since it was last asked for.
            try:
                self._ask()
            except Unavailable:
                return False  # every doubt means trimming less; a heartbeat comes again
        if self.current.get(topic, entry.life) == entry.life:
            return True
        self._former.add(entry.life)
        return False


def records_so_far(log: EventLog, speakers: Mapping[str, Speaker]) -> Iterator[ControlRecord]:
    """Everything that stands in the control topics, which are opened with the first ``next``.

    Raises:
        Unavailable: one of them does not exist, or there is no answer.
    """
    reader = ControlReader(log, speakers, from_beginning=True)
    try:
        yield from reader.to_end()
    finally:
        reader.close()


class Hearing(Protocol):
    """What control records are heard by."""

    def poll(self, wait_ms: int = 0) -> list[ControlRecord]:
        """What is there; waits up to ``wait_ms`` for the first record."""

    def close(self) -> None:
        """Idempotent."""


class ReplicaControl:
    """What one replica hears on the control topics, and what follows: whose tentative buckets to
    take, whether to correct. Not thread-safe.

    ``choose``, ``states``, ``may_correct`` and ``peer_serves`` are what ``processing.replica`` asks
    of its neighbours.
    """

    def __init__(
        self,
        reader: Hearing,
        clock: Clock,
        gate: CorrectionGate,
        detector: FailureDetector,
        listener: Callable[[ControlRecord], None] = lambda _: None,
        lock: AbstractContextManager[object] = _ALONE,
    ) -> None:
        """``detector``: what is heard of its peers, and of the replicas of its inputs.

        ``listener`` gets every record; what it raises, ``poll`` does. ``lock``: guards what
        follows, for callers in other threads; not taken while the topic is read.
        """
        self._listener, self._lock = listener, lock
        self._reader = reader
        self._clock = clock
        self._gate = gate
        self._detector = detector
        self._current: dict[str, str] = {}

    def poll(self, wait_ms: int = 0) -> int:
        """Take what is there; how many records. Call it before asking anything."""
        entries = self._reader.poll(wait_ms)
        for entry in entries:
            self._listener(entry)
        with self._lock:
            self._take(entries, self._clock.monotonic_ms())
        return len(entries)

    def _take(self, entries: Sequence[ControlRecord], now_ms: int) -> None:
        for entry in entries:
            if isinstance(entry, Heartbeat):
                self._detector.heard(entry, now_ms)
        self._detector.look(now_ms)

    def choose(self, stream: str, offers: Mapping[str, int]) -> str | None:
        """The replica from which to take tentative buckets of an input, of those that
        ``offers`` names; one stays with a good one.
        """
        chosen = choose(self._current.get(stream), self.states(stream), offers)
        if chosen is not None:
            self._current[stream] = chosen
        return chosen

    def states(self, stream: str) -> Mapping[str, ReplicaState]:
        """What each replica of an input says of itself; FAILURE: it says nothing. Empty: it
        has none.
        """
        return self._detector.states(stream, self._clock.monotonic_ms())

    def may_correct(self, wanted: bool) -> bool:
        """Tell the gate whether corrections are possible now; whether they may be made at
        full speed.
        """
        if not wanted:
            self._gate.done()
            return False
        now_ms = self._clock.monotonic_ms()
        self._gate.want(now_ms)
        return self._gate.open(now_ms)

    def peer_serves(self) -> bool:
        """Whether another replica of the stage gives new results."""
        return self._gate.peer_serves(self._clock.monotonic_ms())

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()


def _news(beat: Heartbeat) -> Heartbeat:
    """What is worth saying at once: everything but how far one has got."""
    return replace(beat, written_ms=0, bucket=0, checkpoint_bucket=0)
