"""A small engine in place of Spark: the replica's real driver, blocks and records; only the data work is a few lines of Python.

It takes Spark's steps in Spark's order: ask every input for its next offset until all have moved; write offsets and watermark to the
directory's log; read exactly the tuples of these offsets; run; write blocks; append the record; commit. A directory with a logged batch and
no commit runs exactly that batch again. A batch runs under its own boundary, as Spark's do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any, Final

import pyarrow as pa

from anabranch.codec.blocks import schema_text
from anabranch.codec.plan_offsets import INITIAL, Offset, position_of, rows_of, taken_of
from anabranch.pipeline.shape import lags, policy, waits
from anabranch.pipeline.speakers import speakers
from anabranch.ports import TopicPartition
from anabranch.processing.replica import ReplicaRunner, StartQuery, StopQuery
from anabranch.processing.surroundings import Recovery, Upstream
from anabranch.protocol.availability import Availability
from anabranch.protocol.control import Heartbeat
from anabranch.protocol.errors import DataMissing, StageFunctionError
from anabranch.protocol.limits import EMPTY_EVERY_MS, SUCCESSOR_AFTER_MS
from anabranch.protocol.plans import PlanTraits
from anabranch.protocol.presence import Presence
from anabranch.protocol.records import Part
from anabranch.protocol.replica_states import ReplicaState
from anabranch.protocol.staggering import CorrectionGate
from anabranch.runtime.block_reach import missing_blocks
from anabranch.runtime.block_reader import BlockReader
from anabranch.runtime.block_writer import BlockWriter
from anabranch.runtime.boundary_reader import BoundaryReader
from anabranch.runtime.boundary_writer import BoundaryWriter
from anabranch.runtime.heartbeats import ControlReader, HeartbeatSender, ReplicaControl
from anabranch.runtime.service import ServiceContext, ServiceStatus
from simulation.disk import Directory, Logged, SimulatedDisk, State
from simulation.locks import SimulatedCondition
from simulation.network import Port
from simulation.options import Operator, StageOptions
from simulation.scheduler import Process
from simulation.workload import WINDOW_BUCKETS, Row, bucket_of, far, mapped, moved, result_row

SCHEMA: Final = pa.schema([pa.field(name, pa.int64()) for name in ("id", "key", "v", "stime")])
_STEP_MS: Final = 100
_POLL_MS: Final = 100
_ASK_EVERY_MS: Final = 20
_EPOCH_EVERY_MS: Final = 1_000
_SYNC_CHANCE: Final = 0.3
"""At each of these looks; for real it is every ``CHECKPOINT_SYNC_EVERY_MS``."""

Steps = Generator[bool, None, None]
"""Yields between two steps of a query: whether something was done."""


def operate(operator: Operator, state: State, rows: list[Row], watermark_bucket: int, width_ms: int) -> tuple[State, list[Row]]:
    """One batch: (state after it, results). Windows that end by the watermark of the batch give their results and are gone."""
    if operator == "map":
        return (), [mapped(row) for row in rows]
    if operator == "later":
        return (), [moved(row, width_ms) for row in rows]
    if operator == "far":
        return (), [far(row, width_ms) for row in rows]
    if operator == "timed":
        return _timed(state, rows, watermark_bucket, width_ms)
    span = WINDOW_BUCKETS if operator == "sum" else 1
    totals = dict(state)
    for row in rows:
        end = -(-bucket_of(row[0], width_ms) // span) * span
        totals[end, row[2]] = totals.get((end, row[2]), 0) + (row[3] if operator == "sum" else 1)
    results = list(rows) if operator == "both" else []
    for end, key in sorted(totals):
        if end <= watermark_bucket:
            results.append(result_row(end, width_ms, key, totals.pop((end, key))))
    return tuple(sorted(totals.items())), results


def _timed(state: State, rows: list[Row], watermark_bucket: int, width_ms: int) -> tuple[State, list[Row]]:
    """A timer per key, and its count: after the rows of a batch those that are due fire once, tell the count, and are set a bucket later."""
    due = {key: bucket for (bucket, key), _ in state}
    counts = {key: count for (_, key), count in state}
    for row in rows:
        due.setdefault(row[2], bucket_of(row[0], width_ms))
        counts[row[2]] = counts.get(row[2], 0) + 1
    results = []
    for key in [key for key in sorted(due) if due[key] <= watermark_bucket]:
        results.append(result_row(due[key], width_ms, key, counts[key]))
        due[key], counts[key] = due[key] + 1, counts[key] // 2
    return tuple(sorted(((bucket, key), counts[key]) for key, bucket in due.items() if counts[key])), results


class BranchFailedError(Exception):
    """A branch's query dies of something that the stable one does not meet: of a bug in the function, or of what may pass."""

    def __init__(self, text: str, choice: int) -> None:
        super().__init__(text)
        self.cause: Exception = DataMissing(text) if choice % 3 == 0 else StageFunctionError(text)


