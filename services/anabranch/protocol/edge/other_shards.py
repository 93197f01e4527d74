"""What a shard of a source knows of the others, from their boundary records.

Theory of operation. A source is silent, or continues without a partition, as a whole, however many
processes read it (IN3, IN4). So each shard follows the logs of the others. A partition of another
shard speaks when a record of that shard has read on in it. Nothing else is exchanged: a shard that
hears nothing, because another is down or its log is unavailable, closes buckets by its own
partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.protocol.log.records import InputPosition


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
        by it. What it says first is what it had read before, and counts as said now unless the
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
        of them has never said a time, or there is none.
        """
        counted = [each.event_time_max_ms for each in self._partitions.values() if not each.is_idle]
        return min(counted, default=0)

    @property
    def event_times_ms(self) -> list[int]:
        """The largest event time of each partition that has ever said one."""
        return [
            each.event_time_max_ms for each in self._partitions.values() if each.event_time_max_ms
        ]
