"""``ports.Engine`` in place of Spark: plans, blocks and checkpoints are real, only the data work is
a few lines of Python.

It takes Spark's steps in Spark's order: ask every source for its next offset, one after the other,
until one has moved; write offsets and watermark to the directory's log; read exactly the rows of
these offsets; run; write blocks; append the record; commit. A directory with a logged batch and no
commit runs exactly that batch again. A batch runs under its own boundary, as Spark's do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from anabranch.codec.kept_rows import kept_rows
from anabranch.codec.plan_offsets import (
    INITIAL,
    Offset,
    kept_of,
    least_kept,
    position_fields,
    position_of,
    taken_by_stream,
)
from anabranch.ports import BatchDone, Clock, QueryDriver, QueryOutput
from anabranch.process.frame import ServiceContext
from anabranch.processing.replica import ReplicaRunner
from anabranch.protocol.errors import DataMissing, StageFunctionError
from anabranch.protocol.limits import BATCH_ROWS_MAX
from anabranch.protocol.log.records import BoundaryKind, Part
from anabranch.protocol.log.stateful_plan import StatefulOperator, StatefulPlan
from anabranch.protocol.stage.kept_rows import KEPT_ALL, salt_of
from anabranch.protocol.stage.load_control import COLD_BATCHES
from anabranch.protocol.stage.planned_batch import PlannedBatch
from anabranch.protocol.stage.planner import PlanTraits, QueryPosition
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.block_writer import BlockWriter, UnwrittenBlocks
from simulation import halves, more_columns, new_column, notes
from simulation.disk import Directory, Logged, SimulatedDisk, State
from simulation.network import Port
from simulation.options import WINDOW_BUCKETS, Operator, StageOptions
from simulation.workload import (
    Row,
    bucket_of,
    far,
    is_window,
    mapped,
    mixed,
    moved,
    of_version,
    result_row,
    version_adds,
)

SCHEMA: Final = pa.schema([pa.field(name, pa.int64()) for name in ("id", "key", "v", "event_time")])
WIDE_SCHEMA: Final = pa.schema([*SCHEMA, *more_columns.FIELDS])
NOTED_SCHEMA: Final = pa.schema([*SCHEMA, notes.FIELD])
EXTENDED_SCHEMA: Final = pa.schema([*SCHEMA, new_column.FIELD])
_COLUMNS: Final = ("event_time", "id", "key", "v")
_ASK_EVERY_MS: Final = 20
_LOOK_MS: Final = 100
_SHARE_MS: Final = 20
"""Time for which a query has the processor at a time, in ms."""
_REHEARSAL: Final = "idle"
"""Replica id of a rehearsal."""
_LEAVES_OUT: Final = 5
"""Number of rows of which all but one are left out where the engine leaves rows out."""

Steps = Generator[bool, None, None]
"""Yields between two steps of a query: whether something was done."""


def operate(
    operator: Operator,
    state: State,
    rows: list[Row],
    watermark_bucket: int,
    width_ms: int,
    begins_with: int = 0,
) -> tuple[State, list[Row]]:
    """One batch: (state after it, results). Windows that end by the watermark of the batch
    give their results and are gone. ``begins_with``: the sum of a window before its first row.
    """
    if operator == "map":
        return (), [mapped(row) for row in rows]
    if operator == "mixed":
        return (), mixed(rows, width_ms)
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
        totals[end, row[2]] = totals.get((end, row[2]), begins_with) + (
            row[3] if operator == "sum" else 1
        )
    results = list(rows) if operator == "both" else []
    for end, key in sorted(totals):
        if end <= watermark_bucket:
            results.append(result_row(end, width_ms, key, totals.pop((end, key))))
    return tuple(sorted(totals.items())), results


def _timed(
    state: State, rows: list[Row], watermark_bucket: int, width_ms: int
) -> tuple[State, list[Row]]:
    """Keep a timer and a count per key: after the rows of a batch each due timer fires once, emits
    the count, and is set a bucket later.
    """
    due = {key: bucket for (bucket, key), _ in state}
    counts = {key: count for (_, key), count in state}
    for row in rows:
        due.setdefault(row[2], bucket_of(row[0], width_ms))
        counts[row[2]] = counts.get(row[2], 0) + 1
    results = []
    for key in [key for key in sorted(due) if due[key] <= watermark_bucket]:
        results.append(result_row(due[key], width_ms, key, counts[key]))
        due[key], counts[key] = due[key] + 1, counts[key] // 2
    return tuple(
        sorted(((bucket, key), counts[key]) for key, bucket in due.items() if counts[key])
    ), results


def branch_failure(text: str, choice: int) -> Exception:
    """Return the error of a branch's query that the stable one does not meet: a bug in the
    function, or a temporary cause.
    """
    return DataMissing(text) if choice % 3 == 0 else StageFunctionError(text)


def _buckets_taken(offsets: Mapping[str, Offset]) -> int:
    """Return the number of buckets of which a batch takes rows, few as it may keep."""
    taken = (each for offset in offsets.values() for each in taken_by_stream(offset).values())
    return len({bucket for each in taken for bucket, _, parts in each if parts})


def _schema(options: StageOptions, version: int) -> pa.Schema:
    """Return the columns of a stage's results, as that version of its function makes them."""
    if new_column.adds(options, version):
        return EXTENDED_SCHEMA
    if options.has_notes:
        return NOTED_SCHEMA
    return WIDE_SCHEMA if options.has_more_columns else SCHEMA


