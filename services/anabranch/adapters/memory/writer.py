"""Writers to a log in memory: implementations of ``ports.LogWriter`` and
``ports.TransactionalWriter``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.adapters.memory.faults import FailingOperation
from anabranch.adapters.memory.partition import Fate, Record, Transaction, settle
from anabranch.ports import Headers, RecordPosition, TopicPartition
from anabranch.protocol.errors import (
    AnabranchError,
    Fenced,
    LocalProtocolError,
    OutcomeUnknown,
    RecordTooLarge,
    Unavailable,
)

if TYPE_CHECKING:
    from anabranch.adapters.memory.cluster import LocalCluster


@dataclass(slots=True)
class Sent:
    """Record that was sent and is not flushed yet."""

    at: TopicPartition
    record: Record


class LocalLogWriter:
    """Writer that holds records until ``flush``."""

    def __init__(self, log: LocalCluster) -> None:
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

    def flush(self) -> list[RecordPosition]:
        """Append everything queued; return the positions in the order of sending.

        Raises:
            OutcomeUnknown: a planned fault; this writer is unusable from now on.
            Unavailable: a record was rejected; the others are in the log.
        """
        self._check()
        with self._log.changed:
            sent, self._sent = self._sent, []
            fault = self._log.fault(FailingOperation.FLUSH, {each.at.topic for each in sent})
            delivered, rejected = self._append(sent if fault is None else fault.of(sent))
            self._log.changed.notify_all()
            if fault is not None:
                raise self._break(fault.error("planned failure of a flush"))
            if rejected is not None:
                raise rejected
            return delivered

    def settled(self) -> bool:
        """Return True: ``flush`` never waits."""
        self._check()
        return True

    def close(self) -> None:
        """Drop queued records and close the writer. Idempotent."""
        self._closed = True
        self._sent = []

    def _append(self, sent: Sequence[Sent]) -> tuple[list[RecordPosition], Unavailable | None]:
        """Append the records that a broker would accept. Return their positions and the first
        rejection; one for another reason than size comes before others.
        """
        delivered: list[RecordPosition] = []
        first: Unavailable | None = None
        for each in sent:
            rejection = self._log.rejection(each.at, each.record)
            if rejection is None:
                delivered.append(
                    RecordPosition(each.at, self._log.partition(each.at).append(each.record))
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
    """Writer whose records become visible together."""

    def __init__(self, log: LocalCluster, transactional_id: str) -> None:
        """Fence older writers of the id and abort their open transactions."""
        super().__init__(log)
        self._id = transactional_id
        self._transaction: Transaction | None = None
        self._topics: set[str] = set()
        """Topics that the transaction has written to."""
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
            self._fail(FailingOperation.BEGIN)
            self._transaction, self._topics = Transaction(), set()

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

    def commit(self) -> list[RecordPosition]:
        """Flush and commit; return the positions of the records in the order of sending."""
        transaction = self._begun("commit")
        delivered = self.flush()
        self._end(FailingOperation.COMMIT, transaction, Fate.COMMITTED)
        return delivered

    def abort(self) -> None:
        """Abort the transaction: committed readers never see its records."""
        transaction = self._begun("abort")
        self._sent = []
        self._end(FailingOperation.ABORT, transaction, Fate.ABORTED)

    def close(self) -> None:
        """Abort an open transaction, unless this writer is fenced or of unknown outcome.
        Idempotent.
        """
        if not self._closed and self._broken is None and self._transaction is not None:
            with self._log.changed:
                if self._log.epochs[self._id] == self._epoch:
                    self._settle(self._transaction, Fate.ABORTED)
        super().close()

    def _append(self, sent: Sequence[Sent]) -> tuple[list[RecordPosition], Unavailable | None]:
        transaction = self._begun("send")
        self._fence()
        if sent:
            self._log.open[self._id] = transaction
            self._topics |= {each.at.topic for each in sent}
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

    def _fail(self, operation: FailingOperation) -> None:
        """Raise the error that is planned for ``operation``, before it has any effect."""
        fault = self._log.fault(operation, set())
        if fault is not None:
            raise self._break(fault.error(f"planned failure of {operation.value}"))

    def _end(self, operation: FailingOperation, transaction: Transaction, fate: Fate) -> None:
        with self._log.changed:
            self._fence()
            fault = self._log.fault(operation, self._topics)
            if fault is None or fault.applied != 0:
                self._settle(transaction, fate)
            if fault is not None:
                raise self._break(fault.error(f"planned failure of {operation.value}"))

    def _settle(self, transaction: Transaction, fate: Fate) -> None:
        settle(transaction, fate)
        self._log.open.pop(self._id, None)
        self._transaction = None
        self._log.changed.notify_all()
