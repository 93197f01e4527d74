"""One source on a log in memory, and processes of its service, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.memory.partition import Partition
from anabranch.ingestion.service import IngestionService
from anabranch.ports import TopicPartition
from harness.sources import StreamView, create_topics, everything, pipeline, service


class World:
    """One source, and processes of its service."""

    def __init__(
        self, partitions: int = 2, *, config: dict[str, str] | None = None, **source: Any
    ) -> None:
        self.clock = VirtualClock()
        self.entropy = SeededEntropy(1)
        self.log = LocalEventLog(self.clock)
        self.pipeline = pipeline("p", **source)
        create_topics(self.log, self.pipeline, partitions, config=config)
        self.views = {
            stream: StreamView(self.log, self.pipeline, self.clock, stream)
            for stream in self.pipeline.source_streams()
        }
        self.view = next(iter(self.views.values()))

    def produce(self, partition: int, *values: bytes | None, **headers: str) -> None:
        writer = self.log.writer()
        given = [(name.replace("_", "-"), text.encode()) for name, text in headers.items()]
        for value in values:
            writer.send(TopicPartition("p.reports", partition), value, key=b"key", headers=given)
        writer.flush()
        writer.close()

    def grow(self, partitions: int) -> None:
        """Add partitions to the input topic."""
        self.log.topics["p.reports"][1].extend(
            Partition() for _ in range(partitions - len(self.log.topics["p.reports"][1]))
        )

    def process(self, name: str = "reports") -> IngestionService:
        process = service(self.log, self.pipeline, self.clock, self.entropy, name=name)
        process.start()
        return process

    def run(self, process: IngestionService, until: Callable[[], bool] | int = 20) -> None:
        for _ in range(until if isinstance(until, int) else 1_000):
            if callable(until) and until():
                return
            process.step()
        assert not callable(until), "not within 1000 steps"

    def boundary_records(self) -> int:
        self.view.closed()
        return self.view.counts.get("accepted", 0)

    def dead(self) -> list[tuple[bytes | None, str]]:
        chunks = everything(self.log, "p.reports.rejected")
        return [
            (value, (dict(headers)["anabranch-reason"] or b"").decode())
            for c in chunks
            for value, headers in zip(c.values, c.headers, strict=True)
        ]
