"""The same sessions in virtual time: the project's own driver and rules of a replica, logs in
memory, and an engine whose batches only take time.

What is real: boundary records, log states, waits, plans, branch and successor
(``processing.replica``). What is modelled: a batch takes a fixed part and a part by rows, as
measured on real stages; the two queries of a replica share its cores; heartbeats arrive at once.
"""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.plan_offsets import INITIAL, Offset, position_of, rows_of, taken_of
from anabranch.pipeline.waits import policy, waits
from anabranch.ports import Reach
from anabranch.processing.replica import ReplicaRunner, StartQuery, StopQuery
from anabranch.processing.replica_environment import HostProcess, OnlySources
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import AnabranchError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BATCH_ROWS_MAX
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part
from anabranch.protocol.log.timeline import Timeline, newest, obsolete
from anabranch.protocol.stage.availability import Availability
from anabranch.protocol.stage.owners_checkpoint import Announced
from anabranch.protocol.stage.planner import PlanTraits
from anabranch.protocol.stage.replica import StageRules
from anabranch.protocol.stage.scheduling import BatchRules
from anabranch.protocol.stage.upstream_selection import choose
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from experiments.dpc.chain import (
    SOURCES,
    WITHHELD,
    create_topics,
    stage_names,
    write_pipeline,
)
from experiments.dpc.figures import AFTER_MS, Cut, death_figures, failure_figures
from experiments.dpc.plan import RATE, Session
from experiments.dpc.results import SessionResult
from experiments.dpc.sources import KEYS, Withhold
from experiments.dpc.watch import Sum, Watch, Windows, check_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog

