"""``ports.EventLog`` in memory: a Kafka cluster for tests, whose misbehaviour is chosen.

What a writer sends reaches the log when it is flushed (or its transaction committed), so a writer
that is dropped before has written nothing. ``fail_next`` makes one later operation end as a cut
connection would end it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.partition import Fate, Partition, Record, Transaction, settle
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.topic_rules import differences
from anabranch.ports import Chunk, Clock, Delivered, Headers, TopicPartition
from anabranch.protocol.errors import (
    AnabranchError,
    DataMissing,
    Fenced,
    LocalProtocolError,
    OutcomeUnknown,
    RecordTooLarge,
    Unavailable,
)
from anabranch.protocol.limits import MIB

RECORD_BYTES_MAX: Final = 16 * MIB

_DEFAULTS: Final = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": str(RECORD_BYTES_MAX),
}


class Operation(Enum):
    """What can be made to fail."""

    FLUSH = "flush"
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"
    FETCH = "fetch"
    OFFSETS = "offsets"


@dataclass(slots=True)
class _Fault:
    operation: Operation
    error: type[AnabranchError]
    applied: int | None
    topic: str | None


@dataclass(slots=True)
class Sent:
    """A record on its way."""

    at: TopicPartition
    record: Record


class LocalEventLog:
    """A cluster in memory. It and its admins are thread-safe; readers and writers are not, as
    the port says.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        """``clock`` stamps records and times waits: with a ``VirtualClock`` an empty fetch
        lets its wait pass at once.
        """
        self.clock: Clock = clock or SystemClock()
        self.changed = threading.Condition(threading.RLock())
        self.topics: dict[str, tuple[TopicSettings, list[Partition]]] = {}
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self._faults: list[_Fault] = []

    def reader(
        self,
        *,
        committed: bool = True,
        headers: bool = True,
        timestamps: bool = True,
        follows: bool = False,  # noqa: ARG002
        ranges: bool = False,  # noqa: ARG002
    ) -> LocalLogReader:
        """A new reader."""
        return LocalLogReader(self, committed=committed, headers=headers, timestamps=timestamps)

    def writer(self) -> LocalLogWriter:
        """A new writer."""
        return LocalLogWriter(self)

    def open_ahead(self, writers: int) -> None:
        """See the port: these can write at once."""

    def transactional_writer(self, transactional_id: str) -> LocalTransactionalWriter:
        """A new transactional writer; fences older ones of the id and aborts what they left
        open.
        """
        return LocalTransactionalWriter(self, transactional_id)

    def admin(self) -> LocalLogAdmin:
        """Topics."""
        return LocalLogAdmin(self)

    def fail_next(
        self,
        operation: Operation,
        *,
        applied: int | None = None,
        error: type[AnabranchError] = OutcomeUnknown,
        topic: str | None = None,
    ) -> None:
        """Make the next ``operation`` (on ``topic``, if given) raise ``error``.

        ``applied`` is how much of it happens nevertheless: for a flush the number of records that
        reach the log (None: all), for a commit or abort 0 or not. Faults queue: each call spoils
        one more operation.
        """
        with self.changed:
            self._faults.append(_Fault(operation, error, applied, topic))

    def trim(self, at: TopicPartition, offset: int) -> None:
        """Delete the records below ``offset``, as retention and DeleteRecords do."""
        with self.changed:
            self.partition(at).trim(offset)

    def cut(self, at: TopicPartition, offset: int) -> None:
        """Lose the records from ``offset`` on, as an unclean leader election does."""
        with self.changed:
            self.partition(at).cut(offset)

    def partition(self, at: TopicPartition) -> Partition:
        """The partition; the caller holds ``changed``.

        Raises:
            Unavailable: there is none.
        """
        found = self.topics.get(at.topic)
        if found is None or not 0 <= at.partition < len(found[1]):
            message = f"unknown topic or partition: {at.topic}[{at.partition}]"
            raise Unavailable(message)
        return found[1][at.partition]

    def fault(self, operation: Operation, topics: set[str]) -> _Fault | None:
        """The fault planned for this operation, taken off the list; the caller holds
        ``changed``.
        """
        for fault in self._faults:
            if fault.operation is operation and (fault.topic is None or fault.topic in topics):
                self._faults.remove(fault)
                return fault
        return None

    def rejection(self, sent: Sent) -> Unavailable | None:
        """Why a broker would reject this record, if it would; the caller holds ``changed``."""
        try:
            self.partition(sent.at)
        except Unavailable as error:
            return error
        record = sent.record
        size = (
            len(record.value or b"")
            + len(record.key or b"")
            + sum(len(name) + len(value or b"") for name, value in record.headers)
        )
        limit = int(self.topics[sent.at.topic][0].config.get("max.message.bytes", RECORD_BYTES_MAX))
        return (
            RecordTooLarge(f"record of {size} bytes is too large for {sent.at.topic}")
            if size > limit
            else None
        )

    def wait(self, duration_ms: int) -> None:
        """Wait for a change, at most ``duration_ms``; the caller holds ``changed``."""
        if isinstance(self.clock, VirtualClock):
            self.clock.sleep_ms(duration_ms)
        else:
            self.changed.wait(duration_ms / 1000)


