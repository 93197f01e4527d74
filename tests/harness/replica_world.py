"""A stage in memory: boundary logs, checkpoint directories, and processes with a ``ReplicaRunner``
and a small engine.

The engine does what Spark does around a batch: it logs the offsets, runs, writes, commits, and
after a crash runs a logged batch again. Its operator gives every row at once, and another one for
each with a later event time; and for each bucket with rows a result in the bucket after it, when
the time of that has passed (if ``traits`` are stateful). So parts are pending, and a bucket that is
run twice or left out shows in the rows of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from typing_extensions import override

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec import boundary_records
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.plan_offsets import INITIAL, Offset, position_fields, position_of, taken_of
from anabranch.ports import Checkpoints, TopicPartition
from anabranch.processing.replica import Order, ReplicaRunner, StartQuery, StopQuery
from anabranch.processing.replica_environment import HostProcess, Upstream
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import Fenced, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    GivenUp,
    LogEntry,
    Part,
)
from anabranch.protocol.stage.availability import OWN, Availability, Policy, Waits
from anabranch.protocol.stage.planner import PlanTraits, QueryPosition
from anabranch.protocol.stage.replica import StageRules
from anabranch.protocol.stage.scheduling import BatchRules
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from harness.replica_bench import STATELESS, WAITS, WIDTH_MS, part
from simulation.disk import Logged, Machine, SimulatedDisk, State

OUT = "out"
LATE = 1_000
"""Rows of the result that a stateful stage gives when the time of the bucket after one with
rows has passed.
"""
AHEAD, AHEAD_ROWS = 3, 100
"""For each row so many rows, so many buckets later."""
_TICK_MS = 100


def rows_read(offsets: Iterable[Offset]) -> dict[int, int]:
    """Return the rows that a batch with these offsets reads, by bucket."""
    read: dict[int, int] = {}
    for offset in offsets:
        for bucket, _, taken in taken_of(offset):
            read[bucket] = read.get(bucket, 0) + sum(p.rows for p in taken)
    return read


def operate(
    read: Mapping[int, int], waiting: Mapping[int, int] | None, watermark: int, attempt: str
) -> tuple[tuple[Part, ...], dict[int, int]]:
    """Run the operator on a batch; return its parts and its state afterwards.

    Args:
        read: Rows that the batch reads, by bucket.
        waiting: State before: rows whose late result is due at the end of a bucket, by that
            bucket; None if the stage has no state.
        watermark: Bucket up to which results are due.
        attempt: Writer of the parts.
    """
    given = [
        (bucket + after, rows * times)
        for bucket, rows in read.items()
        if rows
        for after, times in ((0, 1), (AHEAD, AHEAD_ROWS))
    ]
    left: dict[int, int] = {}
    if waiting is not None:
        waiting = {**waiting, **{bucket + 1: rows for bucket, rows in read.items()}}
        given += [(end, LATE) for end in waiting if end <= watermark]
        left = {end: rows for end, rows in sorted(waiting.items()) if end > watermark}
    parts = tuple(
        Part(bucket, 0, attempt, 1, 10 * i, 10 * i + 1, rows, 0)
        for i, (bucket, rows) in enumerate(given)
    )
    return parts, left


def expected_rows(read: Mapping[int, int], upto: int, *, is_stateful: bool) -> dict[int, int]:
    """Return the rows of each bucket of the output up to ``upto``, where ``read`` is what the
    inputs have.
    """
    late = LATE if is_stateful else 0
    found: dict[int, int] = {}
    for bucket, rows in read.items():
        for after, much in ((0, rows), (1, late), (AHEAD, rows * AHEAD_ROWS)):
            if much:
                found[bucket + after] = found.get(bucket + after, 0) + much
    return {bucket: rows for bucket, rows in sorted(found.items()) if bucket <= upto}


def stable_rows(log_state: LogState) -> dict[int, int]:
    """Return the rows of each stable bucket."""
    if not log_state.upto:
        return {}
    return {
        bucket: sum(p.rows for p in parts)
        for bucket, _, parts in log_state.stable(1, log_state.upto)
    }


class _Points:
    """Around a disk, as one process sees it: before every step, and after a timeline is written,
    is a point where the process may crash.
    """

    def __init__(self, disk: Checkpoints, point: Callable[[str], None]) -> None:
        self._disk, self._point = disk, point

    def __getattr__(self, step: str) -> Callable[..., object]:
        def taken(*arguments: object, **options: object) -> object:
            self._point(step)
            answer = getattr(self._disk, step)(*arguments, **options)
            if step == "write":
                self._point("written")
            return answer

        return taken


class World:
    """Inputs, output, disk and clock. What happens in it is said by its methods; processes
    are started in it.
    """

    def __init__(
        self,
        names: str = "ab",
        traits: PlanTraits = STATELESS,
        policy: Policy = Policy.PROCESS,
        rows_max: int = 1_000,
        width_ms: int = WIDTH_MS,
        waits: Waits = WAITS,
        elsewhere: str = "",
    ) -> None:
        """``elsewhere``: the inputs that are on other clusters."""
        self.names, self.elsewhere = names, elsewhere
        self.cut: set[str] = set()
        """Inputs whose cluster does not answer; OWN: the own one."""
        self.traits = traits
        self.policy = policy
        self.rows_max = rows_max
        self.width_ms, self.waits = width_ms, waits
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        self.log.admin().create([TopicSettings(name, 1) for name in (*names, OUT)])
        self.machine = Machine()
        self.disk = SimulatedDisk(self.machine)
        self.rows: dict[int, int] = {}
        """Rows of all inputs by bucket, from which the output must be computed."""
        self._writers = {
            n: BoundaryWriter(
                self.log, n, ["0"], EpochStarted("0", "f", SeededEntropy(i).token()), self.clock
            )
            for i, n in enumerate(names)
        }
        self._batches = dict.fromkeys(names, 0)
        self._branches = 0
        self._started = 100
        for writer in self._writers.values():
            writer.start()

    def close(self, name: str, upto: int, *filled: int, given_up: tuple[GivenUp, ...] = ()) -> None:
        """Input ``name`` becomes complete up to ``upto``; the buckets ``filled`` get a row.
        ``given_up``: by an operator.
        """
        writer, self._batches[name] = self._writers[name], self._batches[name] + 1
        for bucket in filled:
            self.rows[bucket] = self.rows.get(bucket, 0) + 1
        parts = tuple(part(bucket) for bucket in filled)
        writer.append(
            BoundaryRecord(
                "0",
                writer.epoch,
                BatchId("l", self._batches[name]),
                writer.tip(),
                upto,
                parts,
                given_up=given_up,
            )
        )

    def branch(self, name: str, upto: int, shed: int = 0) -> None:
        """Begin a branch of the writer of input ``name``, which closes up to ``upto`` and leaves
        out ``shed`` per mille of its rows.
        """
        writer, self._branches = self._writers[name], self._branches + 1
        record = BoundaryRecord(
            "0",
            writer.epoch,
            BatchId(f"branch {self._branches}", 0),
            writer.tip(),
            upto,
            base=writer.log_state.closed("0"),
            kind=BoundaryKind.TENTATIVE,
            branch=(writer.epoch, self._branches),
            shed=shed,
        )
        writer.append(record)

    def end_branch(self, name: str) -> None:
        """End that branch."""
        writer = self._writers[name]
        writer.append_other(BranchEnded("0", writer.epoch, self._branches))

    def start(
        self, point: Callable[[str], None] = lambda _: None, upstream: Upstream | None = None
    ) -> Process:
        self._started += 1
        return Process(self, point, upstream, self._started)

    def offsets(self, query: str, back: int = 0) -> list[Offset]:
        """Return the offset of every input at which the last committed batch of ``query`` ended, or
        one so many before.
        """
        directory = self.disk.opened(query)
        batch = directory.last_commit - back
        if batch < 0:
            return [dict(INITIAL) for _ in self.names]
        return [directory.logged[batch].offsets[name] for name in self.names]

    def position(self, query: str) -> QueryPosition:
        """Return the position at which that batch ended."""
        return position_of(self.offsets(query)[0])

    def plan(self, query: str, offsets: list[Offset]) -> None:
        """Log the next batch of ``query`` as the engine does."""
        directory = self.disk.opened(query)
        watermark_ms = position_of(offsets[0]).bucket * self.width_ms
        logged = Logged(dict(zip(self.names, offsets, strict=True)), watermark_ms)
        directory.log(directory.last_commit + 1, logged)

    def entries(self, topic: str = OUT) -> list[LogEntry]:
        """Return the whole log of a stream."""
        reader = self.log.reader()
        reader.assign({TopicPartition(topic, 0): 0})
        chunks = reader.fetch(100_000, 0)
        return [
            boundary_records.decode(v, h)
            for c in chunks
            for v, h in zip(c.values, c.headers, strict=True)
        ]

    def log_state(self) -> LogState:
        """Return the output as any reader sees it."""
        log_state = LogState(["0"])
        for offset, entry in enumerate(self.entries()):
            log_state.apply(offset, entry)
        return log_state

    def records(self) -> list[BoundaryRecord]:
        """Return the records of the output that count."""
        log_state, found = LogState(["0"]), []
        for offset, entry in enumerate(self.entries()):
            if log_state.apply(offset, entry).accepted and isinstance(entry, BoundaryRecord):
                found.append(entry)
        return found

    def stable_rows(self) -> dict[int, int]:
        """Rows of each stable bucket of the output."""
        return stable_rows(self.log_state())

    def expected(self, upto: int) -> dict[int, int]:
        """Return the expected rows."""
        return expected_rows(self.rows, upto, is_stateful=self.traits.is_stateful)


class CutReader(BoundaryReader):
    """Reader of a log whose cluster answers or not, as the world says."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.log, name, ["0"])
        self._world, self._name = world, name

    @property
    def _is_cut(self) -> bool:
        where = self._name if self._name in self._world.elsewhere else OWN
        return where in self._world.cut

    def poll(self, wait_ms: int) -> int:
        return 0 if self._is_cut else super().poll(wait_ms)

    def end(self) -> int:
        if self._is_cut:
            raise Unavailable("nobody answers")
        return super().end()


