"""Reader of the headers of single blocks: proves that offsets hold the blocks that a boundary log
names (LB1 of ``protocol.log.lost_blocks``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import zip_longest

from anabranch.codec.blocks import BlockHeaders
from anabranch.pipeline.topic_names import stream_of_blocks
from anabranch.ports import Clock, EventLog, Headers, TopicPartition
from anabranch.protocol.errors import DataMissing, RemoteProtocolError
from anabranch.protocol.log.lost_blocks import is_block_of
from anabranch.protocol.log.records import Part
from anabranch.streams.range_reader import RangeReader


class BlockHeads:
    """Reader of the last block of each part. Opens a client for each topic when it is first asked
    about it. Not thread-safe.
    """

    def __init__(self, log: EventLog, clock: Clock, *, is_elsewhere: bool = False) -> None:
        """Keep the arguments. ``is_elsewhere`` means that ``log`` is another owner's cluster."""
        self._log, self._clock = log, clock
        self._is_elsewhere = is_elsewhere
        self._readers: dict[str, RangeReader] = {}

    def are_held(self, topic: str, parts: Iterable[Part]) -> bool:
        """Return whether the last block of each of ``parts`` is at its offset in ``topic``. All
        offsets are within their partitions.

        Raises:
            Unavailable: the log does not answer.
        """
        return all(self._is_held(topic, each) for each in _one_by_one(parts))

    def close(self) -> None:
        """Close all clients. Idempotent."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _is_held(self, topic: str, parts: list[Part]) -> bool:
        """Return what ``are_held`` does, for parts of different partitions."""
        wanted = {TopicPartition(topic, part.partition): part for part in parts}
        found = set[TopicPartition]()

        def take(at: TopicPartition, offset: int, _value: bytes | None, headers: Headers) -> None:
            with suppress(RemoteProtocolError):  # not a block at all
                head = BlockHeaders.decode(headers)
                if is_block_of(wanted[at], head.bucket, head.attempt, offset):
                    found.add(at)

        last = {at: part.offset_next - 1 for at, part in wanted.items()}
        try:
            self._reader(topic).read(last, {at: offset + 1 for at, offset in last.items()}, take)
        except DataMissing:  # deleted or lost meanwhile, or damaged
            return False
        return found == wanted.keys()

    def _reader(self, topic: str) -> RangeReader:
        """Return the reader of ``topic``."""
        reader = self._readers.get(topic)
        if reader is None:
            reader = self._readers[topic] = RangeReader(
                self._log, self._clock, stream_of_blocks(topic), is_elsewhere=self._is_elsewhere
            )
        return reader


def _one_by_one(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield ``parts`` in groups with at most one part of each partition, ascending in each."""
    by_partition: dict[int, list[Part]] = {}
    for part in sorted(parts, key=lambda each: each.offset_next):
        by_partition.setdefault(part.partition, []).append(part)
    for group in zip_longest(*by_partition.values()):
        yield [part for part in group if part is not None]
