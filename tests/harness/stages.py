"""A stage on a real broker and real Spark, fed bucket by bucket: what tests of processing need."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import textwrap
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

import pyarrow as pa
import structlog
from prometheus_client import CollectorRegistry

from anabranch.adapters.disk.checkpoints import ReplicaDisks
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.spark.engine import SparkEngine
from anabranch.adapters.spark.settings import SparkSettings
from anabranch.adapters.spark.starting import StartingSpark
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec.blocks import split_by_bucket
from anabranch.codec.catalog import TopicSettings
from anabranch.pipeline.file import load
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.model import Pipeline
from anabranch.process.crash_points import crash_point
from anabranch.process.frame import ServiceContext
from anabranch.process.metrics import ServiceMetrics
from anabranch.process.settings import ServiceSettings
from anabranch.processing.stage_replica import StageReplica
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    EpochStarted,
    LogEntry,
    Part,
)
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from harness.waiting import wait_until

RECORD = """
{"type": "record", "name": "reading", "fields": [
  {"name": "key", "type": "long"}, {"name": "value", "type": "long"},
  {"name": "note", "type": ["null", "string"], "default": null},
  {"name": "level", "type": "double", "default": 0.0}, {"name": "time", "type": "long"}]}
"""
WIDTH_MS = 100
STARTS_WITHIN_S = 300
"""A cold Spark on a busy machine, until its first results."""

MODULES = Path(tempfile.mkdtemp(prefix="anabranch-functions-"))
"""Folder that also has the functions of all pipelines of this process. Spark's machine is started
once, and what it starts for ``transformWithState`` sees the Python path of that moment, not the
folder of a later test's pipeline.
"""
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(MODULES), *filter(None, [os.environ.get("PYTHONPATH")])]
)
atexit.register(shutil.rmtree, MODULES, ignore_errors=True)


def write_pipeline(
    folder: Path,
    name: str,
    functions: str,
    *,
    sources: Sequence[str] = ("a",),
    stages: str,
    replicas: int = 1,
    live: bool = False,
    max_delay_ms: int = 3_000,
    apart: bool = True,
    more: str = "",
) -> Pipeline:
    """Write a pipeline file with its functions beside it. ``apart``: each replica has a node of its
    own, of the same name. ``more``: further sections. ``stages``: YAML of the stages, indented by
    two; ``functions``: source of the module ``functions_<name>``. ``live``: the output has a live
    topic.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reading.avsc").write_text(RECORD)
    for place in (folder, MODULES):
        (place / f"functions_{name}.py").write_text(textwrap.dedent(functions))
    lines = [
        f"pipeline: {name}",
        f"bucket: {WIDTH_MS}ms",
        f"max_delay: {max_delay_ms}ms",
        "partitions: 2",
        "sources:",
    ]
    for source in sources:
        lines += [
            f"  {source}:",
            f"    topics: [{name}.in.{source}]",
            "    record: reading.avsc",
            "    format: json",
            "    event_time: {field: time, unit: ms}",
        ]
    lines += [
        "stages:",
        textwrap.indent(
            textwrap.dedent(stages).strip().replace("MODULE", f"functions_{name}"), "  "
        ),
    ]
    last = [
        line.strip().rstrip(":")
        for line in lines[-1].splitlines()
        if line.startswith("  ") and not line.startswith("   ")
    ][-1]
    path = folder / f"{name}.yaml"
    lines += [
        "outputs:",
        "  out:",
        f"    stage: {last}",
        f"    corrected: {{topic: {name}.out, format: json, key: []}}",
    ]
    if live:
        lines += [f"    live: {{topic: {name}.live, format: json}}"]
    lines += [more] if more else []
    path.write_text("\n".join(lines) + "\n")
    own = [
        f"  {label}: [{label}]" for stage in load(path).placed_stages() for label in stage.labels()
    ]
    if apart:
        path.write_text("\n".join([*lines, "nodes:", *own]) + "\n")
    return load(path)


def topics_of(pipeline: Pipeline) -> list[TopicSettings]:
    """Return the internal topics, as ``anabranch up`` creates them on its own broker."""
    return [settings for _, settings in internal_topics(pipeline, replication=1)]


def create_topics(kafka: str, pipeline: Pipeline) -> None:
    """Create the internal topics of every stream on a broker."""
    admin = KafkaEventLog(kafka).admin()
    admin.create(topics_of(pipeline))
    admin.close()


def rows_of(bucket: int) -> list[tuple[int, int, int]]:
    """Steady traffic, as ``readings`` takes it: a row every 7 ms."""
    return [
        (event_time, event_time % 3, event_time % 17 - 3)
        for event_time in range((bucket - 1) * WIDTH_MS + 1, bucket * WIDTH_MS + 1, 7)
    ]