class SimulatedReplica:
    """One process of one replica of a stage. See ``runtime.service.Service``."""

    def __init__(
        self, context: ServiceContext, port: Port, disk: SimulatedDisk, stage: StageOptions, replica: str, rng: random.Random
    ) -> None:
        self.status = ServiceStatus()
        self._context, self._port, self._disk, self._stage, self._replica, self._rng = context, port, disk, stage, replica, rng
        self._pipeline, self._scheduler = context.pipeline, port.network.scheduler
        self._changed = SimulatedCondition(self._scheduler, f"{port.process.name} changed")
        self._inputs: dict[str, BoundaryReader] = {}
        self._runner: ReplicaRunner | None = None
        self._queries: dict[str, Process] = {}
        self._stopping: set[str] = set()
        self._failed: list[tuple[str, BranchFailedError]] = []
        self._error: Exception | None = None
        self._epoch_next_ms = 0
        self._closed = 0
        self._corrects = False
        self._traits = PlanTraits(
            stage.operator in ("sum", "both", "timed"), stage.is_batch_safe, has_timers=stage.operator == "timed"
        )  # fmt: skip
        self._moved_ms = 0
        """When the stable query began its last batch that went on."""

    def start(self) -> None:
        """Follow the inputs, take over."""
        context, pipeline, stage, names = self._context, self._pipeline, self._stage, self._pipeline.topic_names
        own = pipeline.stream_writers(stage.name)
        lock: Any = self._changed
        for stream in stage.reads:
            self._inputs[stream] = BoundaryReader(context.log, names.boundaries(stream), pipeline.stream_writers(stream), lock=lock)
            self._thread(f"follow {stream}", lambda stream=stream: self._follow(stream))  # type: ignore[misc]
        boundary = BoundaryWriter(
            context.log, names.boundaries(stage.name), own, self._replica, f"{stage.name} {stage.operator}", context.clock, context.entropy,
            schema=schema_text(SCHEMA),
        )  # fmt: skip
        presence = Presence.of_replicas({stream: pipeline.stream_writers(stream) for stream in (stage.name, *stage.reads)})
        self._gate = CorrectionGate(stage.name, self._replica, presence)
        self._heartbeats = HeartbeatSender(context.log, names.control("processing", f"{stage.name}.{self._replica}"), context.clock)
        self._control = ReplicaControl(ControlReader(context.log, speakers(pipeline)), context.clock, self._gate, presence, lock=lock)
        self._boundary = boundary
        self._lags = lags(pipeline, stage.name)
        availability = Availability(stage.reads, waits(pipeline, stage.name), policy(pipeline, stage.name), self._lags)
        runner = ReplicaRunner(
            replica=self._replica, inputs=self._inputs, traits=self._traits, boundary=boundary, disk=self._disk, availability=availability,
            width_ms=pipeline.bucket_ms, clock=context.clock, lock=lock,
            recovery=Recovery(tuple(other for other in own if other != self._replica), self._missing_input, self._await_sibling),
            upstream=Upstream(self._control.choose, self._control.states, self._may_correct, self._control.sibling_serves),
            crash_point=self._crash_point, empty_every_ms=EMPTY_EVERY_MS, successor_after_ms=SUCCESSOR_AFTER_MS,
        )  # fmt: skip
        vars(runner)["log_lock"] = SimulatedCondition(self._scheduler, f"{self._port.process.name} log", is_turn=True)
        main = runner.take_over()
        self._gate.epoch = boundary.epoch
        self._runner = runner
        self._start_query(main)

    def _missing_input(self, after: int) -> str:
        """What is gone of the inputs' blocks, as the service finds out."""
        reader = self._context.log.reader(committed=False, headers=False)
        names = self._pipeline.topic_names
        for stream, follower in self._inputs.items():
            end = reader.offsets(TopicPartition(names.boundaries(stream), 0))[1]
            while follower.offset_next < end:
                if self._error is not None:
                    raise self._error
                self._context.clock.sleep_ms(_POLL_MS)
            bucket = missing_blocks(reader, lambda r, stream=stream: names.blocks(stream, r), follower.fold, after, lock=self._changed)  # type: ignore[misc]
            if bucket is not None:
                return f"the blocks of {stream} from bucket {bucket} on are deleted"
        return ""

    def _await_sibling(self, missing: str) -> None:
        self._port.network.history.reached("waits for a sibling")
        self._port.note("waits", missing)
        self._context.clock.sleep_ms(1_000)

    def step(self) -> None:
        """Look after the queries, as the service's main thread does."""
        runner, context = self._started(), self._context
        if self._error is not None:
            raise self._error
        self._control.poll()
        failed, self._failed = self._failed, []
        for query, failure in failed:
            if not runner.failed(query, failure.cause):
                raise failure
        self._carry_out(runner)
        now_ms = context.clock.monotonic_ms()
        if now_ms >= self._epoch_next_ms:
            self._epoch_next_ms = now_ms + _EPOCH_EVERY_MS
            runner.check_epoch()
            if self._rng.random() < _SYNC_CHANCE:
                runner.sync()
        if self._heartbeats.send(self._heartbeat(runner)) and runner.state is ReplicaState.STABLE:
            position = runner._started().position(runner.main)
            self._port.note("says stable", self._stage.name, self._replica, position.bucket if position is not None else 0)
        context.clock.sleep_ms(_STEP_MS)

    def stop(self) -> None:
        """Its threads end with the process."""

    def _started(self) -> ReplicaRunner:
        assert self._runner is not None, "start comes first"
        return self._runner

    def _thread(self, name: str, body: Callable[[], None]) -> Process:
        """A thread of this process. Its error ends the process, by the main thread."""

        def run() -> None:
            try:
                body()
            except Exception as error:  # noqa: BLE001 - handed to the main thread, as the service does
                self._error = self._error or error

        return self._scheduler.spawn_thread(self._port.process, name, run)

    def _follow(self, stream: str) -> None:
        """Follow one input's log for ever."""
        while True:
            if self._runner is not None:
                self._runner.follow(stream, _POLL_MS)
            elif self._inputs[stream].poll(_POLL_MS):
                with self._changed:
                    self._changed.notify_all()

    def _crash_point(self, name: str) -> None:
        if name == "processing.fork_decided":
            runner = self._started()
            position = runner._started().position(runner.main)
            self._port.note("forks", None if position is None else position.bucket)
            if runner.branch is not None:
                self._port.note("forks again", self._stage.name, self._replica, self._port.now_ms - self._moved_ms)
        self._port.crash_point(name)

    def _may_correct(self, wanted: bool) -> bool:
        """As the control topic says; noted when it changes."""
        may = self._control.may_correct(wanted)
        self._port.network.history.reached(f"gate {self._gate.why.name}")
        if (may and wanted) != self._corrects:
            self._corrects = not self._corrects
            self._port.note("corrects", self._stage.name, self._replica, self._corrects)
        return may

    @property
    def main(self) -> str:
        """The stable lineage."""
        return self._started().main

    @property
    def branch(self) -> str | None:
        """The lineage of the branch, if there is one."""
        return None if self._runner is None else self._runner.branch

    @property
    def epoch(self) -> int:
        """Of this process; -1: not begun."""
        return -1 if self._runner is None else self._boundary.epoch

    @property
    def buckets_held(self) -> int:
        """Stable buckets with rows that the folds of the inputs remember."""
        return sum(len(reader.fold._stable) for reader in self._inputs.values())

    @property
    def is_stable(self) -> bool:
        """It has begun, and has no branch."""
        return self._runner is not None and self._runner.state is ReplicaState.STABLE

    def _heartbeat(self, runner: ReplicaRunner) -> Heartbeat:
        gate = self._gate
        self._port.network.history.reached(f"replica {runner.state.value}")
        if self._lags.beyond_expected_ms:
            self._port.network.history.reached("depth measured")
        if runner.unread:
            self._port.network.history.reached("no room for more of an input")
            self._port.struck("no room for more of an input")  # its log goes on, and is trimmed (protocol.summaries)
        self._disk.said_synced(runner.main, runner.synced_bucket)
        return Heartbeat(
            service="processing", name=self._stage.name, replica=self._replica, epoch=self._boundary.epoch, state="running",
            bucket=self._closed, written_ms=0, replica_state=runner.state.value, branch=runner.branch_number, checkpoint=runner.main,
            checkpoint_bucket=runner.synced_bucket,
            corrects=gate.corrects,
        )  # fmt: skip

    def _carry_out(self, runner: ReplicaRunner) -> None:
        reached = self._port.network.history.reached
        for order in runner.orders():
            if isinstance(order, StartQuery):
                reached("successor started")
                self._start_query(order.lineage)
            elif isinstance(order, StopQuery):
                reached("branch dropped")
                self._stopping.add(order.lineage)
                self._thread(f"stop {order.lineage}", lambda lineage=order.lineage: self._stop_query(lineage))  # type: ignore[misc]

    def _start_query(self, lineage: str) -> None:
        self._queries[lineage] = self._thread(lineage, lambda: self._run_query(lineage))

    def _stop_query(self, lineage: str) -> None:
        """Wait for the query's thread, which ends at the end of what it is at; then its directory goes."""
        query = self._queries.pop(lineage, None)
        while query is not None and not query.is_ended:
            self._context.clock.sleep_ms(_POLL_MS)
        self._started().stopped(lineage)

    def _run_query(self, lineage: str) -> None:
        try:
            for is_busy in self._query(lineage):
                if lineage in self._stopping:
                    return
                if not is_busy:
                    self._context.clock.sleep_ms(self._rng.randint(1, _ASK_EVERY_MS))
        except BranchFailedError as error:
            self._port.note("branch fails", lineage, isinstance(error.cause, DataMissing))
            self._failed.append((lineage, error))

    def _query(self, name: str) -> Steps:
        """A query in the directory ``name``, for ever."""
        directory = self._disk.directory(name)
        batch = directory.last_commit + 1
        context, names = self._context, self._pipeline.topic_names
        own = names.blocks(self._stage.name, self._replica)
        blocks = BlockWriter(context.log, own, self._replica, self._boundary.epoch, context.entropy)
        readers = {s: BlockReader(context.log, lambda r, s=s: names.blocks(s, r), context.clock) for s in self._stage.reads}  # type: ignore[misc]
        while True:
            logged = directory.logged.get(batch)
            if logged is None:
                before = directory.logged[batch - 1].offsets if batch else {stream: dict(INITIAL) for stream in self._stage.reads}
                offsets = self._ask(name, before)
                if offsets is None:
                    yield False
                    continue
                logged = Logged(offsets, position_of(offsets[self._stage.reads[0]]).bucket * self._pipeline.bucket_ms)
                self._port.disk_write()
                self._disk.directory(name).log(batch, logged)
            else:
                self._port.network.history.reached("logged batch run again")
            yield True
            yield from self._run(name, directory, batch, logged, blocks, readers)
            batch += 1

    def _ask(self, name: str, before: dict[str, Offset]) -> dict[str, Offset] | None:
        """The next offset of every input, as Spark asks: in order, until all have moved."""
        complete = self._started().complete_upto()
        offsets: dict[str, Offset] = {}
        for stream in self._stage.reads:
            answer = self._started().advance(name, stream, before[stream])
            if answer is not None:
                offsets[stream] = answer
        if len(offsets) < len(before):
            return None
        begin, end = (position_of(next(iter(each.values()))).bucket for each in (before, offsets))
        if begin < end < complete and not self._traits.has_timers and not any(map(rows_of, offsets.values())):
            self._context.logger.error("a batch without rows leaves complete buckets behind", upto=end, complete=complete)
        return offsets

    def _run(
        self, name: str, directory: Directory, batch: int, logged: Logged, blocks: BlockWriter, readers: dict[str, BlockReader]
    ) -> Steps:
        """One batch, from its log to its commit."""
        stage, width_ms, clock = self._stage, self._pipeline.bucket_ms, self._context.clock
        before = position_of(directory.logged[batch - 1].offsets[stage.reads[0]] if batch else INITIAL)
        rows: list[Row] = []
        for stream in stage.reads:
            for _, table in readers[stream].read_buckets(taken_of(logged.offsets[stream])):
                columns = [table.column(column).to_pylist() for column in ("stime", "id", "key", "v")]
                rows += zip(*columns, strict=True)
        yield True
        state: State = directory.commits[batch - 1] if batch else ()
        state, results = operate(stage.operator, state, rows, logged.watermark_ms // width_ms, width_ms)
        clock.sleep_ms(self._rng.randint(1, 20) + stage.batch_ms)
        start = self._started().begin(name, [logged.offsets[stream] for stream in stage.reads], logged.watermark_ms, before)
        if start.kind.value == "stable" and start.after.bucket > start.before.bucket:
            self._moved_ms = self._port.now_ms
        fails = self._port.link.branch_failures.pop() if start.kind.value == "tentative" and self._port.link.branch_failures else None
        if fails is not None and fails % 2 == 0:
            raise BranchFailedError(f"{name}, batch {batch}, before its blocks", fails)
        parts = self._write(blocks, results, start.before.bucket)
        if fails is not None:
            raise BranchFailedError(f"{name}, batch {batch}, with its blocks written", fails)
        if self._rng.random() < 0.1:
            self._port.network.history.reached("task run again")
            parts = self._write(blocks, results, start.before.bucket)
        yield True
        if not self._started().finish(name, batch, parts):
            return
        self._crash_point("processing.boundary_appended" if start.kind.value == "stable" else "processing.tentative_appended")
        yield True
        self._port.disk_write()
        self._disk.directory(name).commit(batch, state)
        if start.kind.value == "stable":
            self._closed = start.after.bucket
        else:
            self._port.network.history.reached("tentative batch")
        yield True

    def _write(self, blocks: BlockWriter, results: list[Row], closed: int) -> tuple[Part, ...]:
        """The blocks of a batch's results."""
        by_bucket: dict[int, list[Row]] = {}
        for row in results:
            by_bucket.setdefault(bucket_of(row[0], self._pipeline.bucket_ms), []).append(row)
        assert all(bucket > closed for bucket in by_bucket), f"results of closed buckets: {sorted(by_bucket)} up to {closed}"
        slices = []
        for bucket in sorted(by_bucket):
            stimes, ids, keys, values = (pa.array(column, pa.int64()) for column in zip(*by_bucket[bucket], strict=True))
            slices.append((bucket % self._pipeline.partitions, bucket, pa.Table.from_arrays([ids, keys, values, stimes], schema=SCHEMA)))
        return blocks.write(slices)