TICK_MS: Final = 20
SETTLED_MS: Final = 4_000
DONE_MS: Final = 240_000


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of the engine, in milliseconds of one core. The defaults were measured on two cores."""

    batch_ms: float = 150
    rows_ms: float = 0.003
    """Cost of each tuple."""
    start_ms: float = 1_500
    """Cost of starting the successor."""
    cores: float = 2
    """Cores of each node: in the published runs every node had a machine of its own. With
    ``is_shared``, cores of all nodes together.
    """
    is_shared: bool = False
    pace_ms: int = 0
    """Shortest time between the starts of two batches of a query."""
    keeps_slots: bool = True
    """Whether stages that read a stage keep their slots, as they do (BP6)."""
    spread: tuple[float, ...] = (1.0,)
    """Factors by which single batches take longer, or less long, each as often as the others."""

    @property
    def capacity(self) -> float:
        """Tuples/s of a query that has a backlog."""
        return 1000 * BATCH_ROWS_MAX / (self.batch_ms + BATCH_ROWS_MAX * self.rows_ms)


@dataclass
class _Directory:
    """A checkpoint directory: offsets by batch, the last one committed, windows that are open."""

    logged: dict[int, list[Offset]] = field(default_factory=dict)
    committed: int = -1
    windows: set[int] = field(default_factory=set)


class _Disk:
    """``ports.Checkpoints`` in memory."""

    def __init__(self) -> None:
        self.directories: dict[str, _Directory] = {}
        self._timelines: dict[str, Timeline] = {}

    def newest(self) -> Timeline | None:
        name = newest(self._timelines)
        return None if name is None else self._timelines[name]

    def create(self, name: str) -> None:
        self.directories[name] = _Directory()

    def copy(self, source: str, target: str) -> None:
        self.directories[target] = deepcopy(self.directories[source])

    def last_commit(self, name: str) -> int:
        return self.directories[name].committed

    def batches(self, name: str) -> list[int]:
        return [self.directories[name].committed]

    def whole(self, name: str, batches: Sequence[int]) -> int | None:
        del name
        return next(iter(batches), None)

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        """Nothing is ever damaged here."""

    def bucket(self, name: str, batch: int) -> int:
        return 0 if batch < 0 else int(self.directories[name].logged[batch][0]["bucket"])

    def peers(self) -> tuple[()]:
        return ()

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        del replica, source, target
        return False

    def peer_commit(self, replica: str, name: str) -> tuple[int, int]:
        del replica, name
        return -1, 0

    has_store = False

    def within_reach(self) -> Reach:
        """Nobody stands by."""
        return Reach(0)

    announces = ""

    def fetch(self, announced: Announced | None = None) -> None:
        """Nothing is stored."""

    def write(self, timeline: Timeline) -> None:
        self._timelines[timeline.name] = timeline

    def sync(self, name: str) -> None:
        """Nothing is ever lost here."""

    def clean(self, epoch: int, number: int = 0) -> None:
        for name in obsolete(self.directories, epoch, number):
            del self.directories[name]

    def remove(self, name: str) -> None:
        self.directories.pop(name, None)


@dataclass
class _Query:
    """A query, and what it has left to do."""

    work_ms: float = 0.0
    """Remaining work of the running batch, or of its start."""
    offsets: list[Offset] | None = None
    """Offsets of the running batch."""


class _Replica:
    """One process of one replica."""

    def __init__(self, world: VirtualSession, stage: str, replica: str, seed: int) -> None:
        pipeline = world.pipeline
        log = world.log
        clock = world.clock
        self.stage = stage
        self.name = replica
        self._world = world
        self.reads = pipeline.stages[stage].reads
        self.is_stateful = world.session.function == "windowed" and stage == stage_names(1)[0]
        names = pipeline.topic_names
        self._inputs = {
            s: BoundaryReader(log, names.boundaries(s), pipeline.stream_writers(s))
            for s in self.reads
        }
        self._disk = _Disk()
        self.availability = world.availability(stage, self.reads)
        boundary = BoundaryWriter(
            log,
            names.boundaries(stage),
            pipeline.stream_writers(stage),
            EpochStarted(replica, "f", SeededEntropy(seed).token()),
            clock,
        )
        self.runner = ReplicaRunner(
            self._inputs,
            boundary,
            self._disk,
            StageRules(
                PlanTraits(is_stateful=self.is_stateful, is_batch_safe=True),
                self.availability,
                BatchRules(
                    world.session.width_ms,
                    pace_ms=world.costs.pace_ms,
                    reads_stages=world.costs.keeps_slots and self._reads_stages(),
                ),
            ),
            HostProcess(clock, may_wait=False),
            _Upstream(world),
        )
        self._attempts = 0
        self._spread = random.Random(seed)
        self.queries: dict[str, _Query] = {self.runner.fail_over(): _Query()}

    def _reads_stages(self) -> bool:
        return self.stage != stage_names(1)[0]

    @property
    def batches(self) -> int:
        """Number of batches that have ended."""
        return self._attempts

    def running(self) -> list[_Query]:
        """Return the queries that occupy a core now."""
        return [query for query in self.queries.values() if query.work_ms > 0]

    def step(self) -> None:
        """Follow the logs, carry out orders, end batches whose time is over, begin new ones."""
        self.runner.tick()
        self._carry_out()
        for name in list(self.queries):
            query = self.queries.get(name)
            if query is None or query.work_ms > 0:
                continue
            if query.offsets is not None:
                self._end_batch(name, query)
                self._carry_out()
            if name in self.queries:
                self._ask(name, query)
                self._carry_out()

    def _carry_out(self) -> None:
        for order in self.runner.orders():
            if isinstance(order, StartQuery):
                self.queries[order.timeline] = _Query(work_ms=self._world.costs.start_ms)
            elif isinstance(order, StopQuery):
                self.queries.pop(order.timeline, None)
                self.runner.stopped(order.timeline)

    def _before(self, name: str) -> list[Offset]:
        directory = self._disk.directories[name]
        return (
            directory.logged[directory.committed]
            if directory.committed >= 0
            else [dict(INITIAL) for _ in self.reads]
        )

    def _ask(self, name: str, query: _Query) -> None:
        found: list[Offset] = []
        for stream, start in zip(self.reads, self._before(name), strict=True):
            answer = self.runner.advance(name, stream, start)
            if answer is None:
                return
            found.append(answer)
        query.offsets = found
        costs = self._world.costs
        query.work_ms = costs.batch_ms + costs.rows_ms * rows_of(found)
        query.work_ms *= self._spread.choice(costs.spread)

    def _end_batch(self, name: str, query: _Query) -> None:
        offsets, query.offsets = query.offsets or [], None
        directory, before = self._disk.directories[name], position_of(self._before(name)[0])
        watermark_ms = position_of(offsets[0]).bucket * self._world.session.width_ms
        start = self.runner.begin(name, offsets, watermark_ms, before)
        parts, windows = self._run(offsets, directory.windows, start.after.bucket)
        batch = directory.committed + 1
        self.runner.finish(name, batch, parts)
        directory.logged = {batch: offsets}
        directory.committed, directory.windows = batch, windows

    def _run(
        self, offsets: list[Offset], windows: set[int], watermark: int
    ) -> tuple[tuple[Part, ...], set[int]]:
        """(results, open windows afterwards)."""
        read: dict[int, tuple[int, int]] = {}
        for offset in offsets:
            for bucket, _, parts in taken_of(offset):
                rows, digest = read.get(bucket, (0, 0))
                read[bucket] = (
                    rows + sum(p.rows for p in parts),
                    digest + sum(p.digest for p in parts),
                )
        self._attempts += 1
        if self.is_stateful:
            windows = windows | {bucket + bucket % 2 for bucket in read}
            given = {bucket: (KEYS, 0) for bucket in windows if bucket <= watermark}
            windows = {bucket for bucket in windows if bucket > watermark}
        else:
            given = read
        attempt = f"{self.runner.epoch}-{self._attempts}"
        return tuple(
            virtual_part(b, attempt, rows, digest % 2**64)
            for b, (rows, digest) in sorted(given.items())
        ), windows


class _Upstream(OnlySources):
    """States of the session's replicas, which each replica reads at once."""

    def __init__(self, world: VirtualSession) -> None:
        """Keep the session."""
        self._world = world
        self._chosen: dict[str, str | None] = {}

    @override
    def states(self, stream: str) -> Mapping[str, ReplicaState]:
        return {r.name: r.runner.state for r in self._world.replicas if r.stage == stream}

    @override
    def choose(self, stream: str, offers: Mapping[str, int]) -> str | None:
        self._chosen[stream] = choose(self._chosen.get(stream), self.states(stream), offers)
        return self._chosen[stream]