def sums_of(values: Iterable[tuple[int, int]], last: int) -> Counter[tuple[int, int, int]]:
    """(end, rows, sum) of each window of 200 ms that ends with bucket ``last`` or before, of
    (event time, value).
    """
    counts: Counter[int] = Counter()
    sums: Counter[int] = Counter()
    for time_ms, value in values:
        stop = time_ms // 200 * 200 + 200
        counts[stop] += 1
        sums[stop] += value
    return Counter((stop, n, sums[stop]) for stop, n in counts.items() if stop <= last * WIDTH_MS)


KEYED_SUMS = """
from pyspark.sql import functions as F

def sums(a):
    return (
        a.groupBy(F.window("event_time", "200 milliseconds"), "key")
        .agg(F.sum("value").alias("sum"))
        .select("key", "sum", F.col("window.end").alias("event_time"))
    )

def counts(sums):
    return (
        sums.groupBy(F.window("event_time", "200 milliseconds"))
        .agg(F.count("*").alias("n"))
        .select("n", F.col("window.end").alias("event_time"))
    )
"""
"""Functions of two stages; ``keyed_sums`` are the results of the first."""


def keyed_sums(rows: Iterable[tuple[int, int, int]], last: int) -> Counter[tuple[int, int, int]]:
    """(end, key, sum) of each window of 200 ms that ends with bucket ``last`` or before, of
    (event time, key, value).
    """
    found: Counter[tuple[int, int]] = Counter()
    for time_ms, key, value in rows:
        found[time_ms // 200 * 200 + 200, key] += value
    return Counter((end, key, n) for (end, key), n in found.items() if end <= last * WIDTH_MS)


def readings(rows: Iterable[tuple[int, ...] | dict[str, Any]]) -> pa.Table:
    """Rows of the record ``reading``: (event time, key, value), or columns by name."""
    full = []
    for row in rows:
        given = (
            row if isinstance(row, dict) else {"event_time": row[0], "key": row[1], "value": row[2]}
        )
        full.append(
            {"key": 0, "value": 0, "note": None, "level": 0.0, "time": given["event_time"], **given}
        )
    schema = pa.schema(
        [
            ("key", pa.int64()),
            ("value", pa.int64()),
            ("note", pa.string()),
            ("level", pa.float64()),
            ("time", pa.int64()),
            ("event_time", pa.int64()),
        ]
    )
    return pa.Table.from_pylist(full, schema=schema)


class Feed:
    """Writes a source's stream in place of ingestion."""

    def __init__(self, kafka: str, pipeline: Pipeline, source: str) -> None:
        log = KafkaEventLog(kafka)
        names = pipeline.topic_names
        self._width = pipeline.bucket_ms
        self._partitions = pipeline.partitions
        self.boundary = BoundaryWriter(
            log,
            names.boundaries(source),
            ["0"],
            EpochStarted("0", "feed", SystemEntropy().token()),
            SystemClock(),
        )
        self.epoch = self.boundary.start()
        self.blocks = BlockWriter(log, names.blocks(source, "0"), "0", self.epoch, SystemEntropy())
        self._batch = 0

    def append(self, table: pa.Table | None, closed: int) -> None:
        """One batch: ``table``'s rows (of any open bucket) and everything up to bucket
        ``closed`` closed.
        """
        slices = []
        for bucket, rows in [] if table is None else split_by_bucket(table, self._width):
            for p in range(self._partitions):
                mine = rows.take(pa.array(range(p, rows.num_rows, self._partitions), pa.int64()))
                slices.append((p, bucket, mine))
        self._batch += 1
        ident = BatchId(f"{self.epoch:012d}-000000", self._batch)
        parts = self.blocks.write(slices)
        self.boundary.append(
            BoundaryRecord("0", self.epoch, ident, self.boundary.tip(), closed, parts)
        )

    def close(self) -> None:
        """Idempotent."""
        self.blocks.close()
        self.boundary.close()


@dataclass
class RunningStage:
    """One replica in this process, stepped by a thread of its own."""

    pipeline: Pipeline
    name: str
    kafka: str
    state_dir: Path
    error: BaseException | None = None
    _replica: StageReplica | None = None

    def __post_init__(self) -> None:
        settings = ServiceSettings(
            pipeline=self.pipeline.path, name=self.name, kafka=self.kafka, state_dir=self.state_dir
        )
        registry, self._stopping = CollectorRegistry(), threading.Event()
        metrics = ServiceMetrics(
            registry, pipeline=self.pipeline.name, service="processing", name=self.name, restarts=0
        )
        context = ServiceContext(
            KafkaEventLog(self.kafka),
            None,
            SystemClock(),
            SystemEntropy(),
            registry,
            metrics,
            settings,
            self.pipeline,
            structlog.get_logger(),
            self._stopping,
        )
        self._context = context
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def check(self) -> None:
        """Raise the error that ended it."""
        if self.error is not None:
            raise self.error

    @property
    def service(self) -> StageReplica:
        """The replica, as soon as Spark has started."""

        def made() -> StageReplica | None:
            self.check()
            return self._replica

        found = wait_until(made, STARTS_WITHIN_S, "Spark has started")
        assert found is not None
        return found

    def batches_upto(self, bucket: int, deadline_s: float = STARTS_WITHIN_S) -> int:
        """How many batches the stage needed for all up to ``bucket``: a stream is stable a
        moment before the stage counts its batch.
        """

        def counted() -> bool:
            self.check()
            return (self.service.status.last_bucket_ms or 0) >= bucket * self.pipeline.bucket_ms

        wait_until(counted, deadline_s, f"bucket {bucket} is counted")
        return int(str(self.service.status.detail["batches"]))

    def _run(self) -> None:
        engine: SparkEngine | None = None
        try:
            settings = SparkSettings()
            starting = StartingSpark(
                self.name,
                self.pipeline,
                self.pipeline.stages,
                settings,
                self.state_dir / "scratch",
            )
            engine = SparkEngine(self._context, settings, starting)
            disks = ReplicaDisks(self.state_dir / "processing", crash_point=crash_point)
            node = self.pipeline.places().node_of(self.name)
            self._replica = StageReplica(self._context, engine, disks, node)
            self._replica.start()
            while not self._stopping.is_set():
                self._replica.step()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error
        finally:
            if self._replica is not None:
                self._replica.stop()
            if engine is not None:
                engine.close()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(180)
        assert not self._thread.is_alive(), "the stage did not stop"


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: sorted((name, str(value)) for name, value in row.items()))


