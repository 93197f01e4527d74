"""A replica whose batches take time: rows arrive at a given rate, each costs processor time, and
the queries share one core, or its only task slot. Everything is in memory and on a clock of its
own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import HOP_MS
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord
from anabranch.protocol.stage.availability import Waits
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.planner import Plan
from anabranch.protocol.stage.shared_cores import SharedCores
from anabranch.protocol.stage.shed_choice import Limits, ShedChoice, StageDemand
from anabranch.protocol.stage.utility import Curve, ShownLoss, StageLoad
from harness.replica_bench import Bench, Settings, part

WIDTH_MS = 500
WAITS = Waits(first_ms=3_100, next_ms=800)
TICK_MS = 50
START_MS = 500
"""Time from the order to start a successor to its first request, in ms."""

Load = Callable[[int], float]
"""Rows per second that arrive at a time in ms."""
Keys = Callable[[int, int], int]
"""(rows, per mille of the keys) -> number of the rows that these keys have."""


@dataclass
class Job:
    """Running batch of a query: the work that is left, in ms of the core."""

    plan: Plan
    left_ms: float
    rows: int
    """Number of rows that it processes."""


@dataclass
class Cost:
    """Cost of batches, in ms of the core."""

    fixed_ms: float = 100.0
    row_ms: float = 1.0
    slow: dict[int, float] = field(default_factory=dict)
    """Additional work of single batches, by their number."""
    bucket_ms: float = 0.0
    """Cost of each bucket with rows, however many it has."""
    noise: Callable[[int], float] = lambda number: 1.0
    """Factor of a batch's work, by its number."""


