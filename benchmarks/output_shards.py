"""Benchmark of an output with one process and with several: delivery drains a backlog of stable
results, which this program writes in place of a stage.

``python -m benchmarks.output_shards [--records N] [--shards 1,2] [--key COLUMN] [--work-dir DIR]``
(``benchmarks.pinned_shards``).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec import control_records
from anabranch.local.topic_creation import prepare, topics_of
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.ports import EventLog, TopicPartition
from anabranch.protocol.control.records import DeliveryProgress
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.boundary_writer import BoundaryWriter
from benchmarks import pinned_shards
from benchmarks.pinned_shards import Shards, Use

_STAGE: Final = "stateless"
_BUCKETS: Final = 500
_BUCKETS_AT_ONCE: Final = 50


def main() -> int:
    """See the module's text."""
    parser = pinned_shards.options("output_shards", 1_000_000)
    parser.add_argument("--key", default="")
    arguments = parser.parse_args()
    pinned_shards.measure(
        arguments,
        lambda folder, shards: _drain(folder, shards, arguments.records, arguments.key),
    )
    return 0


def _drain(folder: Path, shards: int, records: int, key: str) -> str:
    path = pinned_shards.job(folder, "stateless.yaml")
    text = path.read_text().replace("key: []", f"key: [{key}]")
    path.write_text(
        text.replace(f"    stage: {_STAGE}\n", f"    stage: {_STAGE}\n    shards: {shards}\n", 1)
    )
    pipeline = load(path)
    with pinned_shards.broker(folder) as kafka:
        log = KafkaEventLog(kafka.address)
        prepare(log, topics_of(pipeline, embedded=True), create_inputs=True, say=print)
        stage = _Stage(log, pipeline)
        stage.close_buckets(1, {1: _rows(1, 1, pipeline.bucket_ms)})
        with Shards("anabranch.delivery", path, pipeline.deliveries(), kafka) as running:
            running.wait_until(lambda: _delivered(log, pipeline) >= 1)
            before_s = running.used_s()
            with running.stopped():  # the backlog comes first
                stage.fill(records)
                use, begun_s = Use(running, before_s), time.time()
            running.wait_until(lambda: _delivered(log, pipeline) >= 1 + _BUCKETS)
            return use.line(records, "results", time.time() - begun_s)


def _rows(bucket: int, count: int, bucket_ms: int) -> pa.Table:
    """Results as the job ``stateless`` makes them, of one bucket."""
    random = np.random.default_rng(bucket)
    times = (bucket - 1) * bucket_ms + 1 + random.integers(0, bucket_ms, count)
    return pa.table(
        {
            "time": times,
            "seq": bucket * 10_000_000 + np.arange(count),
            "region": random.integers(0, 20, count),
            "scaled": random.integers(0, 1_000_000, count),
            "event_time": times,
        }
    )


class _Stage:
    """Writes in place of the stage's one replica."""

    def __init__(self, log: EventLog, pipeline: Pipeline) -> None:
        names, entropy = pipeline.topic_names, SystemEntropy()
        self._partitions, self._bucket_ms = pipeline.partitions, pipeline.bucket_ms
        self._boundaries = BoundaryWriter(
            log,
            names.boundaries(_STAGE),
            pipeline.stream_writers(_STAGE),
            EpochStarted("0", f"bucket_ms={pipeline.bucket_ms}", entropy.token(), schema=""),
            SystemClock(),
        )
        self._epoch = self._boundaries.start()
        self._blocks = BlockWriter(log, names.blocks(_STAGE, "0"), "0", self._epoch, entropy)
        self._timeline, self._batch = entropy.token(), 0

    def close_buckets(self, upto: int, tables: dict[int, pa.Table]) -> None:
        """One batch."""
        self._batch += 1
        parts = self._blocks.write(
            [(bucket % self._partitions, bucket, table) for bucket, table in tables.items()]
        )
        self._boundaries.append(
            BoundaryRecord(
                replica="0",
                epoch=self._epoch,
                id=BatchId(self._timeline, self._batch),
                prev=self._boundaries.tip(),
                closed=upto,
                parts=parts,
            )
        )

    def fill(self, records: int) -> None:
        """Write the backlog: ``records`` results in the buckets after the first."""
        for first in range(2, 2 + _BUCKETS, _BUCKETS_AT_ONCE):
            some = range(first, first + _BUCKETS_AT_ONCE)
            tables = {each: _rows(each, records // _BUCKETS, self._bucket_ms) for each in some}
            self.close_buckets(some[-1], tables)


def _delivered(log: EventLog, pipeline: Pipeline) -> int:
    """Return the bucket up to which all shards have recorded their delivery. Polls five times a
    second.
    """
    time.sleep(0.2)
    return min(_progress(log, pipeline, process) for process in pipeline.deliveries())


def _progress(log: EventLog, pipeline: Pipeline, process: str) -> int:
    at, newest = TopicPartition(pipeline.topic_names.progress(process), 0), 0
    reader = log.reader(committed=True, headers=False)
    try:
        first, end = reader.offsets(at)
        reader.assign({at: first})
        while reader.position(at) < end:
            for chunk in reader.fetch(1_000, 100):
                for entry in map(control_records.decode, chunk.values):
                    if isinstance(entry, DeliveryProgress) and entry.output == process:
                        newest = entry.last_bucket
    finally:
        reader.close()
    return newest


if __name__ == "__main__":
    sys.exit(main())