class Core:
    """Processor of one process, in equal shares for the queries that work at the time."""

    def __init__(self) -> None:
        self._working = 0

    def work(self, clock: Clock, left_ms: int) -> None:
        """Return when a query has had the processor for ``left_ms``."""
        self._working += 1
        try:
            while left_ms > 0:
                step_ms = min(left_ms, _SHARE_MS)
                clock.sleep_ms(step_ms * self._working)
                left_ms -= step_ms
        finally:
            self._working -= 1


class FirstBatches:
    """Additional time of the first batches with rows of a process, whichever query runs them."""

    def __init__(self, cold_ms: int) -> None:
        self._cold_ms, self._count = cold_ms, 0

    def take_ms(self, rows: int) -> int:
        """Count a batch of ``rows``. Return its additional time, in ms."""
        if not rows or self._count == COLD_BATCHES:
            return 0
        self._count += 1
        return self._cold_ms // self._count


class WatchedDriver:
    """Driver of a replica's queries that notes when the stable one moves, and complains of a batch
    without rows that leaves complete buckets behind.
    """

    def __init__(
        self,
        runner: ReplicaRunner,
        traits: PlanTraits,
        port: Port,
        context: ServiceContext,
        moved: Callable[[int], None],
        stage: str,
    ) -> None:
        self._stage = stage
        self._runner = runner
        self._traits = traits
        self._port = port
        self._context = context
        self._moved = moved
        self._cut: dict[str, PlannedBatch] = {}
        """Running batches of branches, by query."""
        self._planned: dict[str, tuple[int, int]] = {}
        """By query, complete buckets and time, in ms, before it was given the plan that it runs."""

    def advance(self, query: str, name: str, start: Offset, source: int = 0) -> Offset | None:
        """See ``ports.QueryDriver``."""
        if self._port.link.makes_nothing:
            return None
        before = self._runner.complete_upto(), self._port.now_ms
        answer = self._runner.advance(query, name, start, source)
        if answer is not None:
            self._planned.setdefault(query, before)
        return answer

    def begin(
        self, query: str, offsets: list[Offset], watermark_ms: int, before: QueryPosition
    ) -> PlannedBatch:
        """See ``ports.QueryDriver``."""
        start = self._runner.begin(query, offsets, watermark_ms, before)
        complete, planned_ms = self._planned.pop(query, (0, self._port.now_ms))
        if (
            start.before.bucket < start.after.bucket < complete
            # What is left out at a beginning has a batch of its own, what is given up ends one.
            and start.before.sequence > 0
            and start.after.bucket != self._runner.given_up
            and not self._traits.has_timers
            and not start.rows
        ):
            self._context.logger.error(
                "a batch without rows leaves complete buckets behind",
                upto=start.after.bucket,
                complete=complete,
            )
        if start.kind is BoundaryKind.STABLE and start.after.bucket > start.before.bucket:
            self._moved(planned_ms)
        number = self._runner.branch_number
        if start.kind is BoundaryKind.TENTATIVE and query == self._runner.branch and number:
            self._cut[query] = start
            kept = least_kept(offsets)
            if kept < KEPT_ALL:
                self._port.network.history.reached("sheds rows")
            elif start.shed:
                self._port.network.history.reached("reads what was shed")
            self._port.note(
                "keeps",
                self._stage,
                self._runner.epoch,
                number,
                start.before.bucket + 1,
                start.after.bucket,
                kept,
                start.shed,
            )
        return start

    def finish(
        self, query: str, batch: int, parts: tuple[Part, ...], rows_read: int | None = None
    ) -> bool:
        """See ``ports.QueryDriver``."""
        start = self._cut.pop(query, None)
        if start is not None and rows_read is not None and query == self._runner.branch:
            number = self._runner.branch_number
            self._port.note(
                "kept", self._stage, self._runner.epoch, number, start.rows, start.kept, rows_read
            )
        return self._runner.finish(query, batch, parts, rows_read)


