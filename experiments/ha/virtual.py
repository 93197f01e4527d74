"""A stage in virtual time in each mode of ``ha``, on nodes that are lost with their disks.

What is real: boundary records, heartbeats, log states, plans, checkpoints' timelines, the copies
and the watch of a standby, the beginning of a process without a checkpoint (``ReplicaRunner``,
``Standby``), over the logs in memory. What is computed: blocks are not written, their sizes are
those of the real codec; a batch takes a fixed time and a time for each row; the loss of a node
without a standby is noticed, and the next query starts, after times that real runs have shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.blocks import BlockHeaders, encode_block
from anabranch.codec.plan_offsets import INITIAL, Offset, position_of, rows_of, taken_of
from anabranch.pipeline.waits import availability, known_horizon_buckets
from anabranch.process.threads import OwnThreads
from anabranch.processing.replica import ReplicaRunner
from anabranch.processing.replica_environment import HostProcess, Recovery
from anabranch.processing.standby import Standby
from anabranch.protocol.control.failure_detector import REPLICA_SERVICE
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import AnabranchError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import HEARTBEAT_EVERY_MS, LONG_SILENT_MS, PASSIVE_BEAT_MS
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part
from anabranch.protocol.stage.owners_checkpoint import StoreUse
from anabranch.protocol.stage.planner import PlanTraits
from anabranch.protocol.stage.recovery import Comparison, unneeded_upto
from anabranch.protocol.stage.replica import StageRules
from anabranch.protocol.stage.scheduling import BatchRules
from anabranch.protocol.stage.standby import StandbyProcess
from anabranch.protocol.stage.transfer import STORE_EVERY_MS
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.heartbeats import HeartbeatSender
from anabranch.streams.stream_life import life_of
from experiments.dpc.chain import create_topics
from experiments.dpc.sources import tuples
from experiments.dpc.watch import Watch
from experiments.ha.stage import write_stage
from simulation.disk import Directory, Logged, Machine, SimulatedDisk

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from anabranch.pipeline.model import Pipeline
    from anabranch.protocol.log.timeline import Timeline

WIDTH_MS: Final = 250
PARTITIONS: Final = 2
KEYS: Final = 200
TICK_MS: Final = 50
_BATCHES_KEPT: Final = 5
_FINE_MS: Final = 5_000
_UNTIL_MS: Final = 600_000
_ATTEMPT: Final = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Costs:
    """Times that are computed with, in ms."""

    batch_ms: float = 150
    rows_ms: float = 0.003
    """Time of each row: this and ``batch_ms`` were measured by ``experiments.dpc``."""
    detected_ms: int = LONG_SILENT_MS + 300
    """From the loss of a node without a standby until its replica has another node. 5.1 to 5.5 s in
    docs/experiments/elastic.md.
    """
    start_ms: int = 6_500
    """From then until the first batch, on a node that runs but has run no query: 7.0 to 7.7 s in
    docs/experiments/elastic.md with the rows that are processed again, and 6 s of the first query.
    """
    standby_ms: int = 1_600
    """The same for a warm standby: docs/benchmarks.md, 3.1 s less 1.5 s of silence."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to make a stage highly available."""

    name: str
    keys: str
    """Further keys of the stage in the pipeline file; {window} is the length of its window."""
    processes: int = 1
    interval_s: float | None = None
    """Interval between checkpoints that another node can start from; None: there are none."""


ACTIVE: Final = Mode("active, two replicas", "replicas: 2", 2)
STORED: Final = Mode("active, one replica, a store", "replicas: 1", 1, STORE_EVERY_MS / 1_000)
PASSIVE: Final = Mode("passive, one standby", "ha: passive\n    replicas: 2", 2, 5)
UPSTREAM: Final = Mode("upstream_backup", "ha: upstream_backup\n    state_horizon: {window}s")
AMNESIA: Final = Mode("amnesia", "ha: amnesia\n    state_horizon: {window}s")
MODES: Final = (ACTIVE, STORED, PASSIVE, UPSTREAM, AMNESIA)


