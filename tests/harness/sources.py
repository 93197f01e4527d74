"""A source and its ingestion service on any log: what tests of ingestion need to set up and
to look at.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog
from prometheus_client import CollectorRegistry

from anabranch.codec import record_schema
from anabranch.codec.catalog import TopicSettings
from anabranch.ingestion.service import IngestionService, build
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import EventTime, IdleTimeout, Pipeline, Source
from anabranch.ports import Chunk, Clock, Entropy, EventLog, SchemaRegistry, TopicPartition
from anabranch.process.frame import ServiceContext
from anabranch.process.metrics import ServiceMetrics
from anabranch.process.settings import ServiceSettings
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.boundary_reader import BoundaryReader
from harness.waiting import wait_until

REPORT = record_schema.from_avro(
    {
        "type": "record",
        "name": "report",
        "fields": [
            {"name": "time", "type": ["null", "long"]},
            {"name": "car", "type": "long"},
            {"name": "speed", "type": "double"},
            {"name": "road", "type": "string"},
            {"name": "lane", "type": "int"},
            {"name": "seen", "type": "boolean"},
        ],
    },
    "report",
)


def report(time_ms: int | None, car: int = 1, **other: object) -> bytes:
    """Return a good record as JSON, about 100 bytes."""
    value = {
        "time": time_ms,
        "car": car,
        "speed": 61.25,
        "road": "I-95 north",
        "lane": 2,
        "seen": True,
        **other,
    }
    return json.dumps(value).encode()


def pipeline(
    prefix: str,
    topics: Iterable[str] = ("reports",),
    *,
    bucket_ms: int = 100,
    partitions: int = 2,
    **source: Any,
) -> Pipeline:
    """Return a pipeline of one source, ``reports``; its topics get ``prefix``. ``source``: fields
    of ``Source`` that differ.
    """
    names = [f"{prefix}.{topic}" for topic in topics]
    facts: dict[str, Any] = {
        "record": REPORT,
        "event_time": EventTime(field="time"),
        "max_ahead_ms": None,
        "dead_letter": f"{names[0]}.rejected",
        "idle_timeout": IdleTimeout(partition_ms=None),
        **source,
    }
    one = Source(name="reports", topics=names, **facts)
    return Pipeline(
        name=prefix,
        path=Path("pipeline.yaml"),
        bucket_ms=bucket_ms,
        max_delay_ms=1_000,
        partitions=partitions,
        sources={"reports": one},
        stages={},
        outputs={},
    )


def create_topics(
    log: EventLog, of: Pipeline, partitions: int = 2, *, config: Mapping[str, str] | None = None
) -> None:
    """Create the input topics and the internal ones of the source."""
    admin, names = log.admin(), of.topic_names
    inputs = [
        TopicSettings(topic, partitions, config=dict(config or {}))
        for topic in of.sources["reports"].topics
    ]
    blocks = {"max.message.bytes": str(8 * 1024 * 1024)}
    streams = of.source_streams()
    differences = admin.create(
        [
            *inputs,
            *(TopicSettings(names.blocks(s, "0"), of.partitions, config=blocks) for s in streams),
            *(TopicSettings(names.boundaries(s), 1) for s in streams),
            *(TopicSettings(topic, 1) for topic in control_topics(of)),
        ]
    )
    admin.close()
    assert not differences


def service(
    log: EventLog,
    of: Pipeline,
    clock: Clock,
    entropy: Entropy,
    open_registry: Callable[[str], SchemaRegistry] | None = None,
    *,
    name: str = "reports",
) -> IngestionService:
    """Build a new process of the source, or of the shard of this name, not started yet."""
    settings = ServiceSettings(pipeline=of.path, name=name, kafka="none:0", state_dir=Path("state"))
    registry = CollectorRegistry()
    metrics = ServiceMetrics(registry, pipeline=of.name, service="ingestion", name=name)
    logger = structlog.get_logger()
    return build(
        settings,
        ServiceContext(
            log, None, clock, entropy, registry, metrics, settings, of, logger, threading.Event()
        ),
        open_registry,
    )


class StreamView:
    """The stream as its readers see it."""

    def __init__(self, log: EventLog, of: Pipeline, clock: Clock, stream: str = "reports") -> None:
        names = of.topic_names
        self._boundaries = BoundaryReader(log, names.boundaries(stream), ["0"])
        self._blocks = BlockReader(log, lambda replica: names.blocks(stream, replica), clock)

    @property
    def counts(self) -> dict[str, int]:
        """Records of the boundary log by what became of them."""
        return dict(self._boundaries.counts)

    def closed(self) -> int:
        """Return the last stable bucket."""
        self._boundaries.read_to_end()
        return self._boundaries.log_state.upto

    def log_state(self) -> LogState:
        """Return the stream as far as ``closed`` has read."""
        return self._boundaries.log_state

    def last(self) -> BoundaryRecord | None:
        """Return the newest accepted boundary record, as far as ``closed`` has read."""
        return self._boundaries.log_state.last("0")

    def stable(self) -> dict[int, pa.Table]:
        """All stable buckets that are not empty."""
        upto = self.closed()
        return (
            dict(self._blocks.read_buckets(self._boundaries.log_state.stable(1, upto)))
            if upto
            else {}
        )

    def cars(self) -> list[int]:
        """Column ``car`` of all stable rows, sorted."""
        return sorted(
            car for table in self.stable().values() for car in table.column("car").to_pylist()
        )

    def close(self) -> None:
        """Give the readers back."""
        self._boundaries.close()
        self._blocks.close()


def shortened(log: EventLog, topic: str, known: Iterable[bytes]) -> list[bytes]:
    """Return why each record of the dead-letter topic ``topic`` was rejected: the one of ``known``
    that its reason contains, else the whole reason.
    """
    reasons = [
        dict(headers)["anabranch-error"] or b""
        for chunk in everything(log, topic)
        for headers in chunk.headers
    ]
    return [next((text for text in known if text in reason), reason) for reason in reasons]


def until_decided(log: EventLog, *topics: str) -> None:
    """Wait until no transaction is open in ``topics``: a commit is answered a moment before
    committed readers see it, partition by partition.
    """
    admin = log.admin()
    counts = admin.partitions(topics)
    admin.close()
    readers = [log.reader(committed=committed) for committed in (True, False)]
    for topic, count in counts.items():
        for at in (TopicPartition(topic, number) for number in range(count)):
            wait_until(
                lambda at=at: len({reader.offsets(at)[1] for reader in readers}) == 1,  # type: ignore[misc]
                60,
                f"a transaction is open in {at}",
            )
    for reader in readers:
        reader.close()


def everything(
    log: EventLog, topic: str, partitions: int = 1, *, wait_ms: int = 2_000
) -> list[Chunk]:
    """All records of ``topic``, one chunk per partition that has any."""
    reader = log.reader(committed=True, headers=True)
    places = [TopicPartition(topic, i) for i in range(partitions)]
    ends = {at: reader.offsets(at)[1] for at in places}
    reader.assign({at: reader.offsets(at)[0] for at in places})
    found: dict[TopicPartition, Chunk] = {}
    while any(reader.position(at) < ends[at] for at in places):
        for chunk in reader.fetch(100_000, wait_ms):
            known = found.setdefault(chunk.at, Chunk(chunk.at, [], [], [], [], []))
            for name in ("offsets", "values", "keys", "timestamps_ms", "headers"):
                getattr(known, name).extend(getattr(chunk, name))
    reader.close()
    return [found[at] for at in sorted(found)]
