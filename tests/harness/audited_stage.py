"""A stage that was sold, and what an auditor needs to judge its seller: a source with blocks, the
seller's results with digests, a contract with a movement. Its engine is a few lines, not Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa

from anabranch.adapters.disk.audit_nonces import NonceFile
from anabranch.adapters.key_files import write_key
from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.auditor.service import AuditorService
from anabranch.codec.blocks import digest
from anabranch.codec.plan_offsets import INITIAL, position_of, taken_of
from anabranch.federation.log_reader import FederationReader
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.ports import (
    BatchDone,
    Clock,
    EventLog,
    PreparedStage,
    QueryDriver,
    QueryOutput,
    RunningQuery,
    StartingEngine,
    TopicPartition,
)
from anabranch.process.frame import ServiceContext, StartEngine
from anabranch.protocol.federation.contract_log import LoadLog
from anabranch.protocol.federation.contracts import AuditClauses, Contract
from anabranch.protocol.federation.ledger import AuditCommitted, Audited, Ledger
from anabranch.protocol.federation.movements import Ended, EndReason
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part
from anabranch.protocol.stage.planner import PlanTraits
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.block_writer import BlockWriter, UnwrittenBlocks
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from harness import outputs
from harness.federations import FederationWorld
from harness.markets import DAY_MS, answer, contract, started
from harness.stages import WIDTH_MS, write_pipeline

WINDOW_MS: Final = 200
STAGE: Final = "counts"
FUNCTIONS: Final = """
from pyspark.sql import functions as F


def counts(a):
    windows = a.groupBy(F.window("event_time", "200 milliseconds"), "key").agg(
        F.count("*").alias("n"), F.sum("value").alias("total"))
    return windows.select("key", "n", "total", F.col("window.end").alias("event_time"))
"""
STAGES: Final = """
counts:
  participant: north
  reads: [a]
  transform: MODULE:counts
  ha: upstream_backup
  state_horizon: 200ms
