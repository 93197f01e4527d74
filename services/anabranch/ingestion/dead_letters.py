"""Dead letters: records that cannot be used, as they came, with the reason.

At least once: a crash between the flush and the boundary record repeats them, so a reader identifies one by (topic, partition, offset), which
are in its headers. (One that was ``ahead`` of the clock may, after a crash, be taken as a row instead.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.ports import TopicPartition
from anabranch.protocol.errors import OutcomeUnknown, RecordRejected
from anabranch.protocol.limits import ERROR_TEXT_MAX

if TYPE_CHECKING:
    from anabranch.ports import Chunk, EventLog, LogWriter


def headers_of(chunk: Chunk, index: int, why: RecordRejected) -> list[tuple[str, bytes | None]]:
    """The record's own headers, then where it stood and why it is here."""
    return [
        *chunk.headers[index],
        ("anabranch-topic", chunk.at.topic.encode()),
        ("anabranch-partition", str(chunk.at.partition).encode()),
        ("anabranch-offset", str(chunk.offsets[index]).encode()),
        ("anabranch-reason", why.reason.value.encode()),
        ("anabranch-error", str(why)[:ERROR_TEXT_MAX].encode(errors="replace")),
    ]


class DeadLetters:
    """Writes to one dead-letter topic. Not thread-safe."""

    def __init__(self, log: EventLog, topic: str, partitions: int) -> None:
        self._log, self._topic, self._partitions = log, topic, partitions
        self._writer: LogWriter | None = None
        self._queued: list[tuple[Chunk, int, RecordRejected]] = []

    def send(self, chunk: Chunk, index: int, why: RecordRejected) -> None:
        """Queue record ``index`` of ``chunk``; records of one input partition stay in order."""
        self._queued.append((chunk, index, why))
        self._put(chunk, index, why)

    def flush(self) -> None:
        """Wait until all are in the log. After an unknown outcome all queued ones are sent again.

        Raises:
            Unavailable: the topic refuses one for good.
        """
        while self._queued and self._writer is not None:
            try:
                self._writer.flush()
            except OutcomeUnknown:
                self.close()
                for chunk, index, why in self._queued:
                    self._put(chunk, index, why)
            else:
                self._queued.clear()

    def close(self) -> None:
        """Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _put(self, chunk: Chunk, index: int, why: RecordRejected) -> None:
        if self._writer is None:
            self._writer = self._log.writer()
        at = TopicPartition(self._topic, chunk.at.partition % self._partitions)
        self._writer.send(at, chunk.values[index], key=chunk.keys[index], headers=headers_of(chunk, index, why))
