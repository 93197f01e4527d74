"""The ports of one process: the in-memory log and index behind a network that is slow, cut, or does
not say what it did.

Every call of a port gives up the baton before it has its effect, and once more before its answer
arrives; so a process can be killed, paused or overtaken between any two effects, and between an
effect and the knowledge of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from anabranch.adapters.memory.index import LocalIndex
from anabranch.adapters.memory.log import (
    LocalEventLog,
    LocalLogAdmin,
    LocalLogReader,
    LocalLogWriter,
    LocalTransactionalWriter,
    Sent,
)
from anabranch.adapters.memory.partition import Fate, Record, Transaction, settle
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import Chunk, Headers, RecordPosition, TopicPartition
from anabranch.protocol.errors import DataMissing, OutcomeUnknown, Unavailable
from harness.regrowth import lose_and_grow
from simulation import hostile
from simulation.ends import TRANSACTION_TIMED_OUT, Life
from simulation.history import History, short
from simulation.new_inputs import FormerTopics
from simulation.scheduler import Killed, Process, Scheduler

REQUEST_TIMEOUT_MS: Final = 3_000
DELIVERY_TIMEOUT_MS: Final = 4_000
TRANSACTION_TIMEOUT_MS: Final = 5_000
"""Shorter than in ``adapters.kafka.settings``: an outage must be able to outlast them, and to
end within a run.
"""


Aim = Literal["any", "effect", "disk", "fork", "record", "copy", "begin", "claim", "split"]
_AIMED: Final[dict[str, tuple[Aim, Aim]]] = {
    "processing.fork_decided": ("fork", "disk"),
    "processing.boundary_appended": ("record", "disk"),
    "processing.standby_copied": ("copy", "disk"),
    "processing.begins": ("begin", "any"),
    "processing.claim_lowered": ("claim", "disk"),
    "processing.split_answered": ("split", "any"),
    "processing.split_ended": ("split", "any"),
}
"""Aim of a strike by the named place of the services at which it changes: what the strike was aimed
at before, and the operation that it hits from there on.
"""


@dataclass
class Link:
    """One process's way to the log and the index. Faults are planned here; all times are
    virtual ms.
    """

    latency_max_ms: int = 3
    cut_to_until_ms: int = 0
    """Requests do not arrive before."""
    cut_from_until_ms: int = 0
    """Answers do not arrive before."""
    slow_until_ms: int = 0
    full_until_ms: int = 0
    """The disk takes nothing before."""
    planned: list[tuple[str, int]] = field(default_factory=list)
    """(what becomes of the next write, its number): lost, late, applied, twice, part, rejected;
    for a commit lost, applied, torn, unrecorded (all but its progress). One that is unheard is a
    write of the next claim that a standby lowers (``claim_lowered``).
    """
    strikes: list[Strike] = field(default_factory=list)
    """Deaths and pauses that wait for their place."""
    branch_failures: list[int] = field(default_factory=list)
    """Batches of branches that will fail: before their blocks are written (even numbers),
    or after.
    """
    makes_wrong_rows: bool = False
    """Whether it computes wrong rows, as long as the process lives."""
    wrong_ms: int = 0
    """Additional duration of a batch with wrong rows, in ms."""
    leaves_out: bool = False
    """It computes nothing of most of its input."""
    wrong_after: int = 0
    """Only of buckets after this one: what others have made before is compared."""
    makes_nothing: bool = False
    """It begins, is heard, and runs no batch."""
    claims: int | None = None
    """Bucket up to which its heartbeats say that it holds its input for good; None: they tell the
    truth.
    """
    makes_up_epochs: bool = False
    """Whether its heartbeats name an epoch that no log has."""
    version: int = 1
    """Version of the stage's function in its pipeline file."""


@dataclass
class Strike:
    """The process dies, or is paused, so many port calls from now, of those that count: all, those
    that change something outside, disk's.

    ``fork``, ``record``: those of the disk, from the next fork, or the next record of a batch, on.
    ``split``: all, from the next answer to a split, or end of a shard, on.
    ``copy``: the same, from where a standby has the files of a peer.
    ``begin``: all, from where a replica is about to begin an epoch.
    ``claim``: those of the disk, from where a standby has lowered its claim.
    """

    calls: int
    aim: Aim
    pause_ms: int | None = None
    struck: Callable[[], None] | None = None
    """Called then."""