"""
Row = tuple[int, int, int]
"""Event time, key, value."""
Spoil = Callable[[int, pa.Table], pa.Table]
"""(bucket, what is right) -> what the seller makes."""


def fed(bucket: int) -> list[Row]:
    """Steady traffic."""
    last = bucket * WIDTH_MS
    return [(last - late, late % 3, bucket % 17 + late) for late in (0, 40, 99)]


def as_read(rows: Iterable[Row]) -> pa.Table:
    """Return the rows as ingestion writes them."""
    times, keys, values = zip(*rows, strict=True)
    return pa.table(
        {
            "key": pa.array(keys, pa.int64()),
            "value": pa.array(values, pa.int64()),
            "note": pa.array([None] * len(times), pa.string()),
            "level": pa.array([0.0] * len(times), pa.float64()),
            "time": pa.array(times, pa.int64()),
            "event_time": pa.array(times, pa.int64()),
        }
    )


def results(rows: Iterable[Row], after_ms: int, upto_ms: int) -> dict[int, pa.Table]:
    """Return the results of the windows that end in (after, upto], by bucket."""
    counts: Counter[tuple[int, int]] = Counter()
    sums: Counter[tuple[int, int]] = Counter()
    for time_ms, key, value in rows:
        end = time_ms // WINDOW_MS * WINDOW_MS + WINDOW_MS
        if after_ms < end <= upto_ms:
            counts[end, key] += 1
            sums[end, key] += value
    by_bucket: dict[int, list[tuple[int, int, int, int]]] = {}
    for (end, key), count in counts.items():
        row = key, count, sums[end, key], end
        by_bucket.setdefault(-(-end // WIDTH_MS), []).append(row)
    names = ("key", "n", "total", "event_time")
    return {
        bucket: pa.table(
            [pa.array(column, pa.int64()) for column in zip(*made, strict=True)], names=names
        )
        for bucket, made in by_bucket.items()
    }


@dataclass
class FewLines:
    """``ports.Engine`` and all below it, for the stage above and one query at a time."""

    context: ServiceContext
    rows_max: int = 50
    pace_ms: int = 0
    cores: int = 2
    waiting_for: str | None = None
    queries: int = 0
    """Number of queries that were started."""
    begun: list[int] = field(default_factory=list)
    """The first bucket that each query read."""
    spoil: Callable[[int, dict[int, pa.Table]], dict[int, pa.Table]] = lambda _query, made: made
    """(number of the query, what it makes) -> what it makes then."""
    dies_of: Exception | None = None
    is_closed: bool = False
    traits: PlanTraits = field(default_factory=lambda: PlanTraits(True, True))
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    fingerprint: str = "plan"

    def prepare(self, label: str, stage: str, schemas: Mapping[str, pa.Schema]) -> PreparedStage:
        assert (stage, list(schemas), label) == (STAGE, ["a"], f"{STAGE}.audit")
        return cast("PreparedStage", self)

    def start(
        self,
        query: str,
        driver: QueryDriver,
        output: QueryOutput,
        place: str | None,
        done: Callable[[BatchDone], None],
    ) -> RunningQuery:
        self.queries += 1
        assert place is None
        assert not output.is_written
        del done
        if self.dies_of is None:
            self._run(query, driver, output)
        return cast("RunningQuery", self)

    def ended(self, wait_ms: int) -> bool:
        self.context.clock.sleep_ms(wait_ms)
        if self.dies_of is not None:
            raise self.dies_of
        return False

    def stop(self) -> None: ...

    def check(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True

    def _run(self, query: str, driver: QueryDriver, output: QueryOutput) -> None:
        names, log = self.context.pipeline.topic_names, self.context.log
        reader = BlockReader(log, lambda replica: names.blocks("a", replica), self.context.clock)
        start: dict[str, Any] = dict(INITIAL)
        rows: list[Row] = []
        number, batch = len(self.begun), 0
        while (offset := driver.advance(query, "a", start)) is not None:
            offset = json.loads(json.dumps(offset))
            upto_ms = offset["bucket"] * WIDTH_MS
            begun = driver.begin(query, [offset], upto_ms, position_of(start))
            for bucket, table in reader.read_buckets(taken_of(offset)):
                if len(self.begun) == number:
                    self.begun.append(bucket)
                columns = [
                    table.column(name).to_pylist() for name in ("event_time", "key", "value")
                ]
                rows += zip(*columns, strict=True)
            made = results(rows, begun.before.bucket * WIDTH_MS, upto_ms)
            made = self.spoil(number, made)
            only = output.only or made.keys()
            driver.finish(
                query,
                batch,
                UnwrittenBlocks().write([(0, b, table) for b, table in made.items() if b in only]),
            )
            start, batch = offset, batch + 1
        reader.close()


class AuditedStage:
    """North has sold its stage to south, under a contract of which every bucket is sampled."""

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        folder: Path,
        *,
        federation: str = "tolls",
        prefix: str = "",
        stages: str = STAGES,
    ) -> None:
        self.log = log
        self.clock = clock
        self.folder = folder
        self.pipeline = write_pipeline(
            folder,
            f"{prefix}north",
            FUNCTIONS,
            stages=stages,
            apart=False,
            more=(
                f"federation: {{name: {federation}, participant: north, auditor: auditor,"
                f" partners: {{south: [{STAGE}]}}}}"
            ),
        )
        self.book = FederationWorld(log, federation)
        admin = log.admin()
        admin.create([settings for _, settings in internal_topics(self.pipeline, 1)])
        admin.close()
        write_key(self.book.keys["auditor"], folder / "auditor.key")
        self.source = self._writer("a", "")
        self.home = self._writer(STAGE, "north.0")
        self.seller: BoundaryWriter | None = None
        self.blocks = BlockWriter(
            log,
            self.pipeline.topic_names.blocks("a", "0"),
            "0",
            self.source.epoch,
            SeededEntropy(5),
        )
        self.upto = self.first = clock.now_ms() // WIDTH_MS - 10
        self._rows: list[Row] = []
        self._batch = 0
        self.spoil: Spoil = lambda _bucket, table: table
        self.spoilt: list[int] = []
        self._close(self.home, self.upto, ())
        self._append(self.source, self.upto, ())
        self.engine: FewLines | None = None

    def _writer(self, stream: str, node: str) -> BoundaryWriter:
        token = SeededEntropy(hash((stream, node)) % 1_000).token()
        writer = BoundaryWriter(
            self.log,
            self.pipeline.topic_names.boundaries(stream),
            ["0"],
            EpochStarted("0", "f", token, bucket_ms=WIDTH_MS, node=node),
            self.clock,
        )
        writer.start()
        return writer

    @property
    def task(self) -> str:
        return f"{self.pipeline.name}.{STAGE}"

    @property
    def movement_id(self) -> str:
        return f"north-south:1/{self.task}"

    def sell(self, sample_ppm: int = 1_000_000) -> Contract:
        """Sign the contract, begin the seller's first epoch, and start the movement."""
        text = contract(
            tasks=(self.task,),
            valid_to_ms=self.clock.now_ms() + DAY_MS,
            min_hold_ms=1,
            audit=AuditClauses(1_000, 100_000, sample_ppm, 5_000),
        )
        for party in ("north", "south"):
            self.book.say(party, text)
        self.round()
        self.seller = self._writer(STAGE, "south.0")
        taken = answer(1, replace(answer(1).tasks[0], name=self.task))
        signed = self.book.keys["south"].sign(taken)
        self.book.say("north", replace(started(taken, self.task), signature=signed))
        return text

    def end(self, why: EndReason = EndReason.RECALLED) -> None:
        self.book.say("north", Ended("north-south", self.movement_id, "north", 0, why))

    def round(self) -> None:
        """Close what has ended by now, as the source and the node that runs the stage."""
        upto = self.clock.now_ms() // WIDTH_MS
        if upto == self.upto:
            return
        before, self.upto = self.upto, upto
        slices = []
        for bucket in range(before + 1, upto + 1):
            rows = fed(bucket)
            self._rows += rows
            slices.append((bucket % 2, bucket, as_read(rows)))
        self._append(self.source, upto, self.blocks.write(slices))
        made = results(self._rows, before * WIDTH_MS, upto * WIDTH_MS)
        self._rows = [row for row in self._rows if row[0] > (upto - 10) * WIDTH_MS]
        parts = []
        for bucket, table in made.items():
            given = table if self.seller is None else self.spoil(bucket, table)
            if not given.equals(table):
                self.spoilt.append(bucket)
            if given.num_rows:
                parts.append(Part(bucket, 0, "s", 1, 0, 1, given.num_rows, digest(given)))
        self._close(self.seller or self.home, upto, tuple(parts))

    def _close(self, writer: BoundaryWriter, upto: int, parts: tuple[Part, ...]) -> None:
        writer.poll()
        self._append(writer, upto, parts)

    def _append(self, writer: BoundaryWriter, upto: int, parts: tuple[Part, ...]) -> None:
        self._batch += 1
        ident = BatchId(f"t{writer.epoch}", self._batch)
        writer.append(BoundaryRecord("0", writer.epoch, ident, writer.tip(), upto, parts))

    def delete_blocks(self) -> None:
        """Delete all blocks of the source."""
        admin, reader = self.log.admin(), self.log.reader()
        topic = self.pipeline.topic_names.blocks("a", "0")
        places = [TopicPartition(topic, p) for p in range(self.pipeline.partitions)]
        admin.delete_before({at: reader.offsets(at)[1] for at in places})
        admin.close()
        reader.close()

    def start_engine(
        self, context: ServiceContext, name: str, stages: Collection[str]
    ) -> StartingEngine:
        assert (name, list(stages)) == ("auditor", [STAGE])
        if self.engine is None:
            self.engine = FewLines(context)
        engine = self.engine
        return StartingEngine(lambda: engine)

    @property
    def numbers_file(self) -> Path:
        return self.folder / "auditor" / "numbers.json"

    def auditor(
        self,
        seed: int = 1,
        start_engine: StartEngine | None = None,
        kafka: str = "none:0",
        log: EventLog | None = None,
    ) -> AuditorService:
        """Start a new auditor process. ``log``: the part of the log that it may read."""
        context = outputs.context(
            log or self.log,
            self.pipeline,
            self.clock,
            SeededEntropy(seed),
            "auditor",
            "auditor",
            kafka=kafka,
        )
        federation = self.pipeline.federation
        assert federation is not None
        made = AuditorService(
            context,
            federation,
            self.book.keys["auditor"],
            NonceFile(self.numbers_file),
            start_engine or self.start_engine,
        )
        made.start()
        return made

    def contract(self) -> LoadLog:
        reader = self.book.reader()
        reader.read_to_end()
        reader.close()
        return reader.contracts["north-south"]

    def ledger(self) -> Ledger:
        found = self.contract().ledger
        assert found is not None, "agreed"
        return found

    def auditor_entries(self) -> list[AuditCommitted | Audited]:
        """Return the auditor's entries that count."""
        found: list[Any] = []
        reader = FederationReader(self.log, self.book.topics, "auditor", found.append)
        reader.read_to_end()
        reader.close()
        return [each for each in found if isinstance(each, (AuditCommitted, Audited))]

    def audit_reports(self) -> list[Audited]:
        return [each for each in self.auditor_entries() if isinstance(each, Audited)]

    def closed(self) -> int:
        """Return the last bucket of the stage's stream."""
        reader = BoundaryReader(self.log, self.pipeline.topic_names.boundaries(STAGE), ["0"])
        reader.read_to_end()
        reader.close()
        return reader.log_state.upto

    def close(self) -> None:
        for closable in (self.blocks, self.source, self.home, self.seller):
            if closable is not None:
                closable.close()