@dataclass(frozen=True, slots=True)
class Setting:
    """Stage whose node is lost."""

    mode: Mode
    window_s: int = 10
    rate: int = 4_000
    """Rows per second."""
    interval_s: float | None = None
    """Interval between checkpoints; None: that of the mode."""

    @property
    def every_ms(self) -> int:
        """Interval between checkpoints that another node can start from, in ms; 0: none."""
        interval_s = self.interval_s if self.interval_s is not None else self.mode.interval_s
        return (
            0 if interval_s is None or self.mode.interval_s is None else round(1_000 * interval_s)
        )

    @property
    def window_buckets(self) -> int:
        """Length of the window, in buckets."""
        return self.window_s * 1_000 // WIDTH_MS


@dataclass(frozen=True, slots=True)
class Loss:
    """Cost of the loss of a node."""

    first_ms: int
    """From the loss until the first bucket is stable that was not due then."""
    caught_up_ms: int
    """From the loss until results are as early as before."""
    rows_again: int
    """Rows of input that were processed again before that."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Records and their bytes, without the broker's framing."""

    records: float = 0
    size_bytes: float = 0

    def __add__(self, other: Traffic) -> Traffic:
        """Return both together."""
        return Traffic(self.records + other.records, self.size_bytes + other.size_bytes)


@dataclass(frozen=True, slots=True)
class Calm:
    """Work of a mode in a second without a failure."""

    input: Traffic
    """Blocks and boundary records of the source."""
    results: Traffic
    """Blocks and boundary records of the stage, the first copy."""
    copies: Traffic
    """The same of further replicas."""
    beats: Traffic
    """Heartbeats of the stage's processes."""
    read_again: float
    """Bytes of input that further replicas read."""
    groups_copied: float
    """Groups of the state in checkpoints that were written for another node."""
    busy_ms: float
    """Processor time of batches."""
    kept_rows: int
    """Most rows of input that had to be kept."""
    usual_ms: int
    """Longest age of a new result."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Outcome of one setting."""

    setting: Setting
    calm: Calm
    losses: tuple[Loss, ...]
    compared: int
    """Windows with results."""
    wrong: int
    lost: int
    """Windows without results."""

    @property
    def first_s(self) -> float:
        """Mean time until results came again."""
        return sum(loss.first_ms for loss in self.losses) / len(self.losses) / 1_000

    @property
    def caught_up_s(self) -> float:
        """Mean time until results were as early as before."""
        return sum(loss.caught_up_ms for loss in self.losses) / len(self.losses) / 1_000

    @property
    def rows_again(self) -> float:
        """Mean number of rows that were processed again before results came."""
        return sum(loss.rows_again for loss in self.losses) / len(self.losses)


@lru_cache
def block_bytes(rows: int) -> int:
    """Return the size of a block of ``rows`` rows of four numbers, with its headers."""
    if not rows:
        return 0
    headers = BlockHeaders(bucket=1_000, epoch=1_000, number=0, replica="0", attempt=_ATTEMPT)
    return len(encode_block(tuples(1_000, rows, WIDTH_MS))) + sum(
        len(key) + len(value) for key, value in headers.encode()
    )


def parts_of(bucket: int, rows: int, digest: int) -> tuple[Part, ...]:
    """Return the parts of a bucket, one for each partition; their blocks are never read."""
    half = rows // PARTITIONS
    shares = ((0, rows - half, digest), (1, half, 0))
    return tuple(
        Part(bucket, number, _ATTEMPT, 1, bucket, bucket + 1, share, each)
        for number, share, each in shares
    )


def blocks_of(rows: int) -> Traffic:
    """Return the blocks that ``parts_of`` names."""
    half = rows // PARTITIONS
    return Traffic(2, block_bytes(rows - half) + block_bytes(half))


class _AtOnce(OwnThreads):
    """Threads that have ended when ``begin`` returns."""

    @override
    def begin(self, name: str, work: Callable[[], None]) -> threading.Thread:
        thread = super().begin(name, work)
        thread.join()
        return thread


