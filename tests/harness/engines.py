"""Engines for the conformance suite, the simulation's or Spark: one pipeline, rows to read, a
driver that plans by hand.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.adapters.memory.index import LocalIndex
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.spark import sink
from anabranch.adapters.spark.engine import SparkEngine
from anabranch.adapters.spark.settings import SparkSettings
from anabranch.adapters.spark.starting import StartingSpark
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec.blocks import row_hashes
from anabranch.codec.plan_offsets import (
    Offset,
    kind_of,
    missing_of,
    offset_of,
    position_of,
    rows_of,
)
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.source_columns import source_schema
from anabranch.ports import (
    BatchDone,
    Clock,
    Engine,
    EventLog,
    PreparedStage,
    QueryOutput,
    RunningQuery,
    TopicPartition,
)
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.log.records import BoundaryKind, Part
from anabranch.protocol.stage.kept_rows import is_kept, salt_of
from anabranch.protocol.stage.planned_batch import PlannedBatch
from anabranch.protocol.stage.planner import Plan, QueryPosition, check_joint, check_watermark
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.block_writer import BlockWriter
from harness import outputs
from harness.stages import create_topics, topics_of
from simulation.disk import Directory, Machine, SimulatedDisk
from simulation.engine import SimulatedEngine
from simulation.history import History
from simulation.network import Link, Network, Port, SimulatedLog
from simulation.options import WINDOW_BUCKETS, StageOptions
from simulation.scheduler import Process, Scheduler
from simulation.side_ports import SimulatedClock, WorldClock
from simulation.workload import BASE_MS, Row

WIDTH_MS: Final = 100
REPLICA: Final = "0"
SHED: Final = {
    "doubled": "shed: rows",
    "paired": "shed: rows",
    "sums": "shed: keys\n    shard_by: key",
    "weighed": "shed: {transform: FUNCTIONS:matters}",
    "valued": "shed: {by: v}",
}
"""Choice of rows of each stage, for plans that keep a part of them."""
SOURCE: Final = "a"
_REST_MS: Final = 20
_DEADLINE_MS: Final = 60_000
RECORD = """
{"type": "record", "name": "reading", "fields": [
  {"name": "id", "type": "long"}, {"name": "key", "type": "long"}, {"name": "v", "type": "long"},
  {"name": "time", "type": "long"}]}