class Network:
    """State that all processes share."""

    def __init__(
        self,
        scheduler: Scheduler,
        log: LocalEventLog,
        index: LocalIndex,
        history: History,
        rng: random.Random,
    ) -> None:
        self.scheduler = scheduler
        self.log = log
        self.index = index
        self.history = history
        self.rng = rng
        self.visible_ms: dict[tuple[str, int, int], int] = {}
        """When committed readers could see each record of a transaction, by (topic,
        partition, offset).
        """
        self.trimmed: dict[tuple[str, int, int], Record] = {}
        """Deleted records, by (topic, partition, offset), which the checkers still read."""
        self.former = FormerTopics()
        """Inputs that were deleted and created again."""
        self.spoilt: dict[tuple[str, int, int], bytes] = {}
        """Values that readers get in place of the real ones, by the same."""
        self.lost: dict[tuple[str, TopicPartition], int] = {}
        """Offset below which the records of a log are lost for a service, by its key and the log.
        """
        self.outliving: set[Process] = set()
        """Processes that go on though their topics were deleted and created again: the checkers
        hear nothing of what they do.
        """
        self.appended: Callable[[TopicPartition, int, bytes | None], None] = (
            lambda _at, _offset, _value: None
        )
        """Told of each record that came into the log."""

    def delete(self, offsets: Mapping[TopicPartition, int], admin: LocalLogAdmin) -> None:
        """Delete the records before these offsets; the checkers keep them."""
        for at, end in offsets.items():
            partition = self.log.partition(at)
            gone = range(partition.start, min(end, partition.end))
            self.history.add(self.scheduler.now_ms, "broker", "delete", *at, len(gone))
            for offset in gone:
                if at.topic.endswith(".boundaries"):
                    what = "boundary log trimmed"
                elif ".control." in at.topic or at.topic.endswith(".manager"):
                    what = "control records deleted"
                else:
                    what = "input deleted" if at.topic.startswith("in.") else "blocks trimmed"
                self.history.reached(what)
                place = (at.topic, at.partition, offset)
                self.trimmed.setdefault(place, partition.at(offset))  # it may be compacted
        admin.delete_before(offsets)

    def lose_blocks(self, at: TopicPartition) -> None:
        """Let a partition of blocks lose all that it has, and grow again past the old offsets: they
        hold blocks of other attempts. The checkers keep the lost ones.
        """
        lost = lose_and_grow(self.log, at)
        self.history.add(self.scheduler.now_ms, "broker", "lose", *at, len(lost))
        for offset, record in enumerate(lost, self.log.partition(at).start):
            self.history.reached("blocks lost and grown again")
            self.trimmed.setdefault((at.topic, at.partition, offset), record)

    def spoil(self, at: TopicPartition, first: int, end: int) -> None:
        """Readers get other numbers in the blocks that stand there, as many rows of them."""
        partition = self.log.partition(at)
        for offset in range(max(first, partition.start), end):
            self.spoilt[at.topic, at.partition, offset] = hostile.other_rows(
                partition.at(offset).value
            )

    def wake(self, topics: set[str]) -> None:
        """Readers of these topics have something to look at."""
        for topic in sorted(topics):
            self.scheduler.changed(topic, self.rng.randrange(4))