class SimulatedEngine:
    """See ``ports.Engine``. One process of one replica has one."""

    def __init__(
        self,
        context: ServiceContext,
        port: Port,
        disk_of: Callable[[str], SimulatedDisk],
        options: Mapping[str, StageOptions],
        rng: random.Random,
    ) -> None:
        """``disk_of``: the disk of each replica. ``options``: of the stages that it may prepare."""
        self.rows_max, self.cores = BATCH_ROWS_MAX, 2
        self.pace_ms = max(stage.pace_ms for stage in options.values())
        self.moved_ms = 0
        """When a replica's stable query was given its last plan that went on. The batch itself may
        begin much later, after the work of its rows.
        """
        self.waiting_for: str | None = None
        self.core = Core()
        self._rehearsed: set[str] = set()
        """Stages that this process has rehearsed (``processing.idle_node``)."""
        self._context = context
        self._port = port
        self._disk_of = disk_of
        self._options = options
        self._rng = rng

    def prepare(self, label: str, stage: str, schemas: Mapping[str, pa.Schema]) -> SimulatedStage:
        """See the port."""
        if new_column.uses(self._options[stage], self._port.link.version):
            new_column.check_columns(schemas)
        is_rehearsed = stage in self._rehearsed
        if label == f"{stage}.{_REHEARSAL}":
            self._rehearsed.add(stage)
            self._port.network.history.reached("stage rehearsed")
        elif is_rehearsed:
            self._port.network.history.reached("begins where its stage was rehearsed")
        return SimulatedStage(
            self._context,
            self._port,
            self._disk_of(label),
            self._options[stage],
            self._rng,
            self._moved,
            self.core,
            is_rehearsed=is_rehearsed,
        )

    def _moved(self, planned_ms: int) -> None:
        self.moved_ms = planned_ms

    def check(self) -> None:
        """Do nothing: the engine ends with its process."""

    def close(self) -> None:
        """See the port."""


