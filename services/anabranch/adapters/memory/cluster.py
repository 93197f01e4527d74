"""State of a Kafka cluster in memory: topics, partitions, transactions, and the faults that a test
plans. Readers, writers and administrators act on it (``adapters.memory.log``).
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.faults import FailingOperation, PlannedFault
from anabranch.adapters.system.clock import SystemClock
from anabranch.ports import Clock, TopicPartition
from anabranch.protocol.errors import AnabranchError, OutcomeUnknown, RecordTooLarge, Unavailable
from anabranch.protocol.limits import RECORD_BYTES_ON_BROKER_MAX

if TYPE_CHECKING:
    from anabranch.adapters.memory.partition import Partition, Record, Transaction
    from anabranch.codec.catalog import TopicSettings


class LocalCluster:
    """Shared state of a cluster in memory. Thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Create an empty cluster. ``clock`` gives records their timestamps and times waits: with a
        ``VirtualClock`` an empty fetch lets its wait pass at once.
        """
        self.clock: Clock = clock or SystemClock()
        self.changed = threading.Condition(threading.RLock())
        self.topics: dict[str, tuple[TopicSettings, list[Partition]]] = {}
        self.topics_created = 0
        """Number of topics created so far. Makes each topic's identity unique."""
        self.topic_ids: dict[str, str] = {}
        """Topic -> identity of the last topic created under this name."""
        self.leaderless: set[TopicPartition] = set()
        """Partitions without a leader at the moment: they exist but cannot be read."""
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self._faults: list[PlannedFault] = []

    def fail_next(
        self,
        operation: FailingOperation,
        *,
        applied: int | None = None,
        error: type[AnabranchError] = OutcomeUnknown,
        topic: str | None = None,
    ) -> None:
        """Make the next ``operation`` (on ``topic``, if given) raise ``error``.

        ``applied`` is the extent to which it takes effect nevertheless: for a flush the number of
        records that reach the log (None: all; below 0: so many of the last ones, as where a broker
        refuses the first batch and accepts the next), for a commit or abort 0 or None (it happens).
        Faults queue: each call makes one more operation fail.
        """
        with self.changed:
            self._faults.append(PlannedFault(operation, error, applied, topic))

    def trim(self, at: TopicPartition, offset: int) -> None:
        """Delete the records below ``offset``, as retention and DeleteRecords do."""
        with self.changed:
            self.partition(at).trim(offset)

    def cut(self, at: TopicPartition, offset: int) -> None:
        """Lose the records from ``offset`` on, as an unclean leader election does."""
        with self.changed:
            self.partition(at).cut(offset)

    def damage(self, at: TopicPartition, offset: int) -> None:
        """Change bytes of the record at ``offset``, as a disk does that fails: it no longer matches
        its checksum.
        """
        with self.changed:
            self.partition(at).damaged.add(offset)

    def partition(self, at: TopicPartition) -> Partition:
        """Return a partition. The caller holds ``changed``.

        Raises:
            Unavailable: there is no such partition.
        """
        found = self.topics.get(at.topic)
        if found is None or not 0 <= at.partition < len(found[1]):
            message = f"unknown topic or partition: {at.topic}[{at.partition}]"
            raise Unavailable(message)
        return found[1][at.partition]

    def fault(self, operation: FailingOperation, topics: Collection[str]) -> PlannedFault | None:
        """Remove and return the fault that is planned for this operation, if any. The caller holds
        ``changed``.
        """
        for fault in self._faults:
            if fault.operation is operation and (fault.topic is None or fault.topic in topics):
                self._faults.remove(fault)
                return fault
        return None

    def rejection(self, at: TopicPartition, record: Record) -> Unavailable | None:
        """Return the error with which a broker would reject this record; None: it would accept it.
        The caller holds ``changed``.
        """
        try:
            self.partition(at)
        except Unavailable as error:
            return error
        size = (
            len(record.value or b"")
            + len(record.key or b"")
            + sum(len(name) + len(value or b"") for name, value in record.headers)
        )
        limit = int(
            self.topics[at.topic][0].config.get("max.message.bytes", RECORD_BYTES_ON_BROKER_MAX)
        )
        return (
            RecordTooLarge(f"record of {size} bytes is too large for {at.topic}")
            if size > limit
            else None
        )

    def wait(self, duration_ms: int) -> None:
        """Wait for a change, at most ``duration_ms``. The caller holds ``changed``."""
        if isinstance(self.clock, VirtualClock):
            self.clock.sleep_ms(duration_ms)
        else:
            self.changed.wait(duration_ms / 1000)