class _Recovery(Recovery):
    """Resources of a start: the input is whole, and the log of the source is read to its end."""

    def __init__(self, world: VirtualStage, process: str, reader: BoundaryReader) -> None:
        self._reader = reader
        pipeline = world.pipeline
        if world.setting.mode is ACTIVE:
            self.peers = tuple(each for each in world.ids if each != process)
        if world.setting.mode is UPSTREAM:
            self.comparison = Comparison("s", known_horizon_buckets(pipeline, "s"), WIDTH_MS)

    @override
    def complete(self) -> int:
        self._reader.read_to_end()
        return self._reader.log_state.upto


class _Process:
    """One process of the stage, on a node of its own: it runs the query, or stands by."""

    def __init__(self, world: VirtualStage, process: str, machine: Machine) -> None:
        self._world, self.process, self.machine = world, process, machine
        self.disk = SimulatedDisk(machine, peers=partial(world.machines_beside, self))
        self.disk.open_in(world.life, "s", process, store_use=StoreUse.NONE)
        self.primary: _Primary | None = None
        """The query that it runs; None: it stands by, or has not begun."""
        self.standby: Standby | None = None
        self.again_below = 0
        """Rows up to this bucket were processed by another process before."""
        if world.setting.mode is PASSIVE:
            own = StandbyProcess("s", process, None, world.token())
            self.standby = Standby(
                world.log, world.clock, world.pipeline, own, self.disk, _AtOnce()
            )
            # The interval is a constant of the product, and here what is measured with.
            self.standby._copy_every_ms = world.setting.every_ms  # noqa: SLF001

    @property
    def unneeded_upto(self) -> int | None:
        """Last bucket of input that this process never reads again; None: it has not begun."""
        if self.primary is not None:
            return self.primary.unneeded_upto()
        return None if self.standby is None else self.standby.bucket

    def begin(self, start_ms: int) -> None:
        """Run the query, whose first batch may begin after ``start_ms``."""
        self.primary = _Primary(self._world, self, start_ms)

    def step(self) -> None:
        """Run one round."""
        if self.primary is not None:
            self.primary.step()
        elif self.standby is not None:
            before = self.standby.bucket
            is_due = self.standby.round()
            if self.standby.bucket != before:
                self._world.copied(newest_directory(self.machine))
            if is_due:
                self.standby.end_watch()
                self.begin(self._world.costs.standby_ms)


def newest_directory(machine: Machine) -> Directory:
    """Return the directory of the newest checkpoint of ``machine``.

    Raises:
        AnabranchError: it has none.
    """
    timeline = machine.newest()
    if timeline is None:
        raise AnabranchError("there is no checkpoint")
    return machine.directories[timeline.name]


