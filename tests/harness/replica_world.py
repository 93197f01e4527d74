"""A stage in memory: boundary logs, checkpoint directories, and processes with a ``ReplicaRunner``
and a small engine.

The engine does what Spark does around a batch: it logs the offsets, runs, writes, commits, and
after a crash runs a logged batch again. Its operator gives every row at once, and another one for
each with a later event time; and for each bucket with rows a result in the bucket after it, when
the time of that has passed (if ``traits`` are stateful). So parts are pending, and a bucket that is
run twice or left out shows in the rows of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec import boundary_records
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.plan_offsets import INITIAL, Offset, position_fields, position_of, taken_of
from anabranch.ports import TopicPartition
from anabranch.processing.peers import HostProcess, Upstream
from anabranch.processing.replica import Order, ReplicaRunner, StartQuery, StopQuery
from anabranch.protocol.control.replica_states import ReplicaState
from anabranch.protocol.errors import Fenced, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, GivenUp, LogEntry, Part
from anabranch.protocol.log.timeline import Timeline, newest, obsolete
from anabranch.protocol.stage.availability import Availability, Policy, Waits
from anabranch.protocol.stage.plans import PlanTraits
from anabranch.protocol.stage.replica import BatchRules, StageRules
from anabranch.runtime.boundary_reader import BoundaryReader
from anabranch.runtime.boundary_writer import BoundaryWriter
from harness.replica_bench import STATELESS, WAITS, WIDTH_MS, part

OUT = "out"
LATE = 1_000
"""Rows of the result that a stateful stage gives when the time of the bucket after one with
rows has passed.
"""
AHEAD, AHEAD_ROWS = 3, 100
"""For each row so many rows, so many buckets later."""
_TICK_MS = 100


@dataclass
class Directory:
    """A checkpoint directory: offsets by batch, the last batch committed, and the state after
    it.
    """

    logged: dict[int, list[Offset]] = field(default_factory=dict)
    committed: int = -1
    state: dict[int, int] = field(default_factory=dict)
    """Bucket -> rows, of the results that are still to come."""


class MemoryDisk:
    """``ports.Checkpoints`` in memory."""

    def __init__(self) -> None:
        self.directories: dict[str, Directory] = {}
        self.timelines: dict[str, Timeline] = {}
        self.others: dict[str, MemoryDisk] = {}
        """Of the peers."""

    def newest(self) -> Timeline | None:
        name = newest(self.timelines)
        return None if name is None else self.timelines[name]

    def create(self, name: str) -> None:
        self.directories[name] = Directory()

    def copy(self, source: str, target: str) -> None:
        self.directories[target] = deepcopy(self.of(source))

    def last_commit(self, name: str) -> int:
        return self.of(name).committed

    def batches(self, name: str) -> Sequence[int]:
        directory = self.of(name)
        return [
            batch
            for batch in sorted(directory.logged, reverse=True)
            if batch <= directory.committed
        ] or [-1]

    def whole(self, name: str, batches: Sequence[int]) -> int | None:
        return next((batch for batch in batches if batch == self.of(name).committed), None)

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        directory = self.of(name)
        directory.logged = {
            b: offsets for b, offsets in directory.logged.items() if b <= batch + keep_plan
        }

    def bucket(self, name: str, batch: int) -> int:
        return position_of(self.of(name).logged[batch][0]).bucket if batch >= 0 else 0

    def peers(self) -> Sequence[tuple[str, Timeline]]:
        found = ((replica, disk.newest()) for replica, disk in self.others.items())
        return [(replica, timeline) for replica, timeline in found if timeline is not None]

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        if source not in self.others[replica].directories:
            return False
        self.directories[target] = deepcopy(self.others[replica].of(source))
        return True

    def write(self, timeline: Timeline) -> None:
        self.timelines[timeline.name] = timeline

    def sync(self, name: str) -> None:
        self.of(name)

    def clean(self, epoch: int, number: int = 0) -> None:
        for name in obsolete(self.directories, epoch, number):
            del self.directories[name]
        for name in obsolete(self.timelines, epoch, number):
            del self.timelines[name]

    def remove(self, name: str) -> None:
        self.directories.pop(name, None)

    def of(self, name: str) -> Directory:
        """Rule 21: who meets a directory that is gone ends."""
        if name not in self.directories:
            message = f"directory {name} was removed"
            raise Unavailable(message)
        return self.directories[name]


class PointedDisk:
    """A disk as one process sees it: every step has a point before and one after it, where
    the process may crash.
    """

    def __init__(self, disk: MemoryDisk, point: Callable[[str], None]) -> None:
        self._disk, self._point = disk, point

    def newest(self) -> Timeline | None:
        self._point("newest")
        return self._disk.newest()

    def create(self, name: str) -> None:
        self._point("create")
        self._disk.create(name)

    def copy(self, source: str, target: str) -> None:
        self._point("copy")
        self._disk.copy(source, target)

    def last_commit(self, name: str) -> int:
        self._point("last_commit")
        return self._disk.last_commit(name)

    def batches(self, name: str) -> Sequence[int]:
        self._point("batches")
        return self._disk.batches(name)

    def whole(self, name: str, batches: Sequence[int]) -> int | None:
        self._point("whole")
        return self._disk.whole(name, batches)

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        self._point("cut_back")
        self._disk.cut_back(name, batch, keep_plan=keep_plan)

    def bucket(self, name: str, batch: int) -> int:
        self._point("bucket")
        return self._disk.bucket(name, batch)

    def peers(self) -> Sequence[tuple[str, Timeline]]:
        self._point("peers")
        return self._disk.peers()

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        self._point("copy_peer")
        return self._disk.copy_peer(replica, source, target)

    def write(self, timeline: Timeline) -> None:
        self._point("write")
        self._disk.write(timeline)
        self._point("written")

    def sync(self, name: str) -> None:
        self._point("sync")
        self._disk.sync(name)

    def clean(self, epoch: int, number: int = 0) -> None:
        self._point("clean")
        self._disk.clean(epoch, number)

    def remove(self, name: str) -> None:
        self._point("remove")
        self._disk.remove(name)


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
        successor_after_ms: int = 0,
        width_ms: int = WIDTH_MS,
        waits: Waits = WAITS,
    ) -> None:
        self.names = names
        self.traits = traits
        self.policy = policy
        self.rows_max = rows_max
        self.successor_after_ms = successor_after_ms
        self.width_ms, self.waits = width_ms, waits
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        self.log.admin().create([TopicSettings(name, 1) for name in (*names, OUT)])
        self.disk = MemoryDisk()
        self.rows: dict[int, int] = {}
        """What the output must be made of: rows of all inputs by bucket."""
        self._writers = {
            n: BoundaryWriter(
                self.log, n, ["0"], EpochStarted("0", "f", SeededEntropy(i).token()), self.clock
            )
            for i, n in enumerate(names)
        }
        self._batches = dict.fromkeys(names, 0)
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

    def start(
        self, point: Callable[[str], None] = lambda _: None, upstream: Upstream | None = None
    ) -> Process:
        self._started += 1
        return Process(self, point, upstream, self._started)

    def entries(self, topic: str = OUT) -> list[LogEntry]:
        """The whole log of a stream."""
        reader = self.log.reader()
        reader.assign({TopicPartition(topic, 0): 0})
        chunks = reader.fetch(100_000, 0)
        return [
            boundary_records.decode(v, h)
            for c in chunks
            for v, h in zip(c.values, c.headers, strict=True)
        ]

    def log_state(self) -> LogState:
        """The output as any reader sees it."""
        log_state = LogState(["0"])
        for offset, entry in enumerate(self.entries()):
            log_state.apply(offset, entry)
        return log_state

    def records(self) -> list[BoundaryRecord]:
        """The records of the output that count."""
        log_state, found = LogState(["0"]), []
        for offset, entry in enumerate(self.entries()):
            if log_state.apply(offset, entry).accepted and isinstance(entry, BoundaryRecord):
                found.append(entry)
        return found

    def stable_rows(self) -> dict[int, int]:
        """Rows of each stable bucket of the output."""
        log_state = self.log_state()
        return (
            {
                bucket: sum(p.rows for p in parts)
                for bucket, _, parts in log_state.stable(1, log_state.upto)
            }
            if log_state.upto
            else {}
        )

    def expected(self, upto: int) -> dict[int, int]:
        """What they must be."""
        late = LATE if self.traits.is_stateful else 0
        found: dict[int, int] = {}
        for bucket, rows in self.rows.items():
            for after, much in ((0, rows), (1, late), (AHEAD, rows * AHEAD_ROWS)):
                if much:
                    found[bucket + after] = found.get(bucket + after, 0) + much
        return {bucket: rows for bucket, rows in sorted(found.items()) if bucket <= upto}


class Process:
    """One process of the stage's replica."""

    def __init__(
        self, world: World, point: Callable[[str], None], upstream: Upstream | None, seed: int
    ) -> None:
        self.world, self.point = world, point
        self.inputs = {name: BoundaryReader(world.log, name, ["0"]) for name in world.names}
        self.boundary = BoundaryWriter(
            world.log, OUT, ["0"], EpochStarted("0", "f", SeededEntropy(seed).token()), world.clock
        )
        self.stopping = False
        self.runner = ReplicaRunner(
            self.inputs,
            self.boundary,
            PointedDisk(world.disk, point),
            StageRules(
                world.traits,
                Availability(world.names, world.waits, world.policy),
                BatchRules(
                    world.width_ms, world.rows_max, successor_after_ms=world.successor_after_ms
                ),
            ),
            HostProcess(
                world.clock, stopping=lambda: self.stopping, crash_point=point, may_wait=False
            ),
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
        directory = self.world.disk.of(query)
        starts = (
            directory.logged[directory.committed]
            if directory.committed >= 0
            else [dict(INITIAL) for _ in self.world.names]
        )
        found = []
        for name, start in zip(order or self.world.names, starts, strict=True):
            answer = self.runner.advance(query, name, position_fields(start))
            found.append(start if answer is None else answer)
        return None if found == starts else found

    def step(self, query: str) -> bool:
        """One batch of ``query``, if there is one."""
        directory = self.world.disk.of(query)
        batch = directory.committed + 1
        if batch not in directory.logged:
            offsets = self.ask(query)
            if offsets is None:
                return False
            self.point("planned")
            self.world.disk.of(query).logged[batch] = offsets
        self.point("logged")
        offsets = directory.logged[batch]
        before = position_of(directory.logged[batch - 1][0] if batch else INITIAL)
        self.runner.begin(
            query, offsets, position_of(offsets[0]).bucket * self.world.width_ms, before
        )
        parts, state = self.run(directory.state, offsets, position_of(offsets[0]).bucket)
        self.point("ran")
        self.runner.finish(query, batch, parts)
        self.point("appended")
        directory = self.world.disk.of(query)
        directory.committed, directory.state = batch, state
        self.point("committed")
        return True

    def run(
        self, state: dict[int, int], offsets: list[Offset], watermark: int
    ) -> tuple[tuple[Part, ...], dict[int, int]]:
        """The operator: (what it gives, its state afterwards)."""
        read: dict[int, int] = {}
        for offset in offsets:
            for bucket, _, taken in taken_of(offset):
                read[bucket] = read.get(bucket, 0) + sum(p.rows for p in taken)
        self._attempts += 1
        given = [
            (bucket + after, rows * times)
            for bucket, rows in read.items()
            if rows
            for after, times in ((0, 1), (AHEAD, AHEAD_ROWS))
        ]
        if self.world.traits.is_stateful:
            state = state | {bucket + 1: rows for bucket, rows in read.items()}
            given += [(end, LATE) for end in state if end <= watermark]
            state = {end: rows for end, rows in state.items() if end > watermark}
        attempt = f"{self.boundary.epoch}-{self._attempts}"
        parts = tuple(
            Part(bucket, 0, attempt, 1, 10 * i, 10 * i + 1, rows, 0)
            for i, (bucket, rows) in enumerate(given)
        )
        return parts, state

    def round(self) -> bool:
        """Follow the logs, carry out orders, one step of each query. Whether anything was done."""
        self.runner.tick()
        self.carry_out_orders()
        done = [self.step(query) for query in list(self.queries)]
        self.carry_out_orders()
        return any(done)

    def settle(self) -> None:
        """Rounds until there is nothing to do now."""
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
        """Rounds until there is nothing to do now."""
        idle = 0
        while idle < 3:
            idle = 0 if self.round() else idle + 1


# -- ways into each state --


def running(
    traits: PlanTraits = STATELESS,
    upstream: Upstream | None = None,
    names: str = "ab",
    successor_after_ms: int = 0,
) -> tuple[World, Process]:
    """A process that has run everything up to 5."""
    world = World(names, traits, successor_after_ms=successor_after_ms)
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
    """``a`` is silent after 5, ``b`` is at 9, and the branch runs."""
    world, process = running(traits, upstream)
    world.close("b", 9, 7, 9)
    process.runner.tick()
    process.wait(WAITS.first_ms + WAITS.next_ms)
    process.settle()
    assert process.runner.state is ReplicaState.UP_FAILURE
    return world, process
