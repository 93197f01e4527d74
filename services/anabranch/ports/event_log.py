"""Event log: readers, writers and topics of a Kafka cluster, or of one in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from anabranch.codec.catalog import TopicSettings

Headers = Sequence[tuple[str, bytes | None]]
"""Headers of one record, in their order. A name may occur twice; Kafka allows headers without a
value.
"""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return the partition in words for people."""
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one partition as parallel lists, which is cheap for many small
    records.

    ``headers[i]`` is ``()`` for all records if the reader was opened without headers.
    ``timestamps_ms`` are the record timestamps, -1 for all records if the reader was opened without
    timestamps. Offsets ascend but may have gaps (compaction, transactions).
    """

    at: TopicPartition
    offsets: list[int]
    values: list[bytes | None]
    keys: list[bytes | None]
    timestamps_ms: list[int]
    headers: list[Headers]

    @property
    def offset_next(self) -> int:
        """Offset at which reading continues after this chunk."""
        return self.offsets[-1] + 1


class LogReader(Protocol):
    """Reader of partitions that are assigned by hand, never by a consumer group, without committed
    offsets. Not thread-safe.
    """

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions, from these offsets on. Replaces an earlier assignment."""

    def fetch(self, records_max: int, wait_ms: int) -> list[Chunk]:
        """Return available records, at most ``records_max``, as one chunk per partition; wait up to
        ``wait_ms`` for the first record only.

        Raises:
            DataMissing: an assigned offset is below the partition's start, or above its end (the
                log was cut).
            RecordDamaged: the next record of a partition does not match its checksum. Records of
                other partitions may be read once they are assigned anew without it.
            Unavailable: the broker cannot be reached *permanently* (wrong address,
                authentication); temporary failures give an empty answer.
        """

    def position(self, at: TopicPartition) -> int:
        """Return the next offset that ``fetch`` would return, after hidden records (aborted,
        control) too.

        Raises:
            DataMissing, Unavailable: reading of this partition has ended; ``fetch`` raises the same
                from now on.
        """

    def offsets(self, at: TopicPartition, wait_ms: int | None = None) -> tuple[int, int]:
        """Return (first offset that exists, end offset), as the broker answers now. With committed
        isolation the end is the last stable offset.

        Raises:
            Unavailable: no answer within ``wait_ms``; None: the adapter's timeout.
        """

    def offset_from(self, at: TopicPartition, time_ms: int) -> int:
        """Return the first offset whose record has a timestamp of ``time_ms`` or later, as the
        broker answers now; the end if there is none.

        Raises:
            Unavailable: no answer within the adapter's time-out, or no such partition.
        """

    def ends(self, places: Collection[TopicPartition], wait_ms: int) -> dict[TopicPartition, int]:
        """Return the end offsets of ``places``, as ``offsets`` does but in one request. Partitions
        without an answer within ``wait_ms`` are left out.
        """

    def partitions(self, topic: str, wait_ms: int) -> int | None:
        """Return the number of partitions of ``topic`` now; None: no such topic, or no answer
        within ``wait_ms``.
        """

    def close(self) -> None:
        """Release threads and sockets. Idempotent."""


class RecordPosition(NamedTuple):
    """Position of a sent record in the log."""

    at: TopicPartition
    offset: int


