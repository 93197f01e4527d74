"""A source that several processes write: what its streams are called, who reads which partition,
and what a shard knows of the others.

Theory of operation. A source with n shards is n streams, its *members*. Each has one writer, a
boundary log and blocks of its own, and is an ordinary stream to all that follow it. A stage reads
them as it reads any streams together: a bucket of all members or of none (PN1), and their rows are
one input, under the name of the source.

Which shard reads a partition follows from the partition's number alone, so one that is added later
has its shard, and no two shards read the same one. The number of shards is therefore part of what
their logs say: under another number a partition would be read by another shard, from its beginning,
and its rows would be there twice.

A source is silent, or continues without a partition, as a whole, however many processes read it
(IN3, IN4). So each shard follows the boundary logs of the others. A partition of another shard
speaks when a record of that shard has read on in it. Nothing else is exchanged: a shard that hears
nothing, because another is down or its log is unavailable, closes buckets by its own partitions.

Invariants:
    MB1 every partition of a topic is read by exactly one shard.
    MB2 the names of members are no names of streams that a pipeline file can have, and ``input_of``
        finds the source's name in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.limits import INPUTS_MAX
from anabranch.protocol.log.records import InputPosition

_DOT: Final = "."
"""No name has one, and Kafka's rights by prefix can end with one."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One process of a source that has ``count``."""

    index: int = 0
    count: int = 1

    def reads(self, partition: int) -> bool:
        """Whether this partition of a topic of the source is this shard's (MB1)."""
        return partition % self.count == self.index

    def misdealt(self, positions: Iterable[InputPosition]) -> InputPosition | None:
        """Of what its log says was read, a partition that is another shard's: the log was written
        when the source had another number of shards. None: there is none.
        """
        return next((each for each in positions if not self.reads(each.partition)), None)


def members(source: str, shards: int) -> list[str]:
    """The streams of a source, by shard."""
    return [source] if shards == 1 else [f"{source}{_DOT}{index}" for index in range(shards)]


def strangers(source: str, shards: int) -> list[str]:
    """The streams that the source would have with other numbers of shards, and has not."""
    own = members(source, shards)
    return [name for name in (source, *members(source, INPUTS_MAX)) if name not in own]


def input_of(stream: str) -> str:
    """The name under which a stage reads ``stream`` (MB2)."""
    return stream.partition(_DOT)[0]


@dataclass(slots=True)
class _Heard:
    offset_next: int
    event_time_max_ms: int
    is_idle: bool
    spoke_ms: int | None


class OtherShards:
    """The partitions of the other shards. Knows none as long as nothing was heard."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], _Heard] = {}

    def hear(self, positions: Iterable[InputPosition], now_ms: int) -> bool:
        """The newest record of another shard has read so far. Whether one of its partitions speaks
        by it. Its first record has what it had read before; that counts as of now unless the
        partition was left out then.
        """
        spoke = False
        for each in positions:
            at = each.topic, each.partition
            known = self._partitions.get(at)
            speaks = not each.idle if known is None else each.offset_next > known.offset_next
            last_ms = None if known is None else known.spoke_ms
            self._partitions[at] = _Heard(
                each.offset_next, each.event_time_max_ms, each.idle, now_ms if speaks else last_ms
            )
            spoke = spoke or speaks
        return spoke

    @property
    def spoke_ms(self) -> int | None:
        """When one of the partitions spoke last; None: none has."""
        spoken = [each.spoke_ms for each in self._partitions.values() if each.spoke_ms is not None]
        return max(spoken, default=None)

    @property
    def lowest_ms(self) -> int:
        """The lowest of the largest event times of those partitions that are not left out; 0: one
        of them has never stated a time, or there is none.
        """
        counted = [each.event_time_max_ms for each in self._partitions.values() if not each.is_idle]
        return min(counted, default=0)

    @property
    def event_times_ms(self) -> list[int]:
        """The largest event time of each partition that has ever stated one."""
        return [
            each.event_time_max_ms for each in self._partitions.values() if each.event_time_max_ms
        ]