class _Host(HostProcess):
    """Process that stops, crashes and is cut off as the world says."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.world.clock, may_wait=False)
        self._process = process

    @override
    def stopping(self) -> bool:
        return self._process.stopping

    @override
    def crash_point(self, name: str) -> None:
        self._process.point(name)

    @override
    def own_answers(self) -> bool:
        return OWN not in self._process.world.cut


class Process:
    """One process of the stage's replica."""

    def __init__(
        self, world: World, point: Callable[[str], None], upstream: Upstream | None, seed: int
    ) -> None:
        self.world, self.point = world, point
        self.inputs = {name: CutReader(world, name) for name in world.names}
        self.boundary = BoundaryWriter(
            world.log, OUT, ["0"], EpochStarted("0", "f", SeededEntropy(seed).token()), world.clock
        )
        self.stopping = False
        self.runner = ReplicaRunner(
            self.inputs,
            self.boundary,
            cast("Checkpoints", _Points(world.disk, point)),
            StageRules(
                world.traits,
                Availability(world.names, world.waits, world.policy, elsewhere=world.elsewhere),
                BatchRules(world.width_ms, world.rows_max),
            ),
            _Host(self),
            upstream,
        )
        self.queries: list[str] = []
        self.orders: list[Order] = []
        """All there ever were."""
        self._attempts = 0

    def begin(self) -> None:
        """Fail over to this process."""
        self.point("begin")
        self.queries = [self.runner.fail_over()]

    def carry_out_orders(self) -> None:
        for order in self.runner.orders():
            self.orders.append(order)
            if isinstance(order, StartQuery):
                self.queries.append(order.timeline)
            elif isinstance(order, StopQuery):
                self.queries.remove(order.timeline)
                self.point("stopping")
                self.runner.stopped(order.timeline)
        assert len(self.queries) <= 2, "RE6"

    def ask(self, query: str, order: str = "") -> list[Offset] | None:
        """One trigger: every input is asked once, the first one leads. The offsets of the
        batch, if there is one.
        """
        starts, found = self.world.offsets(query), []
        for name, start in zip(order or self.world.names, starts, strict=True):
            answer = self.runner.advance(query, name, position_fields(start))
            found.append(start if answer is None else answer)
        return None if found == starts else found

    def step(self, query: str) -> bool:
        """One batch of ``query``, if there is one."""
        directory = self.world.disk.opened(query)
        before, batch = self.world.position(query), directory.last_commit + 1
        if batch not in directory.logged:
            planned = self.ask(query)
            if planned is None:
                return False
            self.point("planned")
            self.world.plan(query, planned)
        self.point("logged")
        logged = directory.logged[batch]
        offsets = [logged.offsets[name] for name in self.world.names]
        self.runner.begin(query, offsets, logged.watermark_ms, before)
        parts, state = self.run(directory.state(batch - 1), offsets, position_of(offsets[0]).bucket)
        self.point("ran")
        self.runner.finish(query, batch, parts)
        self.point("appended")
        self.world.disk.opened(query).commit(batch, state)
        self.point("committed")
        return True

    def run(
        self, state: State, offsets: list[Offset], watermark: int
    ) -> tuple[tuple[Part, ...], State]:
        """Run the operator. Return its results and its state afterwards."""
        self._attempts += 1
        parts, left = operate(
            rows_read(offsets),
            {end: rows for (end, _), rows in state} if self.world.traits.is_stateful else None,
            watermark,
            f"{self.boundary.epoch}-{self._attempts}",
        )
        if self.world.traits.is_stateful:
            state = tuple(((end, 0), rows) for end, rows in left.items())
        return parts, state

    def round(self) -> bool:
        """Follow the logs, carry out orders, one step of each query. Whether anything was done."""
        self.runner.tick()
        self.carry_out_orders()
        done = [self.step(query) for query in list(self.queries)]
        self.carry_out_orders()
        return any(done)

    def settle(self) -> None:
        """Run rounds until there is nothing to do now."""
        for _ in range(200):
            if not self.round():
                return
        message = "it never settles"
        raise AssertionError(message)

    def wait(self, ms: int) -> None:
        """Time passes; the process does what there is to do."""
        for _ in range(0, ms, _TICK_MS):
            self.world.clock.advance(_TICK_MS)
            self.round()