class LocalLogReader:
    """Reads hand-assigned partitions."""

    def __init__(
        self, log: LocalEventLog, *, committed: bool, headers: bool, timestamps: bool = True
    ) -> None:
        self._log = log
        self._committed = committed
        self._headers, self._timestamps = headers, timestamps
        self._positions: dict[TopicPartition, int] = {}
        self._turn = 0
        self._closed = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from these offsets on. Replaces an earlier assignment."""
        self._check()
        self._positions = dict(positions)

    def fetch(self, records_max: int, wait_ms: int) -> list[Chunk]:
        """What is there, at most ``records_max`` records; waits up to ``wait_ms`` for the first
        only. One chunk per partition.

        Raises:
            DataMissing: an assigned offset is below the partition's start, or above its end.
            Unavailable: an assigned partition does not exist.
        """
        self._check()
        clock, deadline_ms = self._log.clock, self._log.clock.monotonic_ms() + wait_ms
        with self._log.changed:
            fault = self._log.fault(Operation.FETCH, {at.topic for at in self._positions})
            if fault is not None:
                message = "planned failure of a fetch"
                raise fault.error(message)
            while True:
                chunks = self._take(records_max)
                left_ms = deadline_ms - clock.monotonic_ms()
                if chunks or left_ms <= 0:
                    return chunks
                self._log.wait(left_ms)

    def position(self, at: TopicPartition) -> int:
        """The next offset that ``fetch`` returns; past records that are not shown (aborted,
        control) too.
        """
        self._check()
        if at not in self._positions:
            message = f"{at} is not assigned to this reader"
            raise LocalProtocolError(message)
        return self._positions[at]

    def offsets(self, at: TopicPartition, wait_ms: int | None = None) -> tuple[int, int]:  # noqa: ARG002 - it answers at once
        """(first offset that exists, end offset); with committed isolation the end is the
        last stable offset.
        """
        self._check()
        with self._log.changed:
            fault = self._log.fault(Operation.OFFSETS, {at.topic})
            if fault is not None:
                message = "planned failure of a question for offsets"
                raise fault.error(message)
            partition = self._log.partition(at)
            return partition.start, partition.readable_end(committed=self._committed)

    def offset_from(self, at: TopicPartition, time_ms: int) -> int:
        """The first offset whose record has a timestamp of ``time_ms`` or later; the end
        where there is none.
        """
        start, end = self.offsets(at)
        with self._log.changed:
            partition = self._log.partition(at)
            return next(
                (
                    offset
                    for offset in range(start, end)
                    if partition.at(offset).timestamp_ms >= time_ms
                ),
                end,
            )

    def ends(self, places: Collection[TopicPartition], wait_ms: int) -> dict[TopicPartition, int]:
        """The end offsets of ``places``; without those that do not exist, or whose answer is
        planned to fail.
        """
        found: dict[TopicPartition, int] = {}
        for at in places:
            with suppress(Unavailable):
                found[at] = self.offsets(at, wait_ms)[1]
        return found

    def partitions(self, topic: str, wait_ms: int) -> int | None:  # noqa: ARG002 - it answers at once
        """Number of partitions of ``topic``; None: no such topic, or the answer is planned to
        fail.
        """
        self._check()
        with self._log.changed:
            if (
                self._log.fault(Operation.OFFSETS, {topic}) is not None
                or topic not in self._log.topics
            ):
                return None
            return len(self._log.topics[topic][1])

    def close(self) -> None:
        """Idempotent."""
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            message = "the reader was closed"
            raise LocalProtocolError(message)

    def _take(self, records_max: int) -> list[Chunk]:
        """What can be read now, beginning with another partition each time so that a long one
        does not starve the others.
        """
        places = list(self._positions)
        self._turn += 1
        chunks: list[Chunk] = []
        for step in range(len(places)):
            chunk = self._read(places[(self._turn + step) % len(places)], records_max)
            if chunk is not None:
                chunks.append(chunk)
                records_max -= len(chunk.offsets)
        return chunks

    def _read(self, at: TopicPartition, records_max: int) -> Chunk | None:
        partition = self._log.partition(at)
        offset = self._positions[at]
        if not partition.start <= offset <= partition.end:
            message = (
                f"{at.topic}[{at.partition}] has offsets {partition.start} to {partition.end}, not"
                f" {offset}"
            )
            raise DataMissing(message)
        chunk = Chunk(at, [], [], [], [], [])
        end = partition.readable_end(committed=self._committed)
        while offset < end and len(chunk.offsets) < records_max:
            record = partition.at(offset)
            aborted = record.transaction is not None and record.transaction.fate is Fate.ABORTED
            if not record.control and not (aborted and self._committed):
                chunk.offsets.append(offset)
                chunk.values.append(record.value)
                chunk.keys.append(record.key)
                chunk.timestamps_ms.append(record.timestamp_ms if self._timestamps else -1)
                chunk.headers.append(record.headers if self._headers else ())
            offset += 1
        self._positions[at] = offset
        return chunk if chunk.offsets else None


class LocalLogWriter:
    """Keeps what is sent until ``flush``."""

    def __init__(self, log: LocalEventLog) -> None:
        self._log = log
        self._sent: list[Sent] = []
        self._broken: AnabranchError | None = None
        self._closed = False

    def send(
        self,
        at: TopicPartition,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Queue one record."""
        self._check()
        with self._log.changed:
            kept = self._log.topics.get(at.topic)
            appended = (
                kept is not None and kept[0].config.get("message.timestamp.type") == "LogAppendTime"
            )
        stamp_ms = self._log.clock.now_ms() if appended or not timestamp_ms else timestamp_ms
        self._sent.append(Sent(at, Record(value, key, tuple(headers), stamp_ms)))

    def flush(self) -> list[Delivered]:
        """Append everything queued; the places in the order of sending.

        Raises:
            OutcomeUnknown: a planned fault; this writer is of no more use.
            Unavailable: a record was rejected; the others are in the log.
        """
        self._check()
        with self._log.changed:
            sent, self._sent = self._sent, []
            fault = self._log.fault(Operation.FLUSH, {each.at.topic for each in sent})
            applied = sent if fault is None or fault.applied is None else sent[: fault.applied]
            delivered, rejected = self._append(applied)
            self._log.changed.notify_all()
            if fault is not None:
                raise self._break(fault.error("planned failure of a flush"))
            if rejected is not None:
                raise rejected
            return delivered

    def settled(self) -> bool:
        """Always: ``flush`` never waits."""
        self._check()
        return True

    def close(self) -> None:
        """Give up what is queued. Idempotent."""
        self._closed = True
        self._sent = []

    def _append(self, sent: Sequence[Sent]) -> tuple[list[Delivered], Unavailable | None]:
        """Append what a broker would take; the places, and a rejection, one for another
        reason than its size before others.
        """
        delivered: list[Delivered] = []
        first: Unavailable | None = None
        for each in sent:
            rejection = self._log.rejection(each)
            if rejection is None:
                delivered.append(
                    Delivered(each.at, self._log.partition(each.at).append(each.record))
                )
            if first is None or (isinstance(first, RecordTooLarge) and rejection is not None):
                first = rejection
        return delivered, first

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._closed:
            message = "the writer was closed"
            raise LocalProtocolError(message)

    def _break(self, error: AnabranchError) -> AnabranchError:
        if isinstance(error, (OutcomeUnknown, Fenced)):
            self._broken = error
        return error