class LoadBench:
    """One replica under load."""

    def __init__(
        self, load: Load, cost: Cost | None = None, settings: Settings | None = None
    ) -> None:
        self.bench = Bench(
            "a",
            settings or Settings(width_ms=WIDTH_MS, waits=WAITS, rows_max=100_000, sheds=True),
        )
        self.load, self.cost = load, cost or Cost()
        self._has_one_task = (settings or Settings()).has_one_task
        self.waits = (settings or Settings(waits=WAITS)).waits
        self.rows: dict[int, int] = {}
        """Rows of each bucket."""
        self.first_sign: dict[int, int] = {}
        self.shown: dict[int, int] = {}
        """Time at which each bucket was first shown."""
        self.stable: dict[int, int] = {}
        """Time at which each bucket was closed by the stable query."""
        self.kept: list[tuple[int, int]] = []
        """Time and share of each tentative batch."""
        self.keys: Keys | None = None
        """Rows that a stage which keeps whole keys processes."""
        self.processed: list[tuple[int, int, int]] = []
        """Time, rows, and rows that were kept of each tentative batch."""
        self.events: list[tuple[int, str]] = []
        self._jobs: dict[str, Job] = {}
        self._starts: dict[str, int] = {}
        """Time from which each successor asks."""
        self._batches = 0
        self._carried = 0.0
        self.neighbours: list[LoadBench] = [self]
        """Replicas that share the core, this one included."""
        self.cores = SharedCores(1)
        """Measurement of the core, one for all neighbours."""
        self.stage = "a"
        """Name of the stage on its node."""
        self.is_silent = False
        """Whether the input is missing; its buckets come when it is back."""
        self.held_at: int | None = None
        """Last bucket that the input has closed, while it sends rows but closes nothing."""
        self._owed: list[int] = []

    @property
    def now_ms(self) -> int:
        """Time of the bench."""
        return self.bench.now_ms

    def run(self, until_ms: int) -> None:
        """Let time pass."""
        while self.now_ms < until_ms:
            self.tick()

    def halt(self, until_ms: int) -> None:
        """Let time pass in which rows arrive, and the process is not there yet."""
        while self.now_ms < until_ms:
            self.bench.now_ms += TICK_MS
            self._arrive()
        self.first_sign.clear()

    def fail(self, cause: Exception) -> None:
        """Let the branch fail."""
        branch = self.bench.replica.abandon(self.now_ms, cause)
        assert branch is not None
        self.bench.positions.pop(branch)
        self._drop_job(branch)
        for successor in self._starts:
            self._starts[successor] = self.now_ms

    def _drop_job(self, query: str) -> None:
        self._jobs.pop(query, None)
        self.cores.ended(self.stage, query, self.now_ms)

    def position_at(self, at_ms: int) -> int:
        """Return the last bucket that the stable query had closed at ``at_ms``."""
        return max((bucket for bucket, ms in self.stable.items() if ms <= at_ms), default=0)

    def _arrive(self) -> None:
        bench = self.bench
        if bench.now_ms % WIDTH_MS:
            return
        bucket = bench.now_ms // WIDTH_MS
        self._carried += self.load(bench.now_ms) * WIDTH_MS / 1_000
        self.rows[bucket], self._carried = int(self._carried), self._carried % 1
        self._owed.append(bucket)
        if self.is_silent:
            return
        parts = [part(owed, self.rows[owed]) for owed in self._owed if self.rows[owed]]
        self._owed.clear()
        for stream in bench.streams.values():
            closed = bucket if self.held_at is None else self.held_at
            stream.record(closed, parts, past=bucket)
        self.first_sign[bucket + 1] = bench.now_ms

    def tick(self) -> None:
        """Let one tick pass."""
        bench = self.bench
        bench.now_ms += TICK_MS
        self._arrive()
        bench.look()
        share_ms = TICK_MS / max(1, sum(len(each._jobs) for each in self.neighbours))
        working = list(self._jobs.items())
        if self._has_one_task:  # the others wait until the first one has ended
            share_ms, working = TICK_MS, working[:1]
        for query, job in working:
            job.left_ms -= share_ms
            if job.left_ms <= 0:
                del self._jobs[query]
                used_ms = self.cores.ended(self.stage, query, self.now_ms)
                rows = job.rows
                if self.keys is not None and job.plan.kept < KEPT_ALL:
                    bench.replica.processed(query, rows)
                bench.replica.used(query, rows, used_ms)
                self._ended(query, job.plan)
        for query in list(bench.positions):
            if query in bench.positions and query not in self._jobs and self._has_started(query):
                self._ask(query)

    def _has_started(self, query: str) -> bool:
        bench = self.bench
        if query not in self._starts:
            return True
        if self._starts[query] < 0 and bench.replica.successor_due(
            bench.now_ms, bench.streams["a"].log_state.upto
        ):
            self._starts[query] = bench.now_ms + START_MS
        return 0 <= self._starts[query] <= bench.now_ms

    def _ask(self, query: str) -> None:
        bench = self.bench
        dropped = len(bench.dropped)
        decision = bench.decide(query)
        for name in bench.dropped[dropped:]:
            self._drop_job(name)
            self.events.append((bench.now_ms, "ends"))
        if decision.fork:
            successor = bench.replica.forks()
            old = bench.replica.forked(bench.positions[query], bench.now_ms)
            bench.positions[successor] = bench.positions[query]
            self._starts[successor] = -1
            self.events.append((bench.now_ms, "forks"))
            if old is not None:
                bench.positions.pop(old)
                self._drop_job(old)
            decision = bench.decide(query)
        if decision.plan is not None:
            self._begins(query, decision.plan)

    def _begins(self, query: str, plan: Plan) -> None:
        rows = plan.rows * plan.kept // KEPT_ALL
        if self.keys is not None and plan.kept < KEPT_ALL:
            rows = self.keys(plan.rows, plan.kept)
        work_ms = self.cost.fixed_ms + rows * self.cost.row_ms
        buckets = {bucket for _, taken in plan.inputs for bucket, _, _ in taken}
        work_ms = (work_ms + len(buckets) * self.cost.bucket_ms) * self.cost.noise(self._batches)
        if plan.rows:
            self._batches += 1
            work_ms += self.cost.slow.get(self._batches, 0.0)
        self._jobs[query] = Job(plan, work_ms, rows)
        self.bench.ran.append((query, plan))
        self.cores.began(self.stage, query, self.now_ms)
        if plan.kind is BoundaryKind.TENTATIVE:
            self.kept.append((self.now_ms, plan.kept))
            if plan.rows:
                self.processed.append((self.now_ms, plan.rows, rows))

    def _ended(self, query: str, plan: Plan) -> None:
        bench = self.bench
        if query not in bench.positions:
            return
        bench.positions[query] = plan.after
        is_stable = plan.kind is BoundaryKind.STABLE
        for bucket in range(plan.before.bucket + 1, plan.after.bucket + 1):
            self.shown.setdefault(bucket, self.now_ms)
            if is_stable:
                self.stable[bucket] = self.now_ms
        if not is_stable:
            record = BoundaryRecord(
                "0",
                7,
                BatchId("b", plan.after.sequence),
                None,
                plan.after.bucket,
                tuple(part(bucket) for bucket in range(plan.after.bucket, plan.after.bucket + 1)),
            )
            bench.replica.shown(query, record, self.now_ms)

    # -- what is judged --

    @property
    def forks(self) -> list[int]:
        """Times of forks."""
        return [at_ms for at_ms, what in self.events if what == "forks"]

    @property
    def ends(self) -> list[int]:
        """Times at which branches ended."""
        return [at_ms for at_ms, what in self.events if what == "ends"]

    def late(self, more_ms: int = HOP_MS) -> dict[int, int]:
        """Return by how many ms each bucket that was shown too late, or not yet, is late."""
        found = {}
        for bucket, sign_ms in self.first_sign.items():
            due_ms = sign_ms + self.waits.first_ms + more_ms
            at_ms = self.shown.get(bucket, self.now_ms)
            if at_ms > due_ms:
                found[bucket] = at_ms - due_ms
        return found


class NodeBench:
    """Replicas of several stages that share one core, and the node's choice of those that leave out
    rows.
    """

    def __init__(self, stages: dict[str, tuple[LoadBench, Curve]], *, chooses: bool = True) -> None:
        self.stages = {name: bench for name, (bench, _) in stages.items()}
        self._curves = {name: curve for name, (_, curve) in stages.items()}
        self._choice = ShedChoice(1) if chooses else None
        self.limits: list[tuple[int, Limits]] = []
        """Time and content of each decision."""
        cores = SharedCores(1)
        for name, bench in self.stages.items():
            bench.stage, bench.cores = name, cores
            bench.neighbours = list(self.stages.values())

    def run(self, until_ms: int) -> None:
        """Let time pass."""
        benches = list(self.stages.values())
        while benches[0].now_ms < until_ms:
            for bench in benches:
                bench.tick()
            if benches[0].now_ms % 1_000 == 0 and self._choice is not None:
                self._decide(self._choice, benches[0].now_ms)

    def _decide(self, choice: ShedChoice, now_ms: int) -> None:
        demands = []
        for name, bench in self.stages.items():
            demand = bench.bench.replica.demand(now_ms)
            if demand is not None:
                load = StageLoad(name, demand.cpu_us, (ShownLoss(self._curves[name]),))
                demands.append(StageDemand(load, demand.is_late, demand.backlog))
        limits = choice.decide(now_ms, demands, 0)
        self.limits.append((now_ms, limits))
        for name, bench in self.stages.items():
            bench.bench.replica.limit(limits.of(name))
