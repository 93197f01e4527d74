"""A Kafka cluster, or one in memory: readers, writers, topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from anabranch.codec.catalog import TopicSettings

Headers = Sequence[tuple[str, bytes | None]]
"""Of one record, in its order; a name may come twice. Kafka knows headers without a value."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one partition as parallel lists: cheap for many small records.

    ``headers[i]`` is ``()`` for all where the reader was opened without headers; ``timestamps_ms``
    are the broker's record timestamps, -1 for all where the reader was opened without. Offsets
    ascend but need not be dense (compaction, transactions).
    """

    at: TopicPartition
    offsets: list[int]
    values: list[bytes | None]
    keys: list[bytes | None]
    timestamps_ms: list[int]
    headers: list[Headers]

    @property
    def offset_next(self) -> int:
        """Where reading goes on after this chunk."""
        return self.offsets[-1] + 1


class LogReader(Protocol):
    """Reads partitions that are assigned by hand; never a consumer group, never committed
    offsets. Not thread-safe.
    """

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from these offsets on. Replaces an earlier assignment."""

    def fetch(self, records_max: int, wait_ms: int) -> list[Chunk]:
        """What is there, at most ``records_max`` records; waits up to ``wait_ms`` for the first
        only. One chunk per partition.

        Raises:
            DataMissing: an assigned offset is below the partition's start, or above its end (the
                log was cut).
            Unavailable: the broker cannot be reached *for good* (bad address, authentication);
                passing trouble is an empty answer.
        """

    def position(self, at: TopicPartition) -> int:
        """The next offset that ``fetch`` returns; past records that are not shown (aborted,
        control) too.

        Raises:
            DataMissing, Unavailable: reading of this partition has ended, and ``fetch`` says so
            from now on.
        """

    def offsets(self, at: TopicPartition, wait_ms: int | None = None) -> tuple[int, int]:
        """(first offset that exists, end offset), as the broker answers now. With committed
        isolation the end is the last stable offset.

        Raises:
            Unavailable: no answer within ``wait_ms``, or the adapter's time-out.
        """

    def offset_from(self, at: TopicPartition, time_ms: int) -> int:
        """The first offset whose record has a broker's timestamp of ``time_ms`` or later, as the
        broker answers now; the end where there is none.

        Raises:
            Unavailable: no answer within the adapter's time-out, or no such partition.
        """

    def ends(self, places: Collection[TopicPartition], wait_ms: int) -> dict[TopicPartition, int]:
        """The end offsets of ``places``, as by ``offsets`` but in one request; without
        those of which no answer came within ``wait_ms``.
        """

    def partitions(self, topic: str, wait_ms: int) -> int | None:
        """Number of partitions of ``topic`` now; None: no such topic, or no answer within
        ``wait_ms``.
        """

    def close(self) -> None:
        """Give back threads and sockets. Idempotent."""


class Delivered(NamedTuple):
    """Where a sent record came to stand."""

    at: TopicPartition
    offset: int


class LogWriter(Protocol):
    """Sends records; order within a partition is kept. Not thread-safe."""

    def send(
        self,
        at: TopicPartition,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Queue one record. Blocks while the queue is full (backpressure)."""

    def flush(self) -> list[Delivered]:
        """Wait for everything queued since the last flush; its places in the order of sending.

        Raises:
            OutcomeUnknown: at least one record may or may not be in the log; the writer must be
                closed and a new one opened.
            Unavailable: at least one record is certainly not in the log (unknown topic, not
                allowed); RecordTooLarge: for its size alone.
        """

    def settled(self) -> bool:
        """Whether it is known what became of everything queued, so that ``flush`` need not
        wait. Never waits itself.
        """

    def close(self) -> None:
        """Give up what is queued. Idempotent."""


class TransactionalWriter(LogWriter, Protocol):
    """A writer whose records become visible together. Opening one fences every older one with
    the same id.
    """

    def begin(self) -> None:
        """Start a transaction.

        Raises:
            Fenced: a newer writer with the same transactional id exists (any call may raise it).
            OutcomeUnknown: close this writer and open a new one, read back, go on (any call may
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
        """Queue many records of one topic, given as parallel lists. Of them ``commit`` need
        name only the last in each partition.
        """

    def commit(self) -> list[Delivered]:
        """Flush and commit. On OutcomeUnknown the transaction may be committed, aborted, or
        (old brokers) torn: read back.
        """

    def abort(self) -> None:
        """Make what was sent since ``begin`` invisible to committed readers."""


class LogAdmin(Protocol):
    """Topics."""

    def create(self, topics: Sequence[TopicSettings]) -> list[str]:
        """Create those that are missing (safe to race). Returns the differences of existing ones,
        as sentences.

        Raises:
            Unavailable: the broker did not answer or rejected the request.
        """

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """Number of partitions of each topic that exists; missing topics are left out."""

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the identity of each topic that exists; missing topics are left out.

        A topic that is deleted and created again under its name has another identity: offsets and
        epochs of the former one mean nothing in it.

        Raises:
            Unavailable: the broker did not answer.
        """

    def named(self, prefix: str) -> list[str]:
        """The topics whose names begin with ``prefix``, of those that this principal may see."""

    def settings(self, topic: str) -> dict[str, str]:
        """The topic's configuration as the broker applies it."""

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic so many partitions; it has as many, or more: nothing happens.

        Raises:
            Unavailable: the broker did not answer or rejected the request.
        """

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records below these offsets, for good and for everybody. Below a partition's
        start: nothing happens.

        Raises:
            Unavailable: the broker did not answer or rejected the request, such as an offset beyond
                the end; some partitions may be done.
        """

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete these topics with all that is in them, and wait until the cluster has forgotten
        them. One that is not there: nothing happens.

        Raises:
            Unavailable: the broker did not answer or rejected the request; some may be gone.
        """

    def close(self) -> None:
        """Idempotent."""


class EventLog(Protocol):
    """A Kafka cluster, or one in memory."""

    def reader(
        self,
        *,
        committed: bool = True,
        headers: bool = True,
        timestamps: bool = True,
        follows: bool = False,
        ranges: bool = False,
    ) -> LogReader:
        """A new reader. ``committed``: hides aborted and open transactions. Without ``headers`` and
        ``timestamps`` reading is cheaper.

        ``follows``: it stays with its first assignment and mostly waits at the end, which then
        costs the broker less. ``ranges``: it reads one stretch here and another there, and does not
        fetch far ahead.
        """

    def writer(self) -> LogWriter:
        """A new idempotent writer, acks=all; one that was opened ahead, if there is one."""

    def open_ahead(self, writers: int) -> None:
        """Have so many open for the next calls of ``writer``. Does not wait. To be called again now
        and then for as long as they are not used.
        """

    def transactional_writer(self, transactional_id: str) -> TransactionalWriter:
        """A new transactional writer; fences older ones of the id before it returns."""

    def admin(self) -> LogAdmin:
        """Topics."""
