"""A log in memory whose broker is away for a while, for one of several processes or for all."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.ports import Chunk, LogReader, LogWriter, TopicPartition
from anabranch.protocol.errors import Unavailable


class Away:
    """A cluster that answers nobody for a while: what is sent is under way, what is asked for
    does not come.
    """

    def __init__(self, log: LocalEventLog) -> None:
        self.log = log
        self.clock = log.clock
        self.is_away = False

    def __getattr__(self, name: str) -> object:
        return getattr(self.log, name)

    def writer(self) -> LogWriter:
        return cast("LogWriter", AwayWriter(self, self.log.writer()))

    def reader(self, **options: Any) -> LogReader:
        return cast("LogReader", AwayReader(self, self.log.reader(**options)))


class AwayWriter:
    def __init__(self, away: Away, writer: LogWriter) -> None:
        self.away, self.writer = away, writer

    def __getattr__(self, name: str) -> object:
        return getattr(self.writer, name)

    def settled(self) -> bool:
        return not self.away.is_away and self.writer.settled()


class AwayReader:
    def __init__(self, away: Away, reader: LogReader) -> None:
        self.away, self.reader = away, reader

    def __getattr__(self, name: str) -> object:
        return getattr(self.reader, name)

    def offsets(self, at: TopicPartition) -> tuple[int, int]:
        if self.away.is_away:
            raise Unavailable("no answer")
        return self.reader.offsets(at)

    def ends(self, places: Collection[TopicPartition], wait_ms: int) -> dict[TopicPartition, int]:
        return {} if self.away.is_away else self.reader.ends(places, wait_ms)

    def fetch(self, count: int, wait_ms: int) -> list[Chunk]:
        if self.away.is_away:
            self.away.clock.sleep_ms(wait_ms)
            return []
        return list(self.reader.fetch(count, wait_ms))