class LocalTransactionalWriter(LocalLogWriter):
    """A writer whose records become visible together."""

    def __init__(self, log: LocalEventLog, transactional_id: str) -> None:
        """Fences older writers of the id and aborts what they left open."""
        super().__init__(log)
        self._id = transactional_id
        self._transaction: Transaction | None = None
        with log.changed:
            log.epochs[transactional_id] = self._epoch = log.epochs.get(transactional_id, 0) + 1
            left_open = log.open.pop(transactional_id, None)
            if left_open is not None:
                settle(left_open, Fate.ABORTED)
            log.changed.notify_all()

    def begin(self) -> None:
        """Start a transaction."""
        self._check()
        if self._transaction is not None:
            message = f"transaction of {self._id} begun twice"
            raise LocalProtocolError(message)
        with self._log.changed:
            self._fail(Operation.BEGIN)
            self._transaction = Transaction()

    def send_many(
        self,
        topic: str,
        partitions: Sequence[int],
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: Sequence[Headers],
    ) -> None:
        """Queue many records of one topic."""
        for partition, value, key, head in zip(partitions, values, keys, headers, strict=True):
            self.send(TopicPartition(topic, partition), value, key, head)

    def commit(self) -> list[Delivered]:
        """Flush and commit; the places of the records in the order of sending."""
        transaction = self._begun("commit")
        delivered = self.flush()
        self._end(Operation.COMMIT, transaction, Fate.COMMITTED)
        return delivered

    def abort(self) -> None:
        """Make what was sent since ``begin`` invisible to committed readers."""
        transaction = self._begun("abort")
        self._sent = []
        self._end(Operation.ABORT, transaction, Fate.ABORTED)

    def close(self) -> None:
        """Abort an open transaction, unless this writer is fenced or of unknown outcome.
        Idempotent.
        """
        if not self._closed and self._broken is None and self._transaction is not None:
            with self._log.changed:
                if self._log.epochs[self._id] == self._epoch:
                    self._settle(self._transaction, Fate.ABORTED)
        super().close()

    def _append(self, sent: Sequence[Sent]) -> tuple[list[Delivered], Unavailable | None]:
        transaction = self._begun("send")
        self._fence()
        if sent:
            self._log.open[self._id] = transaction
        within = [
            Sent(
                e.at,
                Record(
                    e.record.value,
                    e.record.key,
                    e.record.headers,
                    e.record.timestamp_ms,
                    transaction,
                ),
            )
            for e in sent
        ]
        return super()._append(within)

    def _begun(self, what: str) -> Transaction:
        self._check()
        if self._transaction is None:
            message = f"{what} without begin on {self._id}"
            raise LocalProtocolError(message)
        return self._transaction

    def _fence(self) -> None:
        if self._log.epochs[self._id] != self._epoch:
            message = f"a newer writer of {self._id} exists"
            raise self._break(Fenced(message))

    def _fail(self, operation: Operation) -> None:
        """Raise what is planned for ``operation`` before any of it happened."""
        fault = self._log.fault(operation, set())
        if fault is not None:
            raise self._break(fault.error(f"planned failure of {operation.value}"))

    def _end(self, operation: Operation, transaction: Transaction, fate: Fate) -> None:
        with self._log.changed:
            self._fence()
            fault = self._log.fault(operation, set())
            if fault is None or fault.applied != 0:
                self._settle(transaction, fate)
            if fault is not None:
                raise self._break(fault.error(f"planned failure of {operation.value}"))

    def _settle(self, transaction: Transaction, fate: Fate) -> None:
        settle(transaction, fate)
        self._log.open.pop(self._id, None)
        self._transaction = None
        self._log.changed.notify_all()