class SimulatedStage:
    """See ``ports.PreparedStage``."""

    def __init__(
        self,
        context: ServiceContext,
        port: Port,
        disk: SimulatedDisk,
        options: StageOptions,
        rng: random.Random,
        moved: Callable[[int], None],
        core: Core,
        *,
        is_rehearsed: bool,
    ) -> None:
        """Prepare the stage. ``moved``: called when a replica's stable query begins a batch that
        advances, with the time at which it was planned. ``core``: shared by the queries of the
        process. ``is_rehearsed``: whether it was rehearsed in this process, so its first batches
        are half as slow.
        """
        self._core = core
        self._context = context
        self._port = port
        self._disk = disk
        self._stage = options
        self._rng = rng
        self._moved = moved
        self._first_batches = FirstBatches(options.cold_ms // (2 if is_rehearsed else 1))
        is_stateful = options.operator in ("sum", "both", "timed")
        self.traits = PlanTraits(
            is_stateful, options.is_batch_safe, has_timers=options.operator == "timed"
        )
        self.schema = _schema(options, port.link.version)
        self.fingerprint = f"{options.name} {options.operator} {port.link.version}"
        begins_with = version_adds(port.link.version) if options.version_is_in_state else 0
        computes = ("computes", (f"sum from {begins_with}",))
        operator = StatefulOperator(options.operator, (computes,))
        self.stateful_plan = StatefulPlan(
            (operator,) if is_stateful else (), version=port.link.version
        )

    def start(
        self,
        query: str,
        driver: QueryDriver,
        output: QueryOutput,
        place: str | None,
        done: Callable[[BatchDone], None],
    ) -> SimulatedQuery:
        """See the port."""
        if isinstance(driver, ReplicaRunner):
            driver = WatchedDriver(
                driver, self.traits, self._port, self._context, self._moved, self._stage.name
            )
        own = Directory(query)
        find = (lambda: own) if place is None else (lambda: self._disk.opened(place))
        running = SimulatedQuery(
            self._context,
            self._port,
            self._stage,
            self._rng,
            _Task(query, driver, output, find, done),
            self._core,
            self._first_batches,
        )
        running.begin()
        return running

    def close(self) -> None:
        """See the port."""


@dataclass(frozen=True)
class _Task:
    """Step of a query."""

    query: str
    driver: QueryDriver
    output: QueryOutput
    directory: Callable[[], Directory]
    """Raises Fenced where it was removed."""
    done: Callable[[BatchDone], None]


class SimulatedQuery:
    """See ``ports.RunningQuery``: a thread of its process."""

    def __init__(
        self,
        context: ServiceContext,
        port: Port,
        stage: StageOptions,
        rng: random.Random,
        task: _Task,
        core: Core,
        first_batches: FirstBatches,
    ) -> None:
        self._core = core
        self._first_batches = first_batches
        self._context = context
        self._port = port
        self._stage = stage
        self._rng = rng
        self._task = task
        self._pipeline, self._names = context.pipeline, context.pipeline.topic_names
        self._is_stopping = False
        self._error: Exception | None = None

    def begin(self) -> None:
        """Start its thread."""
        self._thread = self._port.network.scheduler.spawn_thread(
            self._port.process, self._task.query, self._run
        )

    def ended(self, wait_ms: int) -> bool:
        """See the port."""
        until_ms = self._context.clock.monotonic_ms() + wait_ms
        while (
            not self._thread.is_ended
            and self._error is None
            and self._context.clock.monotonic_ms() < until_ms
        ):
            self._context.clock.sleep_ms(min(wait_ms, _LOOK_MS))
        if self._error is not None:
            raise self._error
        return self._thread.is_ended

    def stop(self) -> None:
        """See the port. It ends at the end of the step that it is at."""
        self._is_stopping = True
        while not self._thread.is_ended:
            self._context.clock.sleep_ms(_LOOK_MS)

    def _run(self) -> None:
        try:
            for is_busy in self._batches():
                if self._is_stopping:
                    return
                if not is_busy:
                    self._context.clock.sleep_ms(self._rng.randint(1, _ASK_EVERY_MS))
        except Exception as error:  # noqa: BLE001 - handed to who asks
            self._error = error

    def _batches(self) -> Steps:
        """For ever."""
        task = self._task
        context = self._context
        pipeline = context.pipeline
        directory = task.directory()
        batch = directory.last_commit + 1
        own = self._names.blocks(self._stage.name, task.output.replica)
        blocks = (
            BlockWriter(context.log, own, task.output.replica, task.output.epoch, context.entropy)
            if task.output.is_written
            else UnwrittenBlocks()
        )
        readers = {
            s: BlockReader(
                context.log,
                lambda r, s=s: self._names.blocks(s, r),  # type: ignore[misc]
                context.clock,
                width_ms=None
                if pipeline.is_of(pipeline.stages[self._stage.name].participant, s)
                else pipeline.bucket_ms,
            )
            for s in pipeline.inputs(self._stage.name)
        }
        while True:
            logged = directory.logged.get(batch)
            if logged is None:
                before = (
                    directory.logged[batch - 1].offsets
                    if batch
                    else {source: dict(INITIAL) for source, _ in self._stage.sources}
                )
                offsets = self._ask(before)
                if offsets is None:
                    yield False
                    continue
                bucket = max(position_of(offset).bucket for offset in offsets.values())
                logged = Logged(offsets, bucket * self._pipeline.bucket_ms)
                self._port.disk_write()
                task.directory().log(batch, logged)
            else:
                self._port.network.history.reached("logged batch run again")
            yield True
            yield from self._run_batch(directory, batch, logged, blocks, readers)
            batch += 1

    def _ask(self, before: dict[str, Offset]) -> dict[str, Offset] | None:
        """Return the next offset of every source, or None where none has moved. As Spark does: it
        asks them in order, and has a batch as soon as any source has moved.
        """
        offsets = dict(before)
        for number, (source, name) in enumerate(self._stage.sources):
            answer = self._task.driver.advance(
                self._task.query, name, position_fields(before[source]), number
            )
            if answer is not None:
                offsets[source] = answer
        return None if offsets == before else offsets

    def _run_batch(
        self,
        directory: Directory,
        batch: int,
        logged: Logged,
        blocks: BlockWriter | UnwrittenBlocks,
        readers: dict[str, BlockReader],
    ) -> Steps:
        """One batch, from its log to its commit."""
        stage = self._stage
        width_ms = self._pipeline.bucket_ms
        clock = self._context.clock
        task = self._task
        before = position_of(
            directory.logged[batch - 1].offsets[stage.reads[0]] if batch else INITIAL
        )
        by_input: dict[str, list[Row]] = {}
        for source, name in stage.sources:
            found = self._rows(readers, source, logged.offsets[source])
            if name in by_input:  # joined with itself
                self._port.network.history.reached("input read twice")
                found = [row for row in by_input[name] if row in found]
            by_input[name] = found
        rows = [row for found in by_input.values() for row in found]
        is_cut = least_kept(logged.offsets.values()) < KEPT_ALL
        keeps_keys = self._pipeline.stages[stage.name].shed.kind == "keys"
        rows_read = len(rows) if is_cut and keeps_keys else None
        if before.bucket >= self._port.link.wrong_after:
            rows = self._spoilt(rows)
        yield True
        state: State = directory.state(batch - 1)
        version = 1 if stage.adds_column else self._port.link.version
        in_state = stage.version_is_in_state
        state, results = operate(
            stage.operator,
            state,
            rows,
            logged.watermark_ms // width_ms,
            width_ms,
            version_adds(version) if in_state else 0,
        )
        results = [
            row if in_state and is_window(row) else of_version(row, version) for row in results
        ]
        begun_ms = clock.monotonic_ms()
        clock.sleep_ms(self._rng.randint(1, 20))
        start = task.driver.begin(
            task.query,
            [logged.offsets[source] for source, _ in stage.sources],
            logged.watermark_ms,
            before,
        )
        clock.sleep_ms(stage.batch_ms)
        per_bucket_ms = stage.bucket_percent * width_ms // 100
        buckets = _buckets_taken(logged.offsets) if per_bucket_ms else 0
        self._core.work(clock, len(rows) * stage.row_ms + buckets * per_bucket_ms)
        function_ms = stage.function_ms + self._first_batches.take_ms(start.rows)
        if function_ms:
            clock.sleep_ms(function_ms)
        is_stable = start.kind is BoundaryKind.STABLE
        fails = (
            None
            if is_stable or not self._port.link.branch_failures
            else self._port.link.branch_failures.pop()
        )
        if fails is not None and fails % 2 == 0:
            self._fail(f"batch {batch}, before its blocks", fails)
        parts = self._write(blocks, results, start.before.bucket)
        if fails is not None:
            self._fail(f"batch {batch}, with its blocks written", fails)
        if self._rng.random() < 0.1:
            self._port.network.history.reached("task run again")
            parts = self._write(blocks, results, start.before.bucket)
        yield True
        if not task.driver.finish(task.query, batch, parts, rows_read):
            return
        self._port.crash_point(
            "processing.boundary_appended" if is_stable else "processing.tentative_appended"
        )
        yield True
        self._port.disk_write()
        task.directory().commit(batch, state)
        task.done(
            BatchDone(
                batch,
                start,
                sum(part.rows for part in parts if not part.is_rejected),
                (clock.monotonic_ms() - begun_ms) / 1_000,
                sum(part.rows for part in parts if part.is_rejected),
            )
        )
        yield True

    def _rows(self, readers: Mapping[str, BlockReader], name: str, offset: Offset) -> list[Row]:
        """Return the rows of input ``name`` that the plan ``offset`` takes and keeps."""
        rows: list[Row] = []
        kept, key = kept_of(offset), self._pipeline.stages[self._stage.name].shed.by.get(name)
        for stream, taken in taken_by_stream(offset).items():
            for bucket, table in readers[stream].read_buckets(taken):
                if key is not None:
                    table = kept_rows(table, key, salt_of(self._stage.name), kept)  # noqa: PLW2901
                found = [*zip(*(table.column(each).to_pylist() for each in _COLUMNS), strict=True)]
                if found and new_column.uses(self._stage, self._port.link.version):
                    found = new_column.read(stream, bucket, table, found)
                rows += halves.own_rows(self._pipeline.stages[self._stage.name], found)
        return rows

    def _spoilt(self, rows: list[Row]) -> list[Row]:
        """Return the input as a process that computes wrong rows reads it."""
        link = self._port.link
        if link.makes_wrong_rows:
            rows = [(*row[:3], row[3] + 1) for row in rows]
            self._context.clock.sleep_ms(link.wrong_ms)
        if link.leaves_out:
            rows = [row for row in rows if row[1] % _LEAVES_OUT == 0]
        return rows

    def _fail(self, where: str, choice: int) -> None:
        error = branch_failure(f"{self._task.query}, {where}", choice)
        self._port.note("branch fails", self._task.query, isinstance(error, DataMissing))
        raise error

    def _write(
        self, blocks: BlockWriter | UnwrittenBlocks, results: list[Row], closed: int
    ) -> tuple[Part, ...]:
        """Write the blocks of a batch's results."""
        by_bucket: dict[int, list[Row]] = {}
        for row in results:
            by_bucket.setdefault(bucket_of(row[0], self._pipeline.bucket_ms), []).append(row)
        assert all(bucket > closed for bucket in by_bucket), (
            f"results of closed buckets: {sorted(by_bucket)} up to {closed}"
        )
        only, slices = self._task.output.only, []
        for bucket in sorted(by_bucket if only is None else only & by_bucket.keys()):
            event_times, ids, keys, values = (
                pa.array(column, pa.int64()) for column in zip(*by_bucket[bucket], strict=True)
            )
            columns, schema = [ids, keys, values, event_times], SCHEMA
            if self._stage.has_more_columns:
                replica, schema = int(self._task.output.replica), WIDE_SCHEMA
                columns += more_columns.arrays(by_bucket[bucket], replica)
            if self._stage.has_notes:
                columns, schema = [*columns, notes.array(by_bucket[bucket])], NOTED_SCHEMA
            if new_column.adds(self._stage, self._port.link.version):
                columns = [*columns, new_column.array(by_bucket[bucket])]
                schema = EXTENDED_SCHEMA
            slices.append(
                (
                    bucket % self._pipeline.partitions,
                    bucket,
                    pa.Table.from_arrays(columns, schema=schema),
                )
            )
        if slices and self._task.output.is_written and self._task.output.epoch < 0:
            self._context.logger.error("a query without an epoch writes results")
        return blocks.write(slices)