class LogWriter(Protocol):
    """Sender of records, in order within a partition. Not thread-safe."""

    def send(
        self,
        at: TopicPartition,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Queue one record. Blocks while the queue is full (backpressure)."""

    def flush(self) -> list[RecordPosition]:
        """Wait for everything queued since the last flush; return its positions in the order of
        sending.

        Raises:
            OutcomeUnknown: at least one record may or may not be in the log; the writer must be
                closed and a new one opened.
            Unavailable: at least one record is certainly not in the log (unknown topic, not
                allowed); RecordTooLarge: for its size alone.
        """

    def settled(self) -> bool:
        """Return whether the outcome of everything queued is known, so that ``flush`` would not
        wait. Never waits itself.
        """

    def close(self) -> None:
        """Drop queued records and close the writer. Idempotent."""


class TransactionalWriter(LogWriter, Protocol):
    """Writer whose records become visible together. Opening one fences every older one with the
    same id.
    """

    def begin(self) -> None:
        """Start a transaction.

        Raises:
            Fenced: a newer writer with the same transactional id exists (any call may raise it).
            OutcomeUnknown: close this writer, open a new one, read back, continue (any call may
                raise it).
        """

    def send_many(
        self,
        topic: str,
        partitions: Sequence[int],
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: Sequence[Headers],
    ) -> None:
        """Queue many records of one topic, given as parallel lists. ``commit`` may report only the
        last of them in each partition.
        """

    def commit(self) -> list[RecordPosition]:
        """Flush and commit; return the positions of the records.

        Raises:
            OutcomeUnknown: the transaction may be committed, aborted, or (old brokers) torn: read
                back.
        """

    def abort(self) -> None:
        """Abort the transaction: committed readers never see its records."""


class LogAdmin(Protocol):
    """Administrator of topics."""

    def create(self, topics: Sequence[TopicSettings]) -> list[str]:
        """Create the missing ones of ``topics`` (safe to race), which can be written to when this
        returns. Return how existing ones differ from the wanted settings, as sentences.

        Raises:
            Unavailable: the broker did not answer or rejected the request.
        """

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """Return the number of partitions of each topic that exists; missing topics are
        left out.
        """

    def copies(self, topics: Sequence[str]) -> dict[str, int]:
        """Return the least number of copies that a partition of each topic has; missing topics are
        left out.

        Raises:
            Unavailable: the broker did not answer.
        """

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the identity of each topic that exists; missing topics are left out.

        A topic that is deleted and created again under the same name has another identity: offsets
        and epochs of the former one mean nothing in it.

        Raises:
            Unavailable: the broker did not answer.
        """

    def named(self, prefix: str) -> list[str]:
        """Return the topics whose names begin with ``prefix``, of those that this principal may
        see.
        """

    def settings(self, topic: str) -> dict[str, str]:
        """Return the topic's configuration as the broker applies it."""

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic until it has ``partitions``. Nothing happens if it has as many
        already.

        Raises:
            Unavailable: the broker did not answer or rejected the request.
        """

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records below these offsets permanently, for all readers. An offset below a
        partition's start is ignored.

        Raises:
            Unavailable: the broker did not answer or rejected the request, such as an offset beyond
                the end; some partitions may be done.
        """

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete these topics with all their records, and wait until the cluster no longer lists
        them. A topic that does not exist is ignored.

        Raises:
            Unavailable: the broker did not answer or rejected the request; some may be gone.
        """

    def close(self) -> None:
        """Release the connection. Idempotent."""


class EventLog(Protocol):
    """Kafka cluster, or one in memory."""

    def reader(
        self,
        *,
        committed: bool = True,
        headers: bool = True,
        timestamps: bool = True,
        follows: bool = False,
        ranges_of: str = "",
    ) -> LogReader:
        """Return a new reader.

        Args:
            committed: Hide the records of aborted and open transactions.
            headers: Read headers; reading without is cheaper.
            timestamps: Read timestamps; reading without is cheaper.
            follows: The reader keeps its first assignment and mostly waits at the end, which then
                costs the broker less.
            ranges_of: Name of the stream of which the reader reads one range here and another
                there, so that it does not fetch far ahead. The cluster counts the bytes that it
                fetches under this name. Empty: it reads on from its positions.
        """

    def writer(self) -> LogWriter:
        """Return a new idempotent writer with acks=all, or one that was opened ahead."""

    def open_ahead(self, writers: int) -> None:
        """Open ``writers`` writers for later calls of ``writer``. Does not wait. To be called again
        from time to time while they are unused.
        """

    def transactional_writer(self, transactional_id: str) -> TransactionalWriter:
        """Return a new transactional writer. Older ones of the id are fenced before this
        returns.
        """

    def admin(self) -> LogAdmin:
        """Return an administrator of topics."""