class _Primary:
    """Query of a process, with its driver."""

    def __init__(self, world: VirtualStage, process: _Process, start_ms: int) -> None:
        self._world, self._process, self._machine = world, process, process.machine
        pipeline, log = world.pipeline, world.log
        names = pipeline.topic_names
        is_passive = world.setting.mode is PASSIVE
        self.writer = "0" if is_passive else process.process
        self.rows_again = 0
        """Rows that were processed before by another process."""
        self.read_upto = 0
        """Last bucket of input in a batch that has begun."""
        self._ha = pipeline.stages["s"].ha
        self._horizon = known_horizon_buckets(pipeline, "s")
        self._stored_ms = world.clock.monotonic_ms()
        reader = BoundaryReader(log, names.boundaries("a"), ["0"])
        epoch = EpochStarted(self.writer, "f", world.token(), bucket_ms=WIDTH_MS)
        self.runner = ReplicaRunner(
            {"a": reader},
            BoundaryWriter(
                log, names.boundaries("s"), pipeline.stream_writers("s"), epoch, world.clock
            ),
            process.disk,
            StageRules(
                PlanTraits(is_stateful=True, is_batch_safe=True),
                availability(pipeline, "s"),
                BatchRules(WIDTH_MS),
                self._horizon or None,
                self._ha,
            ),
            HostProcess(world.clock, may_wait=False),
        )
        self._query = self.runner.fail_over(_Recovery(world, process.process, reader))
        self._free_ms = float(world.clock.monotonic_ms() + start_ms)
        self._offset: Offset | None = None
        """Offset of the running batch."""
        self._sender = HeartbeatSender(
            log,
            names.control(REPLICA_SERVICE, f"s.{process.process}"),
            world.clock,
            every_ms=PASSIVE_BEAT_MS if is_passive else HEARTBEAT_EVERY_MS,
        )

    def step(self) -> None:
        """Run one round."""
        self.runner.tick()
        if self._world.clock.monotonic_ms() >= self._free_ms:
            self._run()
        self._store()
        self._report()

    def unneeded_upto(self) -> int:
        """Return the last bucket of input that this process never reads again (rule 18)."""
        closed = self.runner.boundary.log_state.closed(self.writer)
        return unneeded_upto(closed, self.runner.synced_bucket, self._horizon, self._ha)

    def _run(self) -> None:
        """End the batch that runs, and begin the next one."""
        if self._offset is not None:
            self._end_batch(self._offset)
        offset = self._offset = self.runner.advance(self._query, "a", self._before())
        if offset is None:
            return
        again_below = self._process.again_below
        self.rows_again += sum(
            part.rows for b, _, parts in taken_of(offset) if b <= again_below for part in parts
        )
        self.read_upto = max(self.read_upto, position_of(offset).bucket)
        costs = self._world.costs
        cost_ms = costs.batch_ms + costs.rows_ms * rows_of([offset])
        self._world.busy_ms += cost_ms
        self._free_ms = self._world.clock.monotonic_ms() + cost_ms

    def _before(self) -> Offset:
        directory = self._machine.directories[self._query]
        last = directory.last_commit
        return directory.logged[last].offsets["a"] if last >= 0 else dict(INITIAL)

    def _end_batch(self, offset: Offset) -> None:
        directory, before = self._machine.directories[self._query], position_of(self._before())
        watermark_ms = position_of(offset).bucket * WIDTH_MS
        start = self.runner.begin(self._query, [offset], watermark_ms, before)
        open_windows = {end: total for (end, _), total in directory.state(directory.last_commit)}
        for bucket, _, parts in taken_of(offset):
            end = self._world.window_end(bucket)
            open_windows[end] = open_windows.get(end, 0) + sum(part.digest for part in parts)
        ready = sorted(end for end in open_windows if end <= start.after.bucket)
        found = [
            part for end in ready for part in parts_of(end, KEYS, open_windows.pop(end) % 2**64)
        ]
        batch = directory.last_commit + 1
        self.runner.finish(self._query, batch, tuple(found))
        self._world.windows_written[self.writer] += len(ready)
        directory.log(batch, Logged({"a": offset}, watermark_ms))
        directory.commit(
            batch, tuple(((end, 0), open_windows[end]) for end in sorted(open_windows))
        )
        directory.logged.pop(batch - _BATCHES_KEPT, None)
        directory.commits.pop(batch - _BATCHES_KEPT, None)

    def _store(self) -> None:
        """Sync, and store, the checkpoint if that is due."""
        now_ms, setting = self._world.clock.monotonic_ms(), self._world.setting
        is_stored = setting.mode is STORED
        if now_ms - self._stored_ms >= (setting.every_ms if is_stored else STORE_EVERY_MS):
            self._stored_ms = now_ms
            self.runner.sync(self._put if is_stored else lambda _: True)

    def _put(self, name: str) -> bool:
        timeline = self._machine.newest()
        if timeline is None or timeline.name != name:
            return False
        directory = newest_directory(self._machine)
        self._world.stored = timeline, directory.snapshot()
        self._world.copied(directory)
        return True

    def _report(self) -> None:
        """Send heartbeats."""
        runner = self.runner
        bucket = runner.boundary.log_state.closed(self.writer)
        self._sender.send(
            Heartbeat(
                REPLICA_SERVICE,
                "s",
                self.writer,
                runner.epoch,
                "running",
                bucket,
                0,
                replica_state=runner.state.value,
                checkpoint=runner.stable_query,
                checkpoint_bucket=self.unneeded_upto(),
                life=self._world.life,
            )
        )
        if self._process.standby is not None:
            log_state = runner.boundary.log_state
            self._process.standby.lead(bucket, runner.synced_bucket, log_state.tip(self.writer))