def virtual_part(bucket: int, attempt: str, rows: int, digest: int) -> Part:
    """Return a part whose blocks are never read."""
    return Part(bucket, 0, attempt, 1, bucket, bucket + 1, rows, digest)


class _Source:
    """A source on its schedule: a bucket is due at its end."""

    def __init__(
        self,
        log: EventLog,
        pipeline: Pipeline,
        name: str,
        clock: VirtualClock,
        rows: int,
        withhold: Withhold,
    ) -> None:
        self._writer = BoundaryWriter(
            log,
            pipeline.topic_names.boundaries(name),
            ["0"],
            EpochStarted("0", "f", SeededEntropy(len(name)).token()),
            clock,
        )
        self._writer.start()
        self._rows = rows
        self._withhold = withhold
        self._batch = 0
        self._number = SOURCES.index(name) + 1
        self.is_cut = False
        self.written = self.closed = 0
        self.sums: dict[int, tuple[int, int]] = {}

    def step(self, due: int) -> None:
        """Write what is due."""
        if self.is_cut and self._withhold is Withhold.DATA:
            return
        if due == self.written and (self.is_cut or due == self.closed):
            return
        for bucket in range(self.written + 1, due + 1):
            self.sums[bucket] = self._rows, bucket * 1_000_003 * self._number
        self._batch += 1
        parts = tuple(
            virtual_part(b, str(self._batch), *self.sums[b])
            for b in range(self.written + 1, due + 1)
        )
        self.written, self.closed = due, self.closed if self.is_cut else due
        ident = BatchId("source", self._batch)
        self._writer.append(
            BoundaryRecord("0", self._writer.epoch, ident, self._writer.tip(), self.closed, parts)
        )


