"""An output and its delivery on any log, fed by stand-ins for the replicas of its stage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import structlog
from prometheus_client import CollectorRegistry

from anabranch.codec import boundary_records, control_records, live_records
from anabranch.codec.catalog import topic_settings
from anabranch.delivery.service import DeliveryService, build
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import LiveSink, Output, Pipeline, Sink, Stage
from anabranch.ports import Clock, Entropy, EventLog, Index, LogWriter, TopicPartition
from anabranch.process.frame import Service, ServiceContext
from anabranch.process.metrics import ServiceMetrics
from anabranch.process.settings import ServiceSettings
from anabranch.protocol.control.records import DeliveryProgress, Heartbeat
from anabranch.protocol.edge.live_delivery import Kind
from anabranch.protocol.edge.views import LiveRecord, LiveView
from anabranch.protocol.identifiers import BatchId, RecordId
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    GivenUp,
    Part,
    Recomputed,
)
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.boundary_writer import BoundaryWriter
from harness import sources
from harness.control_topics import beating
from harness.sources import everything

T = TypeVar("T")

WIDTH_MS = 100
STAGE = "totals"


def pipeline(
    prefix: str,
    *,
    partitions: int = 2,
    replicas: int = 1,
    key: Sequence[str] = ("car",),
    sink_partitions: int | None = None,
    live: bool = False,
    upsert: bool = False,
    live_partitions: int | None = None,
    max_delay_ms: int = 1_000,
    shards: int = 1,
    shards_before: Sequence[int] = (),
    own_max_delay_ms: int | None = None,
) -> Pipeline:
    """Return a pipeline of one stage, ``totals``, and one output, ``out``, to the topics
    ``<prefix>.out`` and, if wanted, ``<prefix>.out.live``.
    """
    read = (
        sources.pipeline(prefix).sources if live or upsert else {}
    )  # a live topic waits, and so asks what the stage is made from
    stage = Stage(
        name=STAGE, participant="north", reads=list(read), transform=["m:f"], replicas=replicas
    )
    sink = (
        LiveSink(
            topic=f"{prefix}.out.live", key=list(key), partitions=live_partitions, upsert=upsert
        )
        if live or upsert
        else None
    )
    corrected = Sink(topic=f"{prefix}.out", key=list(key), partitions=sink_partitions)
    output = Output(
        name="out",
        stage=STAGE,
        corrected=corrected,
        live=sink,
        shards=shards,
        shards_before=list(shards_before),
        max_delay_ms=own_max_delay_ms,
    )
    return Pipeline(
        name=prefix,
        path=Path("pipeline.yaml"),
        bucket_ms=WIDTH_MS,
        max_delay_ms=max_delay_ms,
        partitions=partitions,
        sources=read,
        stages={STAGE: stage},
        outputs={"out": output},
    )


def create_topics(log: EventLog, of: Pipeline) -> None:
    """Create the internal topics."""
    names, admin = of.topic_names, log.admin()
    specs = [
        topic_settings("boundaries", names.boundaries(STAGE)),
        *(
            topic_settings("fences" if speaker.fences else "control", topic)
            for topic, speaker in control_topics(of).items()
        ),
    ]
    specs += [topic_settings("alarms", names.alarms())]
    specs += [
        topic_settings("blocks", names.blocks(STAGE, r), of.partitions)
        for r in of.stream_writers(STAGE)
    ]
    assert not admin.create(specs)
    admin.close()


def context(
    log: EventLog,
    of: Pipeline,
    clock: Clock,
    entropy: Entropy,
    service: str,
    name: str,
    index: Index | None = None,
    kafka: str = "none:0",
) -> ServiceContext:
    """Return what a service is built from."""
    settings = ServiceSettings(pipeline=of.path, name=name, kafka=kafka, state_dir=Path("state"))
    registry = CollectorRegistry()
    metrics = ServiceMetrics(registry, pipeline=of.name, service=service, name=name)
    return ServiceContext(
        log,
        index,
        clock,
        entropy,
        registry,
        metrics,
        settings,
        of,
        structlog.get_logger(),
        threading.Event(),
    )


def service(
    log: EventLog, of: Pipeline, clock: Clock, entropy: Entropy, name: str = "out"
) -> DeliveryService:
    """Build a new process of the output, or of the shard of this name, not started yet."""
    made = context(log, of, clock, entropy, "delivery", name)
    return build(made.settings, made)


def rows(bucket: int, count: int) -> pa.Table:
    """Rows of a bucket, not in canonical order."""
    numbers = range(count - 1, -1, -1)
    return pa.table(
        {
            "car": pa.array([n % 7 for n in numbers], pa.int64()),
            "road": pa.array([f"I-{n % 5} north" for n in numbers]),
            "total": pa.array([bucket * 1_000_000 + n for n in numbers], pa.int64()),
            "mean": pa.array([n / 4 for n in numbers], pa.float64()),
            "event_time": pa.array(
                [(bucket - 1) * WIDTH_MS + 1 + n % WIDTH_MS for n in numbers], pa.int64()
            ),
        }
    )


class Replica:
    """Stands in for one replica of the stage."""

    def __init__(
        self,
        log: EventLog,
        of: Pipeline,
        clock: Clock,
        entropy: Entropy,
        replica: str = "0",
        fingerprint: str = "f1",
        *,
        schema: str = "",
        stage: str = STAGE,
    ) -> None:
        names = of.topic_names
        self._replica = replica
        self._partitions = of.partitions
        self._timeline = entropy.token()
        self._batch = 0
        self._log = log
        self._clock = clock
        self._control_topic = names.control("processing", f"{stage}.{replica}")
        self._at = TopicPartition(names.boundaries(stage), 0)
        self._counter = 0
        self._tentative_tip = BatchId("", 0)
        writers = of.stream_writers(stage)
        self._boundaries = BoundaryWriter(
            log,
            names.boundaries(stage),
            writers,
            EpochStarted(replica, fingerprint, entropy.token(), schema=schema),
            clock,
        )
        self.epoch = self._boundaries.start()
        self._blocks = BlockWriter(log, names.blocks(stage, replica), replica, self.epoch, entropy)
        self._writer: LogWriter | None = None

    def close_buckets(
        self, upto: int, tables: Mapping[int, pa.Table], given_up: tuple[GivenUp, ...] = ()
    ) -> None:
        """Append one batch: these buckets, and everything up to ``upto`` is closed.
        ``given_up``: what they lack.
        """
        self._batch += 1
        record = BoundaryRecord(
            replica=self._replica,
            epoch=self.epoch,
            id=BatchId(self._timeline, self._batch),
            prev=self._boundaries.tip(),
            closed=upto,
            parts=self._parts(tables),
            given_up=given_up,
        )
        self._boundaries.append(record)

    def poll(self) -> None:
        """Read its own log on."""
        self._boundaries.poll()

    def append_recomputed(self, tables: Mapping[int, pa.Table]) -> None:
        """Write buckets once more, for a reader whose blocks are gone."""
        self._boundaries.append_other(Recomputed(self._replica, self.epoch, self._parts(tables)))

    def show(
        self,
        upto: int,
        tables: Mapping[int, pa.Table],
        missing: Sequence[str] = ("reports",),
        *,
        fork: bool = False,
        shed: int = 0,
    ) -> tuple[int, int]:
        """Append one tentative batch, with ``fork`` as the first of a new branch: everything up to
        ``upto`` is tentatively closed.

        Returns the branch.
        """
        self._boundaries.poll()
        fork = fork or not self._counter
        self._counter += fork
        prev, batch = (
            (self._boundaries.tip(), 1)
            if fork
            else (self._tentative_tip, self._tentative_tip.batch + 1)
        )
        self._tentative_tip = BatchId(f"{self._timeline}b{self._counter}", batch)
        record = BoundaryRecord(
            replica=self._replica,
            epoch=self.epoch,
            id=self._tentative_tip,
            prev=prev,
            closed=upto,
            parts=self._parts(tables),
            base=self._boundaries.log_state.closed(self._replica) if fork else None,
            kind=BoundaryKind.TENTATIVE,
            branch=(self.epoch, self._counter),
            missing=tuple(missing),
            shed=shed,
        )
        value, headers = boundary_records.encode(record)
        if self._writer is None:
            self._writer = self._log.writer()
        self._writer.send(self._at, value, self._replica.encode(), headers)
        self._writer.flush()
        return self.epoch, self._counter

    def beating(self) -> AbstractContextManager[None]:
        """Send heartbeats while the block lasts: a branch begins no failure while its replica is
        not heard.
        """
        beat = Heartbeat(
            "processing",
            STAGE,
            self._replica,
            self.epoch,
            "running",
            0,
            0,
            replica_state="up_failure",
        )
        return beating(self._log, self._control_topic, self._clock, lambda: beat)

    def end_branch(self) -> None:
        """End the running branch."""
        self._boundaries.append_other(BranchEnded(self._replica, self.epoch, self._counter))

    def _parts(self, tables: Mapping[int, pa.Table]) -> tuple[Part, ...]:
        slices = []
        for number, (bucket, table) in enumerate(tables.items()):
            half = table.num_rows // 2
            slices += [
                (number % self._partitions, bucket, table.slice(0, half)),
                ((number + 1) % self._partitions, bucket, table.slice(half)),
            ]
        return self._blocks.write(slices)

    def close(self) -> None:
        """Give the writers back."""
        if self._writer is not None:
            self._writer.close()
        self._blocks.close()
        self._boundaries.close()


def until_decided(log: EventLog, of: Pipeline) -> None:
    """Wait until committed readers see all that was committed of the output."""
    output, names = of.outputs["out"], of.topic_names
    topics = [output.corrected.topic, output.rejected, names.progress("out")]
    if output.live is not None:
        topics += [output.live.topic, names.live_progress("out")]
    sources.until_decided(log, *topics)


def delivered(
    log: EventLog, of: Pipeline
) -> list[tuple[int, RecordId, bytes | None, bytes | None]]:
    """(partition, id, key, value) of all records that committed readers see, each partition
    in its order.
    """
    admin = log.admin()
    topic = of.outputs["out"].corrected.topic
    count = admin.partitions([topic])[topic]
    admin.close()
    found = []
    for chunk in everything(log, topic, count):
        for key, value, headers in zip(chunk.keys, chunk.values, chunk.headers, strict=True):
            known = dict(headers)
            if "anabranch-id" in known:
                found.append(
                    (
                        chunk.at.partition,
                        RecordId.parse((known["anabranch-id"] or b"").decode()),
                        key,
                        value,
                    )
                )
    return found


def live_records_of(log: EventLog, of: Pipeline) -> list[tuple[int, LiveRecord]]:
    """(partition, record) of all that committed readers see on the live topic, each partition
    in its order.
    """
    sink = of.outputs["out"].live
    assert sink is not None
    admin = log.admin()
    count = admin.partitions([sink.topic])[sink.topic]
    admin.close()
    return [
        (chunk.at.partition, live_records.decode(headers, key, value))
        for chunk in everything(log, sink.topic, count)
        for key, value, headers in zip(chunk.keys, chunk.values, chunk.headers, strict=True)
    ]


def transcript(log: EventLog, of: Pipeline, partition: int = 0) -> list[str]:
    """Return what one partition of the live topic says, a line per transaction; runs of records of
    one bucket as their number.
    """
    lines: list[str] = []
    words: list[tuple[str, int]] = []
    for place, record in live_records_of(log, of):
        if place != partition:
            continue
        word = record.kind.value
        if record.id is not None:
            word += f" {record.id if record.kind is Kind.UNDO else record.id.bucket}"
        if record.kind is Kind.BOUNDARY:
            word += f" {record.stable}" + (f"/{record.shown}" if record.shown else "")
        if words and words[-1][0] == word:
            words[-1] = (word, words[-1][1] + 1)
        else:
            words.append((word, 1))
        if record.kind is Kind.BOUNDARY:
            lines.append(", ".join(f"{w} x{n}" if n > 1 else w for w, n in words))
            words = []
    assert not words, "a transaction without its boundary"
    return lines


def live_view(log: EventLog, of: Pipeline) -> LiveView:
    """Return the view of a client that has read everything."""
    found = live_records_of(log, of)
    view = LiveView(max((partition for partition, _ in found), default=0) + 1)
    for partition, record in found:
        view.take(partition, record)
    return view


def ids(sizes: Mapping[int, int] | Iterable[tuple[int, int]]) -> list[RecordId]:
    """Every id of buckets with so many rows."""
    return [
        RecordId(bucket, position)
        for bucket, count in sorted(dict(sizes).items())
        for position in range(count)
    ]


def progress(log: EventLog, of: Pipeline) -> list[DeliveryProgress]:
    """All progress records."""
    at = TopicPartition(of.topic_names.progress("out"), 0)
    entries = [
        control_records.decode(value)
        for chunk in everything(log, at.topic)
        for value in chunk.values
    ]
    return [entry for entry in entries if isinstance(entry, DeliveryProgress)]


def drain(of: DeliveryService, upto: int, rounds: int = 2_000) -> None:
    """Step until every bucket up to ``upto`` is delivered."""
    for _ in range(rounds):
        if of.status.last_bucket_ms is not None and of.status.last_bucket_ms >= upto * WIDTH_MS:
            return
        of.step()
    raise AssertionError(f"not delivered up to {upto}: {of.status}")


def after_step(stepped: Service, condition: Callable[[], T]) -> Callable[[], T]:
    """``condition``, asked after one more round of ``stepped``."""

    def ask() -> T:
        stepped.step()
        return condition()

    return ask
