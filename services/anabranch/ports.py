"""What the services need from the outside, as types. The adapters implement them;
``adapters.memory`` does so in memory.

Words. A *log* is a Kafka cluster: named topics of partitions, each an append-only sequence of
records with offsets. An offset names a record; ``offset_next`` is that of the next one to read.
Every implementation passes the one suite in ``tests/conformance``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from anabranch.codec.catalog import TopicSettings
from anabranch.protocol.log.timeline import Timeline

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from anabranch.codec.plan_offsets import Offset
    from anabranch.protocol.log.records import BoundaryKind, Part
    from anabranch.protocol.stage.planner import PlanTraits, QueryPosition

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

    def named(self, prefix: str) -> list[str]:
        """The topics whose names begin with ``prefix``, of those that this principal may see."""

    def settings(self, topic: str) -> dict[str, str]:
        """The topic's configuration as the broker applies it."""

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


class Index(Protocol):
    """Quick look-ups, never the truth: every method may find nothing, and every caller must do
    without (docs/adr/0004).

    All methods raise Unavailable when the index cannot be reached within a fraction of a second.
    """

    def put(self, key: str, fields: Mapping[str, str], *, expire_ms: int | None = None) -> None:
        """Replace the hash at ``key`` as a whole."""

    def get(self, key: str) -> dict[str, str]:
        """The hash at ``key``; empty if there is none."""

    def delete(self, key: str) -> None:
        """Forget ``key``."""

    def keys(self, prefix: str) -> list[str]:
        """Keys that start with ``prefix``, sorted."""

    def rank(self, key: str, member: str, score: float) -> None:
        """Add or move ``member`` in the sorted set at ``key``."""

    def ranked(
        self, key: str, low: float, high: float, *, count_max: int = 1_000
    ) -> list[tuple[str, float]]:
        """Members with ``low <= score <= high``, ascending."""

    def unrank_below(self, key: str, score: float) -> int:
        """Remove members with a score below ``score``; how many."""

    def close(self) -> None:
        """Idempotent."""


class SchemaRegistry(Protocol):
    """Schemas of records by id, kept by somebody else. What it says of an id never changes."""

    def schema(self, schema_id: int) -> str:
        """The Avro schema under ``schema_id``, as text.

        Raises:
            ConfigurationError: there is none, or none that stands for itself; the text says which.
            Unavailable: no answer.
        """

    def register(self, subject: str, schema: str) -> int:
        """The id of an Avro schema under ``subject``; the same for the same schema, whoever asks.

        Raises:
            ConfigurationError: the registry rejects it, as by the subject's compatibility rule.
            Unavailable: no answer.
        """


class Checkpoints(Protocol):
    """Checkpoint directories and timeline files of one replica (``protocol.log.timeline``). A
    directory is named by its timeline.
    """

    def newest(self) -> Timeline | None:
        """The timeline that the newest file names; None: no file, or its directory is gone."""

    def create(self, name: str) -> None:
        """An empty directory, whatever is there, for a replica that starts from nothing."""

    def copy(self, source: str, target: str) -> None:
        """Make ``target`` a copy of ``source``, whole or not at all; replaces an earlier copy. What
        was durable there is durable here.

        Raises:
            Unavailable: the source vanished or kept changing.
        """

    def last_commit(self, name: str) -> int:
        """The last batch that was committed in the directory; -1: none."""

    def batches(self, name: str) -> Sequence[int]:
        """The committed batches that the directory still has, newest first, damaged or not;
        (-1,): none was ever committed; empty: all that were are gone.
        """

    def whole(self, name: str, batches: Sequence[int]) -> int | None:
        """The first of ``batches`` whose logs and state are whole; None: of none. May mend
        what can be; so only for a copy.
        """

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        """Forget what came after ``batch``; ``keep_plan``: but for the plan of the next one, if it
        is whole. Only for a copy.
        """

    def bucket(self, name: str, batch: int) -> int:
        """The last bucket that was read with ``batch``, which is whole; 0 for -1."""

    def peers(self) -> Sequence[tuple[str, Timeline]]:
        """The replicas of the same stage whose disks are within reach, each with its newest
        timeline.
        """

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        """As ``copy``, from a peer's disk; of what it holds nothing is durable before
        ``sync``. False: it could not be copied.
        """

    def peer_commit(self, replica: str, name: str) -> int:
        """As ``last_commit``, on a peer's disk."""

    def within_reach(self) -> int:
        """The last bucket of the checkpoint on this machine from which a failover would go on now:
        the own one, else the furthest of a peer; 0: there is none. Another process may run in it:
        nothing is changed.
        """

    def write(self, timeline: Timeline) -> None:
        """Make ``timeline`` the newest, durably."""

    def sync(self, name: str) -> None:
        """What is in the directory now survives a loss of power. Takes as long as the disk does:
        call it without a lock.

        Raises:
            Fenced, FileNotFoundError: a newer process has removed the directory (rule 21).
        """

    def clean(self, epoch: int, number: int = 0) -> None:
        """Remove directories and timeline files below timeline ``number`` of ``epoch``."""

    def remove(self, name: str) -> None:
        """Remove one directory, if it is there; its timeline file too, unless it is the newest."""


class ReplicaDisk(Checkpoints, Protocol):
    """``Checkpoints`` that an engine writes to."""

    def directory(self, name: str) -> Path:
        """Where the engine finds the directory."""

    def store(self, name: str) -> bool:
        """Write what is in the directory to the store of checkpoints, if there is one; whether
        another machine could go on from it now.

        Raises:
            Unavailable: the store is away, full, or denies it.
        """


