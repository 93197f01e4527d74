"""Logs for the conformance suite, in memory or real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.codec.catalog import TopicSettings
from anabranch.ports import Chunk, EventLog, LogReader, RecordPosition, TopicPartition
from harness.waiting import wait_until


@dataclass
class Rig:
    """A log, a name of its own on it, and everything that was opened."""

    log: EventLog
    prefix: str
    trim: Callable[[TopicPartition, int], None]
    opened: list[LogReader] = field(default_factory=list)

    def topic(self, name: str = "a", partitions: int = 1, **config: str) -> list[TopicPartition]:
        full = f"{self.prefix}.{name}"
        admin = self.log.admin()
        assert (
            admin.create(
                [
                    TopicSettings(
                        full, partitions, config={k.replace("_", "."): v for k, v in config.items()}
                    )
                ]
            )
            == []
        )
        admin.close()
        return [TopicPartition(full, number) for number in range(partitions)]

    def reader(
        self, positions: dict[TopicPartition, int], *, committed: bool = True, headers: bool = True
    ) -> LogReader:
        reader = self.log.reader(committed=committed, headers=headers)
        self.opened.append(reader)
        reader.assign(positions)
        return reader

    def write(self, at: TopicPartition, *values: bytes) -> list[RecordPosition]:
        writer = self.log.writer()
        for value in values:
            writer.send(at, value)
        delivered = writer.flush()
        writer.close()
        return delivered


def read(reader: LogReader, count: int, deadline_s: float = 60) -> list[Chunk]:
    """Chunks with ``count`` records together."""
    chunks: list[Chunk] = []

    def enough() -> bool:
        chunks.extend(reader.fetch(10_000, 200))
        return sum(len(chunk.offsets) for chunk in chunks) >= count

    wait_until(enough, deadline_s, f"{count} records")
    return chunks


def values(chunks: list[Chunk]) -> list[bytes | None]:
    return [value for chunk in chunks for value in chunk.values]


def fetch_until_error(reader: LogReader, error: type[Exception], deadline_s: float = 60) -> None:
    def raised() -> bool:
        try:
            reader.fetch(100, 200)
        except error:
            return True
        return False

    wait_until(raised, deadline_s, f"a fetch that raises {error.__name__}")