class Checked(Protocol):
    """Interface of what runs a stage: a ``RunningStage`` or a ``StageProcess``."""

    def check(self) -> None:
        """Raise the error that ended it."""


class Output:
    """Reads a stage's stream."""

    def __init__(self, kafka: str, pipeline: Pipeline, stage: str) -> None:
        names = pipeline.topic_names
        self.reader = BoundaryReader(
            KafkaEventLog(kafka), names.boundaries(stage), pipeline.stream_writers(stage)
        )
        self._log, self._topic_of = KafkaEventLog(kafka), partial(names.blocks, stage)
        self._blocks = BlockReader(self._log, self._topic_of, SystemClock())

    def tentative(self) -> list[BoundaryRecord]:
        """Return a list to which reading adds each tentative record from now on."""
        found: list[BoundaryRecord] = []

        def take(_: int, entry: LogEntry, outcome: Outcome) -> None:
            if outcome.accepted and isinstance(entry, BoundaryRecord):
                found.extend([entry] if entry.kind is BoundaryKind.TENTATIVE else [])

        self.reader.listen(take)
        return found

    def wait_closed(
        self, bucket: int, stage: Checked | None = None, deadline_s: float = STARTS_WITHIN_S
    ) -> None:
        """Until the stream is stable up to ``bucket``; raises what ended the stage."""

        def closed() -> bool:
            if stage is not None:
                stage.check()
            self.reader.poll(50)
            return self.reader.log_state.upto >= bucket

        wait_until(closed, deadline_s, f"bucket {bucket} of {self.reader.log_state.upto}")

    def wait_replica(
        self, replica: str, bucket: int, stage: Checked, deadline_s: float = STARTS_WITHIN_S
    ) -> None:
        """Until ``replica`` itself has closed ``bucket``."""

        def closed() -> bool:
            stage.check()
            self.reader.poll(50)
            return self.reader.log_state.closed(replica) >= bucket

        wait_until(closed, deadline_s, f"bucket {bucket} of replica {replica}")

    def replica_rows(self, replica: str, first: int, last: int) -> dict[int, list[dict[str, Any]]]:
        """Return what ``replica`` itself wrote, whichever was first; rows sorted."""
        log_state = self.reader.log_state
        wanted = [
            (b, replica, parts)
            for b in range(first, last + 1)
            if (parts := log_state.replica_bucket(replica, b))
        ]
        return {
            bucket: _sorted(table.to_pylist())
            for bucket, table in self._blocks.read_buckets(wanted)
        }

    def buckets(self, first: int, last: int) -> dict[int, list[dict[str, Any]]]:
        """Rows of the stable buckets, sorted."""
        return {bucket: _sorted(table.to_pylist()) for bucket, table in self.tables(first, last)}

    def tables(self, first: int, last: int) -> list[tuple[int, pa.Table]]:
        """Return the stable buckets as they are in the blocks."""
        return list(self._blocks.read_buckets(self.reader.log_state.stable(first, last)))

    def rows(self, replica: str, parts: Sequence[Part]) -> pa.Table | None:
        """All rows of ``parts``; None: they have none."""
        return self._blocks.read(replica, parts)

    def notices(self, replica: str, parts: Sequence[Part]) -> pa.Table:
        """Return the notices of rows of ``parts`` that were too large for the stream."""
        with closing(BlockReader(self._log, self._topic_of, SystemClock(), with_notices=True)) as r:
            return r.read(replica, [part for part in parts if part.is_rejected])

    def close(self) -> None:
        """Idempotent."""
        self.reader.close()
        self._blocks.close()