"""
FUNCTIONS = '''
import os
from pyspark.sql import functions as F

def once(batches):
    """The first task after the file was made fails, with its rows given."""
    yield from batches
    if os.path.exists(FLAG):
        os.remove(FLAG)
        raise OSError("a task")

def doubled(a):
    fails = F.udf(lambda v: v // (v - 13) * 0 + v, "bigint")
    rows = a.select("id", "key", (2 * fails("v") + 1).alias("v"), "event_time")
    return rows.mapInArrow(once, rows.schema)

def weighed(a):
    """By Spark alone: the simulation has no function that says which rows matter."""
    return a.select("id", "key", "v", "event_time")

def valued(a):
    """The same, where an expression says it."""
    return weighed(a)

def matters(rows):
    return rows["v"]

def paired(a):
    """Each row with itself: the input is used twice."""
    x, y = a.alias("x"), a.alias("y")
    near = F.expr("x.id = y.id AND x.event_time = y.event_time")
    return x.join(y, near).selectExpr("x.id", "x.key", "x.v + y.v + 1 AS v", "x.event_time")

def sums(a):
    windows = a.groupBy(F.window("event_time", "WINDOW milliseconds"), "key").agg(
        (F.sum("v") + 1000).alias("v")
    )
    return windows.select(
        F.lit(0).cast("bigint").alias("id"), "key", "v", F.col("window.end").alias("event_time")
    )
'''


def write_pipeline(folder: Path, name: str) -> Pipeline:
    """Write a pipeline with a source, a stage without state and one with; each replica's files are
    below ``folder``.
    """
    (folder / "reading.avsc").write_text(RECORD)
    functions = FUNCTIONS.replace("FLAG", repr(str(folder / "fail"))).replace(
        "WINDOW", str(WINDOW_BUCKETS * WIDTH_MS)
    )
    (folder / f"functions_{name}.py").write_text(functions)
    stages = "".join(
        f"  {stage}:\n    reads: [{SOURCE}]\n    participant: north\n    replicas: 1\n   "
        f" transform: functions_{name}:{stage}\n   "
        f" {shed.replace('FUNCTIONS', f'functions_{name}')}\n"
        for stage, shed in SHED.items()
    )
    (folder / "pipeline.yaml").write_text(
        f"pipeline: {name}\nbucket: {WIDTH_MS}ms\nmax_delay: 3000ms\npartitions: 2\nsources:\n "
        f" {SOURCE}:\n    topics: [{name}.in]\n    record: reading.avsc\n    format: json\n   "
        f" event_time: {{field: time, unit: ms}}\nstages:\n{stages}outputs:\n  out:\n    stage:"
        f" sums\n    corrected: {{topic: {name}.out, format: json, key: []}}\n"
    )
    return load(folder / "pipeline.yaml")


class HandDriver:
    """``ports.QueryDriver`` of one input, by plans that a test adds. Notes what it is asked
    and told.
    """

    def __init__(self, clock: Clock, dies_at: str = "", hold_ms: int = 0) -> None:
        """``dies_at``: ``advance``, ``begin``, ``finish`` or ``recorded``, then a number of a
        plan. ``hold_ms``: that a batch takes longer.
        """
        self._clock = clock
        self._dies_at = dies_at
        self._hold_ms = hold_ms
        self._plans: dict[int, Plan] = {}
        self.given_out: list[int] = []
        """The plans that were given out."""
        self.begun: list[tuple[int, list[Offset], int]] = []
        """(plan, its offsets, watermark) of each batch that was begun."""
        self.made: dict[int, tuple[Part, ...]] = {}
        """Parts that were last recorded for each plan."""
        self.read: dict[int, int | None] = {}
        """Number of rows that each plan's batch said it had read."""
        self.order: list[str] = []
        self.asked: list[int] = []
        """The sources that asked, by number."""

    def add(self, plan: Plan) -> None:
        """Add a plan that runs after ``plan.before``."""
        self._plans[plan.before.sequence] = plan

    def advance(self, query: str, name: str, start: Offset, source: int = 0) -> Offset | None:
        """See the port."""
        assert name == SOURCE
        self.asked.append(source)
        plan = self._plans.get(position_of(start).sequence)
        if plan is None:
            return None
        self._die("advance", plan.after.sequence)
        self.given_out.append(plan.after.sequence)
        return offset_of(plan, name)

    def begin(
        self, query: str, offsets: list[Offset], watermark_ms: int, before: QueryPosition
    ) -> PlannedBatch:
        """See the port."""
        after = check_joint(
            {str(number): position_of(offset) for number, offset in enumerate(offsets)}
        )
        check_watermark(after, watermark_ms, WIDTH_MS)
        self.order.append(f"begin {after.sequence}")
        self.begun.append((after.sequence, offsets, watermark_ms))
        self._die("begin", after.sequence)
        self._clock.sleep_ms(self._hold_ms)
        rows = rows_of(offsets)
        return PlannedBatch(kind_of(offsets[0]), before, after, rows, missing_of(offsets[0]))

    def finish(
        self, query: str, batch: int, parts: tuple[Part, ...], rows_read: int | None = None
    ) -> bool:
        """See the port."""
        plan = self.begun[-1][0]
        self._die("finish", plan)
        self.made[plan], self.read[plan] = parts, rows_read
        self.order.append(f"finish {plan}")
        self._die("recorded", plan)
        return True

    def _die(self, at: str, plan: int) -> None:
        if self._dies_at == f"{at} {plan}":
            raise Unavailable(f"a crash at {self._dies_at}")