class LocalLogAdmin:
    """Topics in memory."""

    def __init__(self, log: LocalEventLog) -> None:
        self._log = log

    def create(self, topics: Sequence[TopicSettings]) -> list[str]:
        """Create those that are missing; the differences of existing ones, as sentences."""
        sentences: list[str] = []
        with self._log.changed:
            for topic in topics:
                if topic.partitions < 1:
                    message = f"topic {topic.name}: {topic.partitions} partitions"
                    raise Unavailable(message)
                if topic.name not in self._log.topics:
                    self._log.topics[topic.name] = (
                        topic,
                        [Partition() for _ in range(topic.partitions)],
                    )
                    continue
                _, partitions = self._log.topics[topic.name]
                sentences += differences(topic, len(partitions), None, self._settings(topic.name))
        return sentences

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """Number of partitions of each topic that exists; missing topics are left out."""
        with self._log.changed:
            return {
                topic: len(self._log.topics[topic][1])
                for topic in topics
                if topic in self._log.topics
            }

    def named(self, prefix: str) -> list[str]:
        """The topics whose names begin with ``prefix``."""
        with self._log.changed:
            return sorted(topic for topic in self._log.topics if topic.startswith(prefix))

    def settings(self, topic: str) -> dict[str, str]:
        """The topic's configuration; of the defaults only those that this project looks at.

        Raises:
            Unavailable: no such topic.
        """
        with self._log.changed:
            return self._settings(topic)

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records below these offsets.

        Raises:
            Unavailable: no such partition, or an offset is beyond its end.
        """
        with self._log.changed:
            for at, offset in offsets.items():
                partition = self._log.partition(at)
                if offset > partition.end:
                    raise Unavailable(
                        f"delete records of {at.topic}[{at.partition}] below {offset}: it ends at"
                        f" {partition.end}"
                    )
                partition.trim(offset)

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete these topics with all that is in them."""
        with self._log.changed:
            for topic in topics:
                self._log.topics.pop(topic, None)

    def close(self) -> None:
        """Idempotent."""

    def _settings(self, topic: str) -> dict[str, str]:
        if topic not in self._log.topics:
            message = f"unknown topic {topic}"
            raise Unavailable(message)
        return {**_DEFAULTS, **self._log.topics[topic][0].config}