class VirtualStage:
    """One setting in virtual time. ``run`` once."""

    def __init__(self, setting: Setting, folder: Path, costs: Costs = Costs()) -> None:
        """Create the topics, and start the processes."""
        self.setting, self.costs = setting, costs
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        keys = setting.mode.keys.format(window=setting.window_s)
        self.pipeline: Pipeline = write_stage(
            folder,
            "ha",
            f"{keys}\n    on_missing_input: suspend",
            width_ms=WIDTH_MS,
            window_s=setting.window_s,
        )
        create_topics(self.log, self.pipeline)
        names = self.pipeline.topic_names
        self.ids = self.pipeline.stages["s"].process_ids()
        self.life = life_of(self.log, names.boundaries("s"))
        self.stored: tuple[Timeline, Directory] | None = None
        """Newest checkpoint in the store."""
        self.busy_ms = 0.0
        self._entropy = SeededEntropy(1)
        self._rows = setting.rate * WIDTH_MS // 1_000
        self._source = BoundaryWriter(
            self.log, names.boundaries("a"), ["0"], EpochStarted("0", "f", self.token()), self.clock
        )
        self._source.start()
        self._closed = 0
        self._watch = Watch(self.log, self.pipeline, "s", self.clock.monotonic_ms)
        self.windows_written = dict.fromkeys(self.pipeline.stream_writers("s"), 0)
        """Windows whose results each writer has written."""
        self._copied: list[tuple[int, int]] = []
        """(time, groups) of each checkpoint that another node can start from."""
        self._kept_rows = 0
        self._processes = [_Process(self, each, Machine()) for each in self.ids]
        if setting.mode is not PASSIVE:
            for process in self._processes:
                process.begin(0)
        self._coming: list[tuple[int, Callable[[], None]]] = []

    def token(self) -> str:
        """Return a random identity."""
        return self._entropy.token()

    def window_end(self, bucket: int) -> int:
        """Return the last bucket of the window of ``bucket``."""
        length = self.setting.window_buckets
        return -(-bucket // length) * length

    def machines_beside(self, process: _Process) -> Mapping[str, Machine]:
        """Return the machines of the other processes that run."""
        return {each.process: each.machine for each in self._processes if each is not process}

    def copied(self, directory: Directory) -> None:
        """Note that ``directory`` is where another node can start from it."""
        groups = KEYS * len(directory.state(directory.last_commit))
        self._copied.append((self.clock.monotonic_ms(), groups))

    def run(self, phases: Sequence[float]) -> Measured:
        """Run, and lose a node at each of ``phases``: shares of the interval between checkpoints,
        or of the window where there are none.

        Raises:
            AnabranchError: results did not come again.
        """
        setting = self.setting
        settled_ms = max(25_000, 2 * setting.every_ms)
        self._pass_quickly(max(settled_ms, 2_200 * setting.window_s))
        calm = self._calm(max(20_000, 1_000 * setting.window_s, 2 * setting.every_ms))
        losses = []
        for phase in phases:
            losses.append(self._lose(phase, calm.usual_ms))
            self._pass_quickly(settled_ms)
        return Measured(setting, calm, tuple(losses), *self._judge())

    # ------------------------------------------------------------ time

    def _pass(self, ms: int, tick_ms: int = TICK_MS) -> None:
        end_ms = self.clock.monotonic_ms() + ms
        while self.clock.monotonic_ms() < end_ms:
            self._tick(min(tick_ms, end_ms - self.clock.monotonic_ms()))

    def _pass_quickly(self, ms: int) -> None:
        """Let time pass in long steps, but for its end."""
        self._pass(max(0, ms - _FINE_MS), WIDTH_MS)
        self._pass(min(ms, _FINE_MS))

    def _tick(self, tick_ms: int = TICK_MS) -> None:
        end_ms = self.clock.monotonic_ms() + tick_ms
        for at_ms, act in self._coming:
            if at_ms <= self.clock.monotonic_ms():
                act()
        self._coming = [each for each in self._coming if each[0] > self.clock.monotonic_ms()]
        due = self.clock.monotonic_ms() // WIDTH_MS
        if due > self._closed:
            buckets = range(self._closed + 1, due + 1)
            parts = [part for b in buckets for part in parts_of(b, self._rows, self._digest(b))]
            ident = BatchId("source", due)
            tip, self._closed = self._source.tip(), due
            self._source.append(
                BoundaryRecord("0", self._source.epoch, ident, tip, due, tuple(parts))
            )
        for process in list(self._processes):
            process.step()
        self._watch.poll()
        self._kept_rows = max(self._kept_rows, (self._closed - self._unneeded_upto()) * self._rows)
        self.clock.advance(max(0, end_ms - self.clock.monotonic_ms()))

    @staticmethod
    def _digest(bucket: int) -> int:
        return bucket * 1_000_003

    def _unneeded_upto(self) -> int:
        found = [each.unneeded_upto for each in self._processes]
        return min((bucket for bucket in found if bucket is not None), default=self._closed)

    # ------------------------------------------------------------ losses

    def _lose(self, phase: float, usual_ms: int) -> Loss:
        """Lose a node that runs the query, at ``phase``, and wait until results are as early as
        before.
        """
        self._await_phase(phase)
        dead, read_upto = next(
            (each, each.primary.read_upto) for each in self._processes if each.primary is not None
        )
        at_ms, due = self.clock.monotonic_ms(), self._closed
        self._processes.remove(dead)
        mode, costs = self.setting.mode, self.costs
        started = [process for process in self._processes if process.primary is None]
        for process in started:
            process.again_below = read_upto

        def replace() -> None:
            machine = Machine()
            if mode is STORED and self.stored is not None:
                machine.enter(self.life)
                timeline, directory = self.stored
                machine.add(directory.snapshot())
                machine.timelines[timeline.name] = timeline
            process = _Process(self, dead.process, machine)
            process.again_below = read_upto
            self._processes.append(process)
            if mode is not PASSIVE:
                started.append(process)
                process.begin(costs.start_ms)

        replaced_ms = costs.detected_ms + (costs.start_ms if mode is PASSIVE else 0)
        self._coming.append((at_ms + replaced_ms, replace))
        first_ms = self._await_result(lambda _at, closed: closed > due)
        caught_up_ms = self._await_result(
            lambda at, closed: closed > due and at - closed * WIDTH_MS <= usual_ms
        )
        begun = [process.primary for process in started if process.primary is not None]
        again = sum(primary.rows_again for primary in begun)
        self._pass(max(0, at_ms + replaced_ms + costs.start_ms - self.clock.monotonic_ms()))
        return Loss(round(first_ms - at_ms), round(caught_up_ms - at_ms), again)

    def _await_phase(self, phase: float) -> None:
        """Wait for ``phase`` of the interval between checkpoints, or of the window."""
        every_ms, known = self.setting.every_ms, len(self._copied)
        window_ms = self.setting.window_s * 1_000
        if not every_ms:
            self._pass_quickly(-self.clock.monotonic_ms() % window_ms)
        end_ms = self.clock.monotonic_ms() + _UNTIL_MS
        while every_ms and len(self._copied) == known:
            if self.clock.monotonic_ms() > end_ms:
                raise AnabranchError(f"{self.setting}: no checkpoint within {_UNTIL_MS} ms")
            self._tick()
        self._pass_quickly(round(phase * (every_ms or window_ms)))

    def _await_result(self, is_it: Callable[[float, int], bool]) -> float:
        """Return when a record closed a bucket for which ``is_it`` holds."""
        end_ms, known = self.clock.monotonic_ms() + _UNTIL_MS, 0
        while self.clock.monotonic_ms() < end_ms:
            events = self._watch.trace.events
            for event in events[known:]:
                if is_it(event.at_ms, event.closed):
                    return event.at_ms
            known = len(events)
            self._tick()
        raise AnabranchError(f"{self.setting}: no result within {_UNTIL_MS} ms")

    # ------------------------------------------------------------ figures

    def _calm(self, ms: int) -> Calm:
        """Measure ``ms`` without a failure."""
        begun_ms, before, windows = (
            self.clock.monotonic_ms(),
            self._log_sizes(),
            dict(self.windows_written),
        )
        self.busy_ms, self._kept_rows = 0, 0
        copied, events = len(self._copied), len(self._watch.trace.events)
        self._pass(ms)
        seconds = (self.clock.monotonic_ms() - begun_ms) / 1_000
        names = self.pipeline.topic_names
        sizes = {
            topic: Traffic(
                (now.records - before[topic].records) / seconds,
                (now.size_bytes - before[topic].size_bytes) / seconds,
            )
            for topic, now in self._log_sizes().items()
        }
        made = [
            (self.windows_written[each] - windows[each]) / seconds
            for each in self.pipeline.stream_writers("s")
        ]
        block = blocks_of(KEYS)
        blocks = [Traffic(block.records * each, block.size_bytes * each) for each in made]
        records = sizes[names.boundaries("s")]
        share = 1 / len(made)
        one = Traffic(records.records * share, records.size_bytes * share)
        rest = Traffic(records.records * (1 - share), records.size_bytes * (1 - share))
        read = blocks_of(self._rows)
        input_blocks = Traffic(read.records * 1_000 / WIDTH_MS, read.size_bytes * 1_000 / WIDTH_MS)
        inputs = input_blocks + sizes[names.boundaries("a")]
        ages = [
            event.at_ms - event.closed * WIDTH_MS for event in self._watch.trace.events[events:]
        ]
        return Calm(
            input=inputs,
            results=blocks[0] + one,
            copies=sum(blocks[1:], start=rest),
            beats=sum(
                (each for topic, each in sizes.items() if topic in self._control_topics()),
                start=Traffic(),
            ),
            read_again=inputs.size_bytes * (len(made) - 1),
            groups_copied=sum(groups for _, groups in self._copied[copied:]) / seconds,
            busy_ms=self.busy_ms / seconds,
            kept_rows=self._kept_rows,
            usual_ms=round(max(ages)),
        )

    def _control_topics(self) -> set[str]:
        names = self.pipeline.topic_names
        return {names.control(REPLICA_SERVICE, f"s.{each}") for each in self.ids}

    def _log_sizes(self) -> dict[str, Traffic]:
        found = {}
        for topic, (_, partitions) in self.log.topics.items():
            records = [
                partition.at(offset)
                for partition in partitions
                for offset in range(partition.start, partition.end)
            ]
            found[topic] = Traffic(
                len(records),
                sum(
                    len(each.value or b"")
                    + len(each.key or b"")
                    + sum(len(name) + len(value or b"") for name, value in each.headers)
                    for each in records
                ),
            )
        return found

    def _judge(self) -> tuple[int, int, int]:
        """Return (windows with results, how many of them are wrong, windows without results)."""
        length = self.setting.window_buckets
        compared = wrong = lost = 0
        for end in range(length, self._watch.upto + 1, length):
            found = self._watch.sums.get(end)
            expected = sum(map(self._digest, range(end - length + 1, end + 1))) % 2**64
            if found is None:
                lost += 1
                continue
            compared += 1
            wrong += (found.rows, found.digest) != (KEYS, expected)
        return compared, wrong, lost
