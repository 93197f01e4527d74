"""Benchmark of a source with one process and with several: ingestion drains a backlog.

``python -m benchmarks.shards [--records N] [--shards 1,2] [--work-dir DIR]``
(``benchmarks.pinned_shards``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.pipeline.file import load
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.stream_logs import open_stream
from benchmarks import pinned_shards
from benchmarks.broker import create_topics, produce_backlog
from benchmarks.pinned_shards import Shards, Use
from benchmarks.workload import ENDER_AFTER_MS, EVENT_TIME_MS, backlog, ender, payloads

_START_MS: Final = 1_700_000_000_000


def main() -> int:
    """See the module's text."""
    arguments = pinned_shards.options("shards", 2_000_000).parse_args()
    values = payloads(backlog(arguments.records, _START_MS))
    pinned_shards.measure(arguments, lambda folder, shards: _drain(folder, shards, values))
    return 0


def _drain(folder: Path, shards: int, values: list[str]) -> str:
    path = pinned_shards.job(folder, "windowed.yaml")
    path.write_text(
        path.read_text().replace(
            "    format: json\n", f"    format: json\n    shards: {shards}\n", 1
        )
    )
    pipeline = load(path)
    with pinned_shards.broker(folder) as kafka:
        log = KafkaEventLog(kafka.address)
        create_topics(kafka.address)
        admin = log.admin()
        admin.create([settings for _, settings in internal_topics(pipeline, replication=1)])
        admin.close()
        names = pipeline.sources["readings"].streams()
        with Shards("anabranch.ingestion", path, names, kafka) as running:
            readers = [open_stream(log, pipeline, s) for s in pipeline.source_streams()]
            running.wait_until(_all(readers, lambda of: of.log_state.epoch("0") is not None))
            before_s = running.used_s()
            last = ender(_START_MS + EVENT_TIME_MS + ENDER_AFTER_MS)
            visible_s = produce_backlog(kafka.address, values, last)
            use = Use(running, before_s)
            bucket = (_START_MS + EVENT_TIME_MS) // pipeline.bucket_ms
            running.wait_until(_all(readers, lambda of: of.log_state.upto >= bucket))
            return use.line(len(values), "records", time.time() - visible_s)


def _all(
    readers: list[BoundaryReader], is_done: Callable[[BoundaryReader], bool]
) -> Callable[[], bool]:
    """Read the logs on; whether all are done."""

    def poll() -> bool:
        for reader in readers:
            reader.poll(50)
        return all(map(is_done, readers))

    return poll


if __name__ == "__main__":
    sys.exit(main())