class Disks(Protocol):
    """The disks of a node's processes."""

    def of(
        self, stage: str, process: str, others: Sequence[str], *, is_stored: bool
    ) -> ReplicaDisk:
        """That of one process of a stage.

        Args:
            stage: Its stage.
            process: Its id.
            others: Those of the stage's other processes, whose disks may be within reach.
            is_stored: Whether a store of checkpoints, if there is one, is of use to it.
        """


class KeptNumbers(Protocol):
    """The numbers that an auditor has drawn and not revealed yet. Not thread-safe."""

    def of(self, movement_id: str) -> tuple[bytes, ...]:
        """Those of a movement, the oldest first."""

    def keep(self, movement_id: str, numbers: Sequence[bytes]) -> None:
        """These of a movement, and no others. Durable when it returns.

        Raises:
            OSError: they cannot be written.
        """


class BatchStart(Protocol):
    """A batch that is about to run."""

    @property
    def kind(self) -> BoundaryKind:
        """Stable, or a branch's."""

    @property
    def before(self) -> QueryPosition:
        """Where the batch before ended."""

    @property
    def after(self) -> QueryPosition:
        """Where this one ends."""

    @property
    def rows(self) -> int:
        """Rows that it reads."""


@dataclass(frozen=True, slots=True)
class BatchDone:
    """What a batch did, for status and metrics."""

    batch: int
    start: BatchStart
    rows_out: int
    seconds: float


class QueryDriver(Protocol):
    """Decides what a query runs, and records what it made. The engine calls it in threads of
    its own, for one batch of a query at a time.
    """

    def advance(self, query: str, name: str, start: Offset) -> Offset | None:
        """What input ``name`` of ``query`` runs after the offset ``start``: the same offset at
        every further call. None: nothing yet.
        """

    def begin(
        self, query: str, offsets: list[Offset], watermark_ms: int, before: QueryPosition
    ) -> BatchStart:
        """A batch is in the query's log and about to run, or to run again after a crash."""

    def finish(self, query: str, batch: int, parts: tuple[Part, ...]) -> bool:
        """Its results are written as ``parts``. The engine commits the batch when this has
        returned, and not before.
        """


class RunningQuery(Protocol):
    """A query that was started."""

    def ended(self, wait_ms: int) -> bool:
        """Whether it ended by itself; waits up to ``wait_ms`` for that.

        Raises:
            Exception: what it died of: the driver's own error, StageFunctionError where the stage's
                function failed, DataMissing where input is gone, else what the engine raised.
        """

    def stop(self) -> None:
        """Wait a while for the end of the batch that runs, then stop within it, which is
        safe. Idempotent, and raises nothing.
        """


@dataclass(frozen=True, slots=True)
class QueryOutput:
    """Who writes the results of a query."""

    replica: str
    epoch: int
    only: frozenset[int] | None = None
    """Of the results only those of these buckets are written: a query that begins long before
    what is wanted makes more. None: all.
    """
    is_written: bool = True
    """Else no block is written, and the parts say rows and digests alone."""


class PreparedStage(Protocol):
    """A stage's function, built and judged for one replica; its queries can be started."""

    @property
    def traits(self) -> PlanTraits:
        """What its plan allows."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows that it gives: the columns, then the time as int64 ms."""

    @property
    def fingerprint(self) -> str:
        """Of everything that its results depend on besides the input."""

    def start(
        self,
        query: str,
        driver: QueryDriver,
        output: QueryOutput,
        place: str | None,
        done: Callable[[BatchDone], None],
    ) -> RunningQuery:
        """Run the function in batches for ever.

        For each in this order: ask the driver for a plan, until all inputs have one; log it;
        ``begin``; read exactly what it names; run under the plan's own boundary as the watermark;
        write blocks; ``finish``; commit. ``done`` gets it, before or after the commit. A plan
        that is logged and not committed is run again, without a question, when a query is started
        in the same place.

        Args:
            query: Its name; no other query of the replica has it while it runs.
            driver: Says what it runs.
            output: As whom it writes.
            place: Of its checkpoint, the directory of its timeline; None: one of its own, which
                ends with it.
            done: Gets each batch that is recorded.
        """

    def close(self) -> None:
        """Forget it, after its queries have stopped. Idempotent."""


class Engine(Protocol):
    """Runs stages' functions over planned batches, with state and checkpoints. Thread-safe."""

    rows_max: int
    """Rows from which on a batch takes no further bucket."""
    pace_ms: int
    """Least time between the starts of two batches of a query."""

    def prepare(self, label: str, stage: str, schemas: Mapping[str, pa.Schema]) -> PreparedStage:
        """Build and judge the function of ``stage`` for the replica ``label``. ``schemas``: of the
        rows of each input.

        Raises:
            StageFunctionError: the function raised, or its result cannot be run.
            ConfigurationError: it cannot be imported.
        """

    def check(self) -> None:
        """Raises EngineEnded where the engine has ended, and all queries with it."""

    def close(self) -> None:
        """End it. Idempotent."""


class Clock(Protocol):
    """Time, as an argument."""

    def now_ms(self) -> int:
        """Wall clock: for lag, heartbeats and the `max_ahead` guard."""

    def monotonic_ms(self) -> int:
        """For waits and time-outs."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Wait."""


class Entropy(Protocol):
    """Randomness, as an argument."""

    def token(self) -> str:
        """16 lower-case hexadecimal digits."""