class VirtualSession:
    """A session in virtual time. ``run`` once."""

    def __init__(
        self,
        session: Session,
        folder: Path,
        costs: Costs,
        *,
        withhold: Withhold = Withhold.BOUNDARY,
    ) -> None:
        self.session, self.costs = session, costs
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        self.result = SessionResult(session)
        self.pipeline = write_pipeline(folder, f"{session.name}-virtual", session)
        create_topics(self.log, self.pipeline)
        rate = RATE
        if session.load:
            self.result.capacity = int(costs.capacity)
            rate = int(session.load * costs.capacity / len(SOURCES))
        rows = max(1, rate * session.width_ms // 1000)
        self._sources = {
            name: _Source(self.log, self.pipeline, name, self.clock, rows, withhold)
            for name in SOURCES
        }
        self.replicas = [
            _Replica(self, stage, replica, 100 * number + int(replica))
            for number, stage in enumerate(self.pipeline.order())
            for replica in self.pipeline.stream_writers(stage)
        ]
        self._watches = [
            Watch(self.log, self.pipeline, s, self.clock.monotonic_ms)
            for s in stage_names(session.nodes)
        ]
        self._begin_ms = self.clock.monotonic_ms()
        self.result.rate = rows * 1000 * len(SOURCES) // session.width_ms
        self.result.waits_ms = [
            waits(self.pipeline, stage).first_ms for stage in self.pipeline.order()
        ]

    def availability(self, stage: str, reads: Sequence[str]) -> Availability:
        """Return the rules by which a replica of ``stage`` continues without some input."""
        return Availability(reads, waits(self.pipeline, stage), policy(self.pipeline, stage))

    def run(self) -> SessionResult:
        """Run it."""
        result = self.result
        try:
            self._pass(SETTLED_MS + 1_000)
            for seconds in self.session.failures_s:
                self._fail(seconds)
            for number in range(self.session.deaths):
                self._die(str(number))
            self._refresh()
            result.measure_normal(SETTLED_MS)
            result.compared, result.wrong = check_answer(
                self._watches[-1], [s.sums for s in self._sources.values()], self._windows()
            )
        except AnabranchError as error:
            result.error = str(error)
        self._refresh()
        result.seconds = self.clock.monotonic_ms() / 1000
        return result

    def calm(self, ms: int) -> None:
        """Run it for ``ms`` without a failure, and judge its results."""
        self._catch_up(ms)
        self._refresh()
        self.result.measure_normal(ms)
        self.result.compared, self.result.wrong = check_answer(
            self._watches[-1], [s.sums for s in self._sources.values()], self._windows()
        )

    def _windows(self) -> Windows | None:
        return (
            (lambda _bucket, counts: Sum(KEYS if counts else 0, 0))
            if self.session.function == "windowed"
            else None
        )

    def _fail(self, seconds: float) -> None:
        source = self._sources[WITHHELD]
        self._pass(SETTLED_MS)
        source.is_cut = True
        bucket, at_ms = source.closed + 1, self.clock.monotonic_ms()
        self._pass(round(seconds * 1000))
        source.is_cut = False
        cut, healed = Cut(bucket, at_ms, self.clock.monotonic_ms()), self._due()
        self.result.cuts.append(cut)
        try:
            self._until(
                lambda: all(w.upto >= max(healed, w.tentative_upto) for w in self._watches),
                "the corrections",
            )
            self._until(
                lambda: all(r.runner.branch is None for r in self.replicas),
                "the end of the branches",
            )
            self._catch_up(AFTER_MS)
        finally:
            self._refresh()
            self.result.failed([failure_figures(watch.trace, cut) for watch in self._watches])

    def _catch_up(self, after_ms: int) -> None:
        """Let so much time pass, and more until everything that is due by then has come out
        at the end.
        """
        self._pass(after_ms)
        due = self._due()
        self._until(lambda: self._watches[-1].upto >= due, "results of what is due")

    def _die(self, replica: str) -> None:
        self._pass(SETTLED_MS)
        at_ms = self.clock.monotonic_ms()
        dead = [r for r in self.replicas if r.name == replica]
        self.replicas = [r for r in self.replicas if r.name != replica]
        self._catch_up(5_000)
        self._refresh()
        self.result.deaths.append(death_figures(self._watches[-1].trace, at_ms))
        self.replicas += [_Replica(self, r.stage, r.name, 1_000 + int(replica)) for r in dead]
        self._pass(10_000)

    def _refresh(self) -> None:
        for watch in self._watches:
            upto = watch.trace.events[-1].closed if watch.trace.events else 0
            watch.trace.due_ms = {
                b: self._begin_ms + b * self.session.width_ms
                for b in range(1, max(upto, self._due()) + 1)
            }
        self.result.traces = [watch.trace for watch in self._watches]

    def _due(self) -> int:
        return (self.clock.monotonic_ms() - self._begin_ms) // self.session.width_ms

    def _pass(self, ms: int) -> None:
        end = self.clock.monotonic_ms() + ms
        while self.clock.monotonic_ms() < end:
            self.tick()

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        end = self.clock.monotonic_ms() + DONE_MS
        while not condition():
            if self.clock.monotonic_ms() > end:
                raise AnabranchError(f"not within {DONE_MS // 1000} s: {what}")
            self.tick()

    def tick(self) -> None:
        """Let ``TICK_MS`` pass."""
        groups = (
            [self.replicas] if self.costs.is_shared else [[replica] for replica in self.replicas]
        )
        for group in groups:
            running = [query for replica in group for query in replica.running()]
            for query in running:
                query.work_ms -= TICK_MS * min(1.0, self.costs.cores / len(running))
        self.clock.advance(TICK_MS)
        due = self._due()
        for source in self._sources.values():
            source.step(due)
        for replica in self.replicas:
            replica.step()
        for watch in self._watches:
            watch.poll()