@dataclass
class EngineRig:
    """An engine, and what is around it."""

    engine: Engine
    log: EventLog
    clock: Clock
    pipeline: Pipeline
    place: Callable[[str], str]
    """Makes an empty directory for a query's checkpoint, or names the one that there is."""
    fail_a_task: Callable[[], None]
    """A task of the next batch is run twice."""
    fail_a_branch: Callable[[], int]
    """The stage's function fails in the next tentative batch that has the value which is
    returned.
    """
    _prepared: dict[str, PreparedStage] = field(default_factory=dict)
    _count: int = 0

    def name(self) -> str:
        """Return an unused name of a query."""
        self._count += 1
        return f"query-{self._count}"

    def stage(self, name: str) -> PreparedStage:
        """``doubled``, ``paired`` or ``sums``."""
        if name not in self._prepared:
            self._prepared[name] = self.engine.prepare(
                f"{name}.{REPLICA}", name, {SOURCE: source_schema(self.pipeline, SOURCE)}
            )
        return self._prepared[name]

    def start(
        self,
        stage: str,
        driver: HandDriver,
        query: str,
        *,
        only: frozenset[int] | None = None,
        is_written: bool = True,
        in_place: bool = True,
        done: Callable[[BatchDone], None] = lambda _: None,
    ) -> RunningQuery:
        """Start a query of ``stage`` in the place of ``query``."""
        place = self.place(query) if in_place else None
        return self.stage(stage).start(
            query, driver, QueryOutput(REPLICA, 7, only, is_written), place, done
        )

    def plan(
        self, before: Plan | None, upto: int, *rows: Row, kind: BoundaryKind = BoundaryKind.STABLE
    ) -> Plan:
        """Write ``rows`` and return the plan after ``before`` that reads them and goes up to bucket
        ``upto``.
        """
        start = QueryPosition() if before is None else before.after
        found: dict[int, list[Row]] = {}
        for row in rows:
            found.setdefault(-(-row[0] // WIDTH_MS), []).append(row)
        writer = BlockWriter(
            self.log,
            self.pipeline.topic_names.blocks(SOURCE, REPLICA),
            REPLICA,
            1,
            SeededEntropy(self._next_number()),
        )
        slices = [
            (bucket % self.pipeline.partitions, bucket, self._table(found[bucket]))
            for bucket in sorted(found)
        ]
        parts = writer.write(slices) if slices else ()
        writer.close()
        taken = tuple(
            (bucket, REPLICA, tuple(part for part in parts if part.bucket == bucket))
            for bucket in sorted(found)
        )
        after = QueryPosition(start.sequence + 1, upto, start.has_rows or bool(rows))
        return Plan(start, after, ((SOURCE, taken),), len(rows), kind)

    def kept(self, stage: str, rows: list[Row], kept: int) -> list[Row]:
        """Return those of ``rows`` that a plan of ``stage`` keeps, by the rule, row by row."""
        table, (columns,) = self._table(rows), self.pipeline.stages[stage].shed.by.values()
        identities = row_hashes(table.select(columns) if columns else table).tolist()
        salt = salt_of(stage)
        return [
            row for row, each in zip(rows, identities, strict=True) if is_kept(each, salt, kept)
        ]

    def delete_input(self) -> None:
        """All blocks of the source that are there now."""
        admin, reader = self.log.admin(), self.log.reader(committed=False)
        topic = self.pipeline.topic_names.blocks(SOURCE, REPLICA)
        places = [TopicPartition(topic, partition) for partition in range(self.pipeline.partitions)]
        admin.delete_before({at: reader.offsets(at)[1] for at in places})
        admin.close()
        reader.close()

    def block_count(self, stage: str) -> int:
        """Return the number of blocks of a stage's stream."""
        reader = self.log.reader(committed=False)
        topic = self.pipeline.topic_names.blocks(stage, REPLICA)
        places = [TopicPartition(topic, partition) for partition in range(self.pipeline.partitions)]
        count = sum(reader.offsets(at)[1] for at in places)
        reader.close()
        return count

    def results(self, stage: str, parts: tuple[Part, ...]) -> list[tuple[int, int, int]]:
        """(time, key, v) of the rows that ``parts`` name, sorted."""
        names = self.pipeline.topic_names
        reader = BlockReader(self.log, lambda replica: names.blocks(stage, replica), self.clock)
        found = [row for table in reader.read_parts(REPLICA, parts) for row in table.to_pylist()]
        reader.close()
        return sorted((row["event_time"], row["key"], row["v"]) for row in found)

    def until(self, condition: Callable[[], object], query: RunningQuery, what: str) -> None:
        """Wait for ``condition``; raises what ``query`` died of."""
        deadline_ms = self.clock.monotonic_ms() + _DEADLINE_MS
        while not condition():
            assert not query.ended(_REST_MS), f"ended, and not {what}"
            assert self.clock.monotonic_ms() < deadline_ms, f"not {what}"

    def rest(self) -> None:
        """Let time pass in which nothing is expected."""
        for _ in range(10):
            self.clock.sleep_ms(_REST_MS)

    def _next_number(self) -> int:
        self._count += 1
        return self._count

    def _table(self, rows: list[Row]) -> pa.Table:
        schema = source_schema(self.pipeline, SOURCE)
        columns: Mapping[str, list[Any]] = {
            "id": [row[1] for row in rows],
            "key": [row[2] for row in rows],
            "v": [row[3] for row in rows],
            "time": [row[0] for row in rows],
            "event_time": [row[0] for row in rows],
        }
        return pa.table({name: columns[name] for name in schema.names}, schema=schema)


@contextmanager
def simulated(folder: Path, name: str) -> Iterator[EngineRig]:
    """Yield the engine of the simulation. The caller is its world: the engine's threads run while
    the caller waits.
    """
    pipeline = write_pipeline(folder, name)
    scheduler, rng = Scheduler(random.Random(1)), random.Random(2)
    log = LocalEventLog(WorldClock(scheduler))
    port = Port(
        Network(scheduler, log, LocalIndex(WorldClock(scheduler)), History(), random.Random(3)),
        Process("processing/s.0", 0),
        Link(),
    )
    clock = SimulatedClock(port, BASE_MS)
    admin = log.admin()
    admin.create(topics_of(pipeline))
    machine = Machine()
    disk = SimulatedDisk(machine)
    options = {
        "doubled": StageOptions(
            "doubled", (SOURCE,), "map", 1, is_batch_safe=True, policy="process"
        ),
        "paired": StageOptions(
            "paired", (SOURCE,), "map", 1, is_batch_safe=True, policy="process", twice=1
        ),
        "sums": StageOptions("sums", (SOURCE,), "sum", 1, is_batch_safe=True, policy="process"),
    }
    context = outputs.context(
        SimulatedLog(port), pipeline, clock, SeededEntropy(4), "processing", "s.0"
    )

    def place(query: str) -> str:
        if query not in machine.directories:
            machine.add(Directory(query))
        return query

    def fail_a_task() -> None:
        chances.append(0.0)

    chances: list[float] = []
    draw = rng.random
    vars(rng)["random"] = lambda: chances.pop() if chances else max(0.5, draw())

    def fail_a_branch() -> int:
        port.link.branch_failures.append(1)
        return 0

    engine = SimulatedEngine(context, port, lambda _: disk, options, rng)
    yield EngineRig(engine, context.log, clock, pipeline, place, fail_a_task, fail_a_branch)
    scheduler.close()


@contextmanager
def spark(kafka: str, folder: Path, name: str) -> Iterator[EngineRig]:
    """Spark, on a broker."""
    pipeline = write_pipeline(folder, name)
    create_topics(kafka, pipeline)
    clock = SystemClock()
    context = outputs.context(
        KafkaEventLog(kafka), pipeline, clock, SystemEntropy(), "processing", "s.0", kafka=kafka
    )
    settings = SparkSettings(master="local[2,3]", memory="512m", compilers="quick")
    starting = StartingSpark("conformance", pipeline, pipeline.stages, settings, folder / "scratch")
    engine = SparkEngine(context, settings, starting)
    driver_rows_max = sink.DRIVER_ROWS_MAX

    def fail_a_task() -> None:
        (folder / "fail").touch()

    try:
        vars(sink)["DRIVER_ROWS_MAX"] = (
            0  # tasks write: what a driver writes no task can write twice
        )
        yield EngineRig(
            engine,
            context.log,
            clock,
            pipeline,
            lambda query: str(folder / "state" / query),
            fail_a_task,
            lambda: 13,
        )
    finally:
        vars(sink)["DRIVER_ROWS_MAX"] = driver_rows_max
        engine.close()
