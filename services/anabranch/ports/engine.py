"""Engine that runs the queries of stages: Spark, or a simulated one in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.codec.plan_offsets import Offset
    from anabranch.protocol.log.records import BoundaryKind, Part
    from anabranch.protocol.log.stateful_plan import StatefulPlan
    from anabranch.protocol.stage.planner import PlanTraits, QueryPosition


class BatchStart(Protocol):
    """Batch that is about to run."""

    @property
    def kind(self) -> BoundaryKind:
        """Kind of its records: stable, or of a branch."""

    @property
    def before(self) -> QueryPosition:
        """Position at which the batch before ended."""

    @property
    def after(self) -> QueryPosition:
        """Position at which this batch ends."""

    @property
    def rows(self) -> int:
        """Number of rows that it reads."""


@dataclass(frozen=True, slots=True)
class BatchDone:
    """Result of a batch, for status and metrics."""

    batch: int
    start: BatchStart
    rows_out: int
    """Number of rows that it wrote."""
    seconds: float
    """Duration of the batch, in s."""
    rejected: int = 0
    """Number of rows that were too large for a stream: it wrote notices of them."""


class QueryDriver(Protocol):
    """Planner and recorder of a query's batches. The engine calls it in threads of its own, for one
    batch of a query at a time.
    """

    def advance(self, query: str, name: str, start: Offset, source: int = 0) -> Offset | None:
        """Return the end of the next batch for input ``name`` of ``query``, which starts at the
        offset ``start``; None: there is no batch yet. Further calls for the same batch return the
        same offset.

        ``source``: number of the engine's source that calls. A function may use an input twice; the
        engine then has one source for each use, which differ in this number and follow the same
        plan.
        """

    def begin(
        self, query: str, offsets: list[Offset], watermark_ms: int, before: QueryPosition
    ) -> BatchStart:
        """Note that a batch is in the query's log and about to run, perhaps again after a crash;
        return it.
        """

    def finish(
        self, query: str, batch: int, parts: tuple[Part, ...], rows_read: int | None = None
    ) -> bool:
        """Record the batch, whose results are written as ``parts``. The engine commits the batch
        after this has returned, never before: a crash in between runs the batch again.

        ``rows_read``: number of rows that the function got, if the plan keeps whole keys, of which
        a share may have any number of the rows; None: the plan's share of the rows.
        """


class RunningQuery(Protocol):
    """Query that was started."""

    def ended(self, wait_ms: int) -> bool:
        """Return whether the query has ended by itself; wait up to ``wait_ms`` for it.

        Raises:
            Exception: the error that ended the query: the driver's own, StageFunctionError if the
                stage's function failed, DataMissing if input is gone, otherwise the engine's.
        """

    def stop(self) -> None:
        """Wait a while for the running batch to end, then stop the query within the batch, which is
        safe: it runs again. Idempotent, and never raises.
        """


@dataclass(frozen=True, slots=True)
class QueryOutput:
    """Identity under which a query writes its results."""

    replica: str
    epoch: int
    only: frozenset[int] | None = None
    """Buckets whose results are written; None: all. A query that starts long before the wanted
    buckets computes others too.
    """
    is_written: bool = True
    """Whether blocks are written. Otherwise the parts state only rows and digests."""


class PreparedStage(Protocol):
    """Function of a stage, built and analysed for one replica, whose queries can be started."""

    @property
    def traits(self) -> PlanTraits:
        """Traits of its plan, which decide how buckets may be batched."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of its results: the columns, then the event time as int64 ms."""

    @property
    def fingerprint(self) -> str:
        """Hash of everything that its results depend on besides the input."""

    @property
    def stateful_plan(self) -> StatefulPlan:
        """The operators of the function that hold state: what the state in a checkpoint means.
        Equal for all processes that build the same function.
        """

    def start(
        self,
        query: str,
        driver: QueryDriver,
        output: QueryOutput,
        place: str | None,
        done: Callable[[BatchDone], None],
    ) -> RunningQuery:
        """Start a query that runs the function in batches without end.

        Each batch runs in this order: ask the driver for a plan until all inputs have one; log it;
        ``begin``; read exactly what it names; run with the plan's own boundary as the watermark;
        write blocks; ``finish``; commit. ``done`` receives the batch before or after the commit. A
        plan that is logged but not committed runs again, without asking the driver, when a query is
        started in the same place.

        Args:
            query: Name of the query, unique among the replica's running ones.
            driver: Planner and recorder of the batches.
            output: Identity under which the query writes.
            place: Directory of its checkpoint, named by its timeline; None: a temporary one, which
                ends with the query.
            done: Receives each recorded batch.
        """

    def close(self) -> None:
        """Free its resources, after its queries have stopped. Idempotent."""


class Engine(Protocol):
    """Runner of stages' functions over planned batches, with state and checkpoints. Thread-safe."""

    rows_max: int
    """Number of rows from which a batch takes no further bucket."""
    pace_ms: int
    """Minimum time between the starts of two batches of a query, in ms."""
    cores: int
    """Number of tasks that it runs at once."""
    waiting_for: str | None
    """Resource without which it cannot run any query, for people, as of the last ``check``; None:
    nothing is missing.
    """

    def prepare(self, label: str, stage: str, schemas: Mapping[str, pa.Schema]) -> PreparedStage:
        """Build and analyse the function of ``stage`` for the replica ``label``. ``schemas``:
        schema of the rows of each input.

        Raises:
            StageFunctionError: the function raised, or its result cannot be run.
            ConfigurationError: the function cannot be imported.
        """

    def check(self) -> None:
        """Check that the engine runs.

        Raises:
            EngineEnded: the engine has ended, and all queries with it.
        """

    def close(self) -> None:
        """End the engine. Idempotent."""


@dataclass(frozen=True, slots=True)
class StartingEngine:
    """Engine that is starting."""

    wait: Callable[[], Engine]
    """Wait until it has started and return it; raises the error of a failed start."""
    has_failed: Callable[[], bool] = lambda: False
    """Return whether the start has failed, so that ``wait`` would raise at once."""