class Crash(BaseException):
    """The process is gone."""


class Relay:
    """Processes of one replica that follow one another: who crashes, or finds that it was
    overtaken, is followed by the next.

    ``at`` says what happens at the n-th point that a process passes: ``crash`` or ``overtake``.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.points = 0
        self.seen: list[str] = []
        self.at: dict[int, Callable[[], None]] = {}
        self.process: Process | None = None
        self._newer: Process | None = None
        self._overtaken = False
        """Ever: the one that overtakes may be overtaken itself, by a process that had not
        begun its epoch.
        """

    def point(self, name: str) -> None:
        self.points += 1
        self.seen.append(name)
        self.at.pop(self.points, lambda: None)()

    def crash(self) -> None:
        raise Crash

    def overtake(self) -> None:
        """Another process starts and runs a while, and the first one goes on not knowing."""
        newer = self.world.start()
        newer.begin()
        for _ in range(3):
            newer.round()
        self._newer, self._overtaken = newer, True

    def round(self) -> bool:
        """One round of whoever lives. Whether anything was done."""
        try:
            if self.process is None:
                self.process, self._newer = self._newer, None
            if self.process is None:
                self.process = self.world.start(self.point)
                self.process.begin()
            return self.process.round()
        except Crash:
            self.process = None
        except (Fenced, Unavailable):
            assert self._overtaken, "nobody has overtaken it"
            self.process = None
        return True

    def wait(self, ms: int) -> None:
        """Time passes."""
        for _ in range(0, ms, _TICK_MS):
            self.world.clock.advance(_TICK_MS)
            self.round()

    def rest(self) -> None:
        """Run rounds until there is nothing to do now."""
        idle = 0
        while idle < 3:
            idle = 0 if self.round() else idle + 1


# -- ways into each state --


def running(
    traits: PlanTraits = STATELESS,
    upstream: Upstream | None = None,
    names: str = "ab",
) -> tuple[World, Process]:
    """Return a process that has run everything up to 5."""
    world = World(names, traits)
    process = world.start(upstream=upstream)
    process.begin()
    for name in names:
        world.close(name, 5, 2, 5)
    process.settle()
    assert world.stable_rows() == world.expected(5)
    return world, process


def failing(
    traits: PlanTraits = STATELESS, upstream: Upstream | None = None
) -> tuple[World, Process]:
    """Return a process with ``a`` idle after 5, ``b`` at 9, and a running branch."""
    world, process = running(traits, upstream)
    world.close("b", 9, 7, 9)
    process.runner.tick()
    process.wait(WAITS.first_ms + WAITS.next_ms)
    process.settle()
    assert process.runner.state is ReplicaState.UP_FAILURE
    return world, process
