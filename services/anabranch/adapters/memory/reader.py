"""Reader of a log in memory: an implementation of ``ports.LogReader``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch.adapters.memory.faults import FailingOperation
from anabranch.adapters.memory.partition import Fate
from anabranch.ports import Chunk, TopicPartition
from anabranch.protocol.errors import (
    DataMissing,
    LocalProtocolError,
    RecordDamaged,
    Unavailable,
)

if TYPE_CHECKING:
    from anabranch.adapters.memory.cluster import LocalCluster


class LocalLogReader:
    """Reader of hand-assigned partitions. Not thread-safe."""

    def __init__(
        self, log: LocalCluster, *, committed: bool, headers: bool, timestamps: bool = True
    ) -> None:
        self._log = log
        self._committed = committed
        self._headers, self._timestamps = headers, timestamps
        self._positions: dict[TopicPartition, int] = {}
        self._topics: frozenset[str] = frozenset()
        self._turn = 0
        self._failure: DataMissing | None = None
        """Error that has ended the reading of a partition, until the next assignment."""
        self._closed = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions, from these offsets on. Replaces an earlier assignment."""
        self._check()
        self._positions = dict(positions)
        self._topics = frozenset(at.topic for at in positions)
        self._failure = None

    def fetch(self, records_max: int, wait_ms: int) -> list[Chunk]:
        """Return available records, at most ``records_max``, as one chunk per partition; wait up to
        ``wait_ms`` for the first record only.

        Raises:
            DataMissing: an assigned offset is below the partition's start, or above its end.
            RecordDamaged: the next record of a partition is damaged.
            Unavailable: an assigned partition does not exist.
        """
        self._check()
        clock, deadline_ms = self._log.clock, self._log.clock.monotonic_ms() + wait_ms
        with self._log.changed:
            fault = self._log.fault(FailingOperation.FETCH, self._topics)
            if fault is not None:
                message = "planned failure of a fetch"
                raise fault.error(message)
            while True:
                if self._failure is not None:
                    raise self._failure
                chunks = self._take(records_max)
                if chunks or (left_ms := deadline_ms - clock.monotonic_ms()) <= 0:
                    return chunks
                self._log.wait(left_ms)

    def position(self, at: TopicPartition) -> int:
        """Return the next offset that ``fetch`` would return, after hidden records (aborted,
        control) too.
        """
        self._check()
        if at not in self._positions:
            message = f"{at} is not assigned to this reader"
            raise LocalProtocolError(message)
        return self._positions[at]

    def offsets(self, at: TopicPartition, wait_ms: int | None = None) -> tuple[int, int]:  # noqa: ARG002 - it answers at once
        """Return (first offset that exists, end offset). With committed isolation the end is the
        last stable offset.
        """
        self._check()
        with self._log.changed:
            fault = self._log.fault(FailingOperation.OFFSETS, {at.topic})
            if fault is not None:
                message = "planned failure of a question for offsets"
                raise fault.error(message)
            partition = self._log.partition(at)
            if at in self._log.leaderless:
                message = f"offsets of {at.topic}[{at.partition}]: no leader"
                raise Unavailable(message)
            return partition.start, partition.readable_end(committed=self._committed)

    def offset_from(self, at: TopicPartition, time_ms: int) -> int:
        """Return the first offset whose record has a timestamp of ``time_ms`` or later; the end if
        there is none.
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
        """Return the end offsets of ``places``, without those that do not exist or for which a
        fault is planned.
        """
        found: dict[TopicPartition, int] = {}
        for at in places:
            with suppress(Unavailable):
                found[at] = self.offsets(at, wait_ms)[1]
        return found

    def partitions(self, topic: str, wait_ms: int) -> int | None:  # noqa: ARG002 - it answers at once
        """Return the number of partitions of ``topic``; None: no such topic, or a fault is
        planned.
        """
        self._check()
        with self._log.changed:
            if (
                self._log.fault(FailingOperation.OFFSETS, {topic}) is not None
                or topic not in self._log.topics
            ):
                return None
            return len(self._log.topics[topic][1])

    def close(self) -> None:
        """Close the reader: later calls are errors. Idempotent."""
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            message = "the reader was closed"
            raise LocalProtocolError(message)

    def _take(self, records_max: int) -> list[Chunk]:
        """Return the records that can be read now. Starts at another partition each time, so that a
        long one does not starve the others. An error that ends the reading of a partition is raised
        once the records of the others are handed over.
        """
        places = list(self._positions)
        for at in places:
            self._log.partition(at)  # raises before anything is taken
        self._turn += 1
        chunks: list[Chunk] = []
        for step in range(len(places)):
            try:
                chunk = self._read(places[(self._turn + step) % len(places)], records_max)
            except DataMissing as error:
                self._failure = error
                continue
            if chunk is not None:
                chunks.append(chunk)
                records_max -= len(chunk.offsets)
        if self._failure is not None and not chunks:
            raise self._failure
        return chunks

    def _read(self, at: TopicPartition, records_max: int) -> Chunk | None:
        partition = self._log.partition(at)
        if at in self._log.leaderless:
            return None
        offset = self._positions[at]
        if offset == partition.end:
            return None  # most partitions of most fetches
        if not partition.start <= offset <= partition.end:
            message = (
                f"{at.topic}[{at.partition}] has offsets {partition.start} to {partition.end}, not"
                f" {offset}"
            )
            raise DataMissing(message)
        if offset in partition.damaged:
            message = f"{at.topic}[{at.partition}] at {offset}: a record is damaged"
            raise RecordDamaged(message, at.topic, at.partition, offset)
        chunk = Chunk(at, [], [], [], [], [])
        end = partition.readable_end(committed=self._committed)
        while offset < end and offset not in partition.damaged and len(chunk.offsets) < records_max:
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