class Port:
    """The part that all ports of a process share: steps, deaths, cuts."""

    def __init__(self, network: Network, process: Process, link: Link) -> None:
        self.network = network
        self.process = process
        self.link = link
        self.life = Life(network.scheduler.now_ms)
        self.woke_ms = 0
        """When the last pause of the process is over."""

    @property
    def now_ms(self) -> int:
        """Virtual time."""
        return self.network.scheduler.now_ms

    def note(self, what: str, *facts: str | int | None) -> None:
        """Into the history."""
        if self.process in self.network.outliving and what != "append":
            what = f"outliving: {what}"
        self.network.history.add(self.now_ms, self.process.name, what, *facts)

    def struck(self, what: str, until_ms: int | None = None) -> None:
        """Note that ``what`` befalls the process, up to now or longer: it may end from that."""
        self.life.struck(what, self.now_ms if until_ms is None else until_ms)

    def alive(self) -> None:
        """Raise Killed in a dead process."""
        if self.process.is_killed:
            raise Killed

    def step(self, place: Aim = "any") -> None:
        """Take a step at a port call, or at the way back from it: time passes, others may run,
        planned deaths and pauses happen.
        """
        self.alive()
        link, scheduler = self.link, self.network.scheduler
        latency_ms = self.network.rng.randrange(link.latency_max_ms + 1)
        if link.slow_until_ms > scheduler.now_ms:
            latency_ms *= 40
            self.struck("slow", scheduler.now_ms + latency_ms)
        self.process.calls += 1
        for strike in list(link.strikes):
            if strike.aim in ("any", place) or (strike.aim == "effect" and place == "disk"):
                strike.calls -= 1
                if strike.calls <= 0:
                    link.strikes.remove(strike)
                    self._strike(strike)
        scheduler.wait(scheduler.now_ms + latency_ms)

    def effect(self) -> None:
        """Take a step just before or just after an effect outside."""
        self.step("effect")

    def disk(self) -> None:
        """Take a step at an effect on a disk."""
        self.step("disk")

    def disk_write(self) -> None:
        """Something is about to be written on the disk.

        Raises:
            Unavailable: the disk is full.
        """
        self.disk()
        if self.link.full_until_ms > self.now_ms:
            self.struck("disk full")
            raise Unavailable("no space left on the disk")

    def crash_point(self, name: str) -> None:
        """Note that the process is at a named place: strikes aimed at it hit what it does next."""
        if name in _AIMED:
            place, hit = _AIMED[name]
            for strike in self.link.strikes:
                strike.aim = hit if strike.aim == place else strike.aim

    def claim_lowered(self) -> None:
        """Note that the process is about to write a lower claim: a fault that is planned for that
        befalls its next write.
        """
        planned = self.link.planned
        number = next((n for n, (kind, _) in enumerate(planned) if kind == "unheard"), None)
        if number is not None:
            _, value = planned.pop(number)
            planned.insert(0, (_UNHEARD[value % len(_UNHEARD)], value // 2 * 2))
            self.network.history.reached("claim unheard")

    def _strike(self, strike: Strike) -> None:
        scheduler = self.network.scheduler
        self.note("strike", strike.pause_ms)
        if strike.struck is not None:
            strike.struck()
        if strike.pause_ms is not None:
            self.woke_ms = scheduler.now_ms + strike.pause_ms
            self.struck("pause", self.woke_ms)
            scheduler.pause(self.process, scheduler.now_ms + strike.pause_ms)
            return
        scheduler.kill(self.process)
        raise Killed

    def until(self, open_at: Callable[[], int], timeout_ms: int) -> bool:
        """Wait until a cut is over; False if that takes longer than the time-out."""
        deadline_ms = self.now_ms + timeout_ms
        while open_at() > self.now_ms:
            self.struck("cut", min(open_at(), deadline_ms))
            if self.now_ms >= deadline_ms:
                return False
            self.network.scheduler.wait(min(open_at(), deadline_ms))
        return True

    def request(self, timeout_ms: int, *, is_effect: bool = True) -> bool:
        """Send a request to the broker. Return whether it arrived."""
        self.step("effect" if is_effect else "any")
        return self.until(lambda: self.link.cut_to_until_ms, timeout_ms)

    def answer(self, timeout_ms: int, *, is_effect: bool = True) -> bool:
        """Send the answer back. Return whether it arrived."""
        self.step("effect" if is_effect else "any")
        return self.until(lambda: self.link.cut_from_until_ms, timeout_ms)

    def ask(self, what: str) -> None:
        """Send a question and its answer.

        Raises:
            Unavailable: one of both got lost.
        """
        begun_ms = self.now_ms
        there = self.request(REQUEST_TIMEOUT_MS, is_effect=False)
        if not there or not self.answer(
            max(0, begun_ms + REQUEST_TIMEOUT_MS - self.now_ms), is_effect=False
        ):
            self.network.history.reached("question without answer")
            raise Unavailable(f"no answer: {what}")

    def next_fault(self, kinds: Mapping[str, str], topics: Iterable[str] = ()) -> tuple[str, int]:
        """Take the next planned fault that can happen here off the plan; ("", 0) if there is none.
        Odd ones wait for a boundary record.
        """
        is_boundary = any(topic.endswith(".boundaries") for topic in topics)
        for number, (kind, value) in enumerate(self.link.planned):
            if kind in _TEARS and kinds is _COMMIT_FAULTS:
                break  # what is planned behind it is to follow it
            if kind in kinds and (is_boundary or kinds[kind] == "commit" or value % 2 == 0):
                del self.link.planned[number]
                self.network.history.reached(f"{kinds[kind]} {kind}")
                if kind != "twice":  # its writer does not notice it
                    self.struck(f"{kinds[kind]} {kind}")
                return kind, value
        return "", 0


class SimulatedReader:
    """``ports.LogReader``."""

    def __init__(self, port: Port, *, committed: bool, headers: bool, timestamps: bool) -> None:
        self._port = port
        self._reader: LocalLogReader = port.network.log.reader(
            committed=committed, headers=headers, timestamps=timestamps
        )
        self._topics: frozenset[str] = frozenset()
        self._fetched_ms = port.now_ms

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """See the port."""
        self._port.alive()
        self._reader.assign(positions)
        self._topics = frozenset(at.topic for at in positions)
        for at in positions:
            if self._lost_below(at):
                self._port.note("cut log opened", at.topic)

    def _lost_below(self, at: TopicPartition) -> int:
        """Return the offset below which the records of ``at`` are lost for the process; 0: none."""
        lost = self._port.network.lost.get((self._port.process.key, at), 0)
        return min(lost, self._port.network.log.partition(at).end) if lost else 0

    def _check_lost(self) -> None:
        """Raise DataMissing if records are lost that the reader has not read."""
        for at, position in self._reader._positions.items():
            lost = self._lost_below(at)
            if position < lost:
                self._port.note("cut log met", at.topic)
                raise DataMissing(f"{at.topic} has lost its records below {lost}")

    def fetch(self, records_max: int, wait_ms: int) -> list[Chunk]:
        """See the port. While cut off: an empty answer, after the whole wait. Who waits for nothing
        gets what its client has: after a pause that may be nothing new yet.
        """
        port, scheduler = self._port, self._port.network.scheduler
        port.step()
        has_slept, self._fetched_ms = port.woke_ms > self._fetched_ms, scheduler.now_ms
        if has_slept and not wait_ms and port.network.rng.random() < _STALE_CHANCE:
            return []
        deadline_ms = scheduler.now_ms + wait_ms
        while True:
            cut_until_ms = max(port.link.cut_to_until_ms, port.link.cut_from_until_ms)
            if cut_until_ms <= scheduler.now_ms:
                self._check_lost()
                chunks = self._reader.fetch(records_max, 0)
                if chunks:
                    return self._spoilt(self._some(chunks))
            else:
                port.struck("cut", min(cut_until_ms, deadline_ms))
            if scheduler.now_ms >= deadline_ms:
                return []
            is_cut = cut_until_ms > scheduler.now_ms
            scheduler.wait(min(deadline_ms, cut_until_ms) if is_cut else deadline_ms, self._topics)

    def _spoilt(self, chunks: list[Chunk]) -> list[Chunk]:
        spoilt = self._port.network.spoilt
        for chunk in chunks if spoilt else ():
            for number, offset in enumerate(chunk.offsets):
                chunk.values[number] = spoilt.get(
                    (chunk.at.topic, chunk.at.partition, offset), chunk.values[number]
                )
        return chunks

    def _some(self, chunks: list[Chunk]) -> list[Chunk]:
        """Partitions answer on their own: at times only some of those that have something are
        in a fetch.
        """
        rng = self._port.network.rng
        if len(chunks) < 2 or rng.random() >= _SOME_CHANCE:
            return chunks
        kept = rng.sample(chunks, rng.randrange(1, len(chunks)))
        for chunk in chunks:
            if chunk not in kept:
                self._reader._positions[chunk.at] = chunk.offsets[0]
        return kept

    def position(self, at: TopicPartition) -> int:
        """See the port."""
        self._port.alive()
        return self._reader.position(at)

    def offsets(self, at: TopicPartition, wait_ms: int | None = None) -> tuple[int, int]:
        """See the port."""
        begun_ms, timeout_ms = self._port.now_ms, REQUEST_TIMEOUT_MS if wait_ms is None else wait_ms
        self._port.step()
        if not self._port.until(lambda: self._port.link.cut_to_until_ms, timeout_ms):
            raise Unavailable(f"no answer: offsets of {at}")

        def led_at() -> int:
            return self._port.now_ms + 50 * (at in self._port.network.log.leaderless)

        self._port.until(led_at, max(0, begun_ms + timeout_ms - self._port.now_ms))
        start, end = self._reader.offsets(at)
        if not self._port.answer(
            max(0, begun_ms + timeout_ms - self._port.now_ms), is_effect=False
        ):
            raise Unavailable(f"no answer: offsets of {at}")
        return max(start, self._lost_below(at)), end

    def offset_from(self, at: TopicPartition, time_ms: int) -> int:
        """See the port."""
        self._port.step()
        return self._reader.offset_from(at, time_ms)

    def ends(self, places: Collection[TopicPartition], wait_ms: int) -> dict[TopicPartition, int]:
        """See the port."""
        found: dict[TopicPartition, int] = {}
        deadline_ms = self._port.now_ms + wait_ms
        for at in places:
            with suppress(Unavailable):
                found[at] = self.offsets(at, max(0, deadline_ms - self._port.now_ms))[1]
        return found

    def partitions(self, topic: str, wait_ms: int) -> int | None:
        """See the port."""
        begun_ms = self._port.now_ms
        self._port.step()
        if not self._port.until(lambda: self._port.link.cut_to_until_ms, wait_ms):
            return None
        answer = self._reader.partitions(topic, wait_ms)
        left_ms = max(0, begun_ms + wait_ms - self._port.now_ms)
        return answer if self._port.answer(left_ms, is_effect=False) else None

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()


_SOME_CHANCE: Final = 0.2
_STALE_CHANCE: Final = 0.5
_LATE_MS: Final = 25
_VERY_LATE_FROM: Final = 19
_VERY_LATE_MS: Final = 150
"""From that value of a fault on each counts for so many ms: its writer was replaced long since."""
_LEADER_LOOK_MS: Final = 50
_WRITE_FAULTS: Final = {
    "lost": "write",
    "late": "write",
    "applied": "write",
    "twice": "write",
    "part": "write",
    "rejected": "write",
}
_UNHEARD: Final = ("lost", "late", "applied", "rejected")
_COMMIT_FAULTS: Final = {"lost": "commit", "applied": "commit"}
_TEARS: Final = {"torn": "commit", "unrecorded": "commit"}
"""Faults of a transaction on several partitions."""


class SimulatedWriter:
    """``ports.LogWriter``: what is sent arrives by ``flush``, as a whole, in part, late, twice, or
    not.
    """

    def __init__(self, port: Port, writer: LocalLogWriter) -> None:
        self._port, self._writer = port, writer
        self._count = 0
        self._queued: list[tuple[TopicPartition, bytes | None]] = []
        self._due_ms: int | None = None
        """When the client gives up what is under way, where somebody has asked for it."""
        self._unreported: list[RecordPosition] | None = None
        """Records in the log whose delivery is not reported yet."""

    def send(
        self,
        at: TopicPartition,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """See the port."""
        self._port.alive()
        self._writer.send(at, value, key, headers, timestamp_ms)
        self._queued.append((at, value))

    def flush(self) -> list[RecordPosition]:
        """See the port."""
        port = self._port
        due_ms, self._due_ms = self._due_ms, None
        if self._unreported is not None:
            port.alive()
            delivered, self._unreported = self._unreported, None
            if port.link.cut_from_until_ms > port.now_ms:
                raise self._broken("in the log, but the report did not come in time")
            return delivered
        if not self._queued:
            port.alive()
            return self._writer.flush()
        if due_ms is not None and due_ms <= port.now_ms:
            raise self._broken("not sent in time")
        if not port.request(DELIVERY_TIMEOUT_MS):
            raise self._broken("cut off: not sent, or sent in vain")
        if not self._await_leaders():
            self._spoil_leaderless()
            raise self._broken("no leader")
        kind, value = port.next_fault(_WRITE_FAULTS, {at.topic for at, _ in self._queued})
        if kind == "rejected":
            self._queued = []
            self._drop()
            port.answer(DELIVERY_TIMEOUT_MS)
            raise Unavailable("rejected by the broker")
        if kind in ("lost", "late", "part"):
            self._spoil(kind, value)
            port.answer(DELIVERY_TIMEOUT_MS)
            raise self._broken(kind)
        delivered = self._apply_twice(value) if kind == "twice" else self._apply()
        if not port.answer(DELIVERY_TIMEOUT_MS) or kind == "applied":
            raise self._broken("applied, but no answer came")
        return delivered

    def settled(self) -> bool:
        """See the port. While nothing gets to the broker, or no report back, it is not. What gets
        there is in the log at once, whenever its report comes.
        """
        port = self._port
        port.alive()
        if not self._queued and self._unreported is None:
            return True
        if self._due_ms is None:
            self._due_ms = port.now_ms + DELIVERY_TIMEOUT_MS
        has_arrived = self._unreported is not None or port.link.cut_to_until_ms <= port.now_ms
        if has_arrived and port.link.cut_from_until_ms <= port.now_ms:
            return True
        port.struck("cut")
        if has_arrived and self._unreported is None and not self._leaderless():
            self._unreported = self._apply()
            port.network.history.reached("in the log before its report")
        return self._due_ms <= port.now_ms

    def close(self) -> None:
        """Idempotent. What is queued is given up; in a dead process nothing happens."""
        self._queued, self._unreported = [], None
        if not self._port.process.is_killed:
            self._writer.close()

    def _leaderless(self) -> set[TopicPartition]:
        """Return the partitions of what is queued that have no leader now."""
        return {at for at, _ in self._queued} & self._port.network.log.leaderless

    def _await_leaders(self) -> bool:
        """Wait until all partitions of what is queued have a leader; False: that takes longer than
        the client waits.
        """
        port, deadline_ms = self._port, self._port.now_ms + DELIVERY_TIMEOUT_MS
        while self._leaderless():
            port.struck("no leader")
            if port.now_ms >= deadline_ms:
                return False
            port.network.scheduler.wait(min(deadline_ms, port.now_ms + _LEADER_LOOK_MS))
            port.alive()
        return True

    def _spoil_leaderless(self) -> None:
        """Deliver records to partitions with a leader, and lose the rest."""
        gone, sent = self._leaderless(), self._writer._sent
        self._writer._sent = [each for each in sent if each.at not in gone]
        self._queued = [each for each in self._queued if each[0] not in gone]
        self._apply()

    def _apply(self) -> list[RecordPosition]:
        """Into the log."""
        self._writer._sent = [self._dated(each) for each in self._writer._sent]
        delivered = self._writer.flush()
        self._appended(delivered, [value for _, value in self._queued])
        self._queued = []
        return delivered

    def _apply_twice(self, value: int) -> list[RecordPosition]:
        """Append the records, and the last of them again, all or fewer: a client that begins a new
        epoch repeats what was not acknowledged (librdkafka 4953). It reports where these came the
        second time, and no error.
        """
        sent, queued = self._writer._sent, self._queued
        first = value // 2 % len(sent)
        delivered = self._apply()
        self._writer._sent, self._queued = sent[first:], queued[first:]
        port = self._port
        port.network.scheduler.wait(port.now_ms + value * _LATE_MS)
        if not port.request(DELIVERY_TIMEOUT_MS) or not self._await_leaders():
            raise self._broken("not acknowledged, and not sent again in time")
        port.network.history.reached("written twice without an error")
        return [*delivered[:first], *self._apply()]

    def _appended(
        self, delivered: Sequence[RecordPosition], values: Sequence[bytes | None]
    ) -> None:
        for place, value in zip(delivered, values, strict=True):
            self._port.note(
                "append", place.at.topic, place.at.partition, place.offset, short(value)
            )
            if self._port.process in self._port.network.outliving:
                self._port.network.history.reached("the first life writes on")
            else:
                self._port.network.appended(place.at, place.offset, value)
        self._port.network.wake({place.at.topic for place in delivered})

    def _drop(self) -> None:
        self._writer._sent = []

    def _spoil(self, kind: str, value: int) -> None:
        """Lose the records, or some of them, or delay them."""
        sent, values = self._writer._sent, [queued for _, queued in self._queued]
        self._drop()
        self._queued = []
        keep = 0 if kind != "part" else 1 + value % max(1, len(sent))
        # A broker may reject the first batch and accept the next one: of half of the values the
        # last records are in the log.
        first = max(0, len(sent) - keep) if value // 2 % 2 else 0
        kept = slice(first, first + keep)
        partition_of, port = self._port.network.log.partition, self._port
        places = [
            RecordPosition(each.at, partition_of(each.at).append(self._dated(each).record))
            for each in sent[kept]
        ]
        self._appended(places, values[kept])
        if kind == "late":
            ids = port.network.log.topic_ids
            topic_ids = {each.at.topic: ids.get(each.at.topic) for each in sent}

            def arrive() -> None:
                if any(ids.get(topic) != life for topic, life in topic_ids.items()):
                    return  # the topic that it was sent to is deleted
                port.network.history.reached("late arrival")
                late = [
                    RecordPosition(each.at, partition_of(each.at).append(self._dated(each).record))
                    for each in sent
                ]
                self._appended(late, values)

            late_ms = value * (_LATE_MS if value < _VERY_LATE_FROM else _VERY_LATE_MS)
            port.network.scheduler.at(port.now_ms + 1 + late_ms, arrive)

    def _dated(self, sent: Sent) -> Sent:
        """Return the record with the time of its arrival, if the broker sets the times."""
        log = self._port.network.log
        kept = log.topics.get(sent.at.topic)
        if kept is None or kept[0].config.get("message.timestamp.type") != "LogAppendTime":
            return sent
        return replace(sent, record=replace(sent.record, timestamp_ms=log.clock.now_ms()))

    def _broken(self, why: str) -> OutcomeUnknown:
        error = OutcomeUnknown(f"simulated: {why}")
        self._writer._broken = error
        self._port.note("unknown", why)
        return error


class SimulatedTransactionalWriter(SimulatedWriter):
    """``ports.TransactionalWriter``. A transaction that nobody ends is aborted by the broker
    after its time-out.
    """

    def __init__(self, port: Port, transactional_id: str) -> None:
        self._id = transactional_id
        port.ask(f"fail over {transactional_id}")
        port.effect()
        log, topic = port.network.log, transactional_id.rpartition(".")[-1]
        if (left := log.open.get(transactional_id)) is not None and left.partitions:
            port.network.history.reached(f"open transaction aborted: {topic}")
        self._local: LocalTransactionalWriter = log.transactional_writer(transactional_id)
        # What an aborted transaction hid can be read.
        port.network.wake(set(log.topics))
        super().__init__(port, self._local)

    def begin(self) -> None:
        """See the port."""
        self._port.alive()
        self._local.begin()
        log = self._port.network.log
        scheduler = self._port.network.scheduler
        epoch = self._local._epoch
        transaction = self._local._transaction

        def time_out() -> None:
            if (
                transaction is not None
                and log.open.get(self._id) is transaction
                and log.epochs[self._id] == epoch
            ):
                self._port.network.history.reached(TRANSACTION_TIMED_OUT)
                self._port.struck(TRANSACTION_TIMED_OUT)
                settle(transaction, Fate.ABORTED)
                del log.open[self._id]
                log.epochs[self._id] += 1  # as brokers do: the writer cannot go on
                self._port.network.wake(set(log.topics))

        scheduler.at(scheduler.now_ms + TRANSACTION_TIMEOUT_MS, time_out)

    def send_many(
        self,
        topic: str,
        partitions: Sequence[int],
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: Sequence[Headers],
    ) -> None:
        """See the port."""
        for partition, value, key, head in zip(partitions, values, keys, headers, strict=True):
            self.send(TopicPartition(topic, partition), value, key, head)

    def commit(self) -> list[RecordPosition]:
        """See the port."""
        port, local = self._port, self._local
        queued = [at for at, _ in self._queued]
        delivered: list[RecordPosition] = []
        if queued:
            if not port.request(DELIVERY_TIMEOUT_MS):
                raise self._broken("cut off while sending")
            delivered = self._apply()
            if not port.answer(DELIVERY_TIMEOUT_MS):
                raise self._broken("sent, but no answer came")
        if not port.request(DELIVERY_TIMEOUT_MS):
            raise self._broken("cut off before the commit")
        # A live transaction is promised whole, and nothing repairs a part of one (docs/adr/0015).
        is_parted = local._transaction is not None and len(local._transaction.partitions) > 1
        may_tear = is_parted and not self._id.endswith(".live")
        kind, value = port.next_fault({**_COMMIT_FAULTS, **_TEARS} if may_tear else _COMMIT_FAULTS)
        if kind == "lost":
            port.answer(DELIVERY_TIMEOUT_MS)
            raise self._broken("the commit got lost")
        if kind in _TEARS and local._transaction is not None:
            # The progress record comes last.
            last = 1 << (len(local._transaction.partitions) - 1)
            _tear(port, local._transaction, value if kind == "torn" else last)
        local.commit()
        for place in delivered:
            port.network.visible_ms[place.at.topic, place.at.partition, place.offset] = port.now_ms
        port.note("commit", self._id, len(delivered))
        port.network.wake({at.topic for at in queued})
        if not port.answer(DELIVERY_TIMEOUT_MS) or kind:
            raise self._broken(f"commit {kind or 'without answer'}")
        return delivered

    def abort(self) -> None:
        """See the port."""
        self._queued = []
        self._port.request(DELIVERY_TIMEOUT_MS)
        self._local.abort()
        self._port.network.wake(set(self._port.network.log.topics))
        if not self._port.answer(DELIVERY_TIMEOUT_MS):
            raise self._broken("abort without answer")


def _tear(port: Port, transaction: Transaction, value: int) -> None:
    """Commit some partitions of ``transaction`` and abort the others (what old brokers do at
    worst).
    """
    partitions = transaction.partitions
    chosen = [partition for number, partition in enumerate(partitions) if value >> number & 1]
    if len(chosen) in (0, len(partitions)):
        return
    port.network.history.reached("transaction torn")
    for partition in chosen:
        lost = Transaction(Fate.ABORTED)
        records = partition._records
        for number, record in enumerate(records):
            if record.transaction is transaction:
                records[number] = replace(record, transaction=lost)


class SimulatedAdmin:
    """``ports.LogAdmin``."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._admin: LocalLogAdmin = port.network.log.admin()

    def create(self, topics: Sequence[TopicSettings]) -> list[str]:
        """See the port."""
        self._port.ask("create topics")
        return self._admin.create(topics)

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """See the port."""
        self._port.ask("partitions of topics")
        return self._admin.partitions(topics)

    def copies(self, topics: Sequence[str]) -> dict[str, int]:
        """See the port."""
        self._port.ask("copies of topics")
        return self._admin.copies(topics)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """See the port."""
        self._port.ask("identities of topics")
        return self._admin.topic_ids(topics)

    def named(self, prefix: str) -> list[str]:
        """See the port."""
        self._port.ask("names of topics")
        return self._admin.named(prefix)

    def settings(self, topic: str) -> dict[str, str]:
        """See the port."""
        self._port.ask(f"settings of {topic}")
        return self._admin.settings(topic)

    def grow(self, topic: str, partitions: int) -> None:
        """See the port."""
        self._port.ask(f"partitions for {topic}")
        self._admin.grow(topic, partitions)

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See the port."""
        self._port.ask("delete records")
        for at in offsets:
            self._port.note("deletes", at.topic)
        self._port.network.delete(offsets, self._admin)

    def delete_topics(self, topics: Sequence[str]) -> None:
        """See the port."""
        self._port.ask("delete topics")
        self._admin.delete_topics(topics)

    def close(self) -> None:
        """Idempotent."""


class SimulatedLog:
    """``ports.EventLog`` of one process."""

    def __init__(self, port: Port) -> None:
        self._port = port

    def reader(
        self,
        *,
        committed: bool = True,
        headers: bool = True,
        timestamps: bool = True,
        follows: bool = False,
        ranges_of: str = "",
    ) -> SimulatedReader:
        """See the port."""
        self._port.alive()
        return SimulatedReader(
            self._port, committed=committed, headers=headers, timestamps=timestamps
        )

    def writer(self) -> SimulatedWriter:
        """See the port."""
        self._port.alive()
        return SimulatedWriter(self._port, self._port.network.log.writer())

    def open_ahead(self, writers: int) -> None:
        """See the port: these can write at once."""

    def transactional_writer(self, transactional_id: str) -> SimulatedTransactionalWriter:
        """See the port."""
        return SimulatedTransactionalWriter(self._port, transactional_id)

    def admin(self) -> SimulatedAdmin:
        """See the port."""
        self._port.alive()
        return SimulatedAdmin(self._port)
