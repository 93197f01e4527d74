"""What runs the query of a stage: Spark, or a stand-in for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.codec.plan_offsets import Offset
    from anabranch.protocol.log.records import BoundaryKind, Part
    from anabranch.protocol.stage.planner import PlanTraits, QueryPosition


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

    def advance(self, query: str, name: str, start: Offset, source: int = 0) -> Offset | None:
        """Return what input ``name`` of ``query`` runs after the offset ``start``, or None: nothing
        yet. Every further call returns the same offset.

        ``source``: number of the engine's source that asks. A function may use an input twice; the
        engine then has a source for each use, which differ by this number and take the same plan.
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
    waiting_for: str | None
    """What it cannot run any query without, for people, as the last ``check`` found; None: it has
    all that it needs.
    """

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


@dataclass(frozen=True, slots=True)
class StartingEngine:
    """One that has begun to start."""

    wait: Callable[[], Engine]
    """Until it has started; raises why it has not."""
    has_failed: Callable[[], bool] = lambda: False
    """Whether ``wait`` would raise at once."""
