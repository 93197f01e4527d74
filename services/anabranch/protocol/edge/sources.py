"""A source as a whole: the streams that its shards write, what a shard knows of the others, and how
far the source has got while its boundary stands still (rule 13).

Theory of operation. *Shards* (``protocol.edge.shards``). A source with n shards, which are n
processes, is n streams. Each has one writer, a boundary log and blocks of its own, and is an
ordinary stream to all that follow it. A stage reads them as it reads any streams together: a bucket
of all shards or of none (PN1), and their rows are one input, under the name of the source.

The number of shards is part of what their logs say. Under another number the source has other
streams, which continue where these end (``protocol.edge.handover``).

A source is silent, or continues without a partition, as a whole, however many processes read it
(IN3, IN4). So each shard follows the boundary logs of the others. A partition of another shard
counts as active when a record of that shard has read on in it. Nothing else is exchanged: a shard
that receives nothing, because another is down or its log is unavailable, closes buckets by its own
partitions.

*Pace.* One silent partition holds the boundary of a source back, while the others continue. So
beside its boundary a source says up to which bucket it *has got*, which starts the timers of the
stages that read it; otherwise no stage would know that it waits. The largest event time alone does
not tell: one record of a producer whose clock is ahead would start timers of buckets that no source
can complete yet. So a source is assumed to continue from the last move of its boundary, at the
boundary's previous speed, but not beyond its newest record. While the boundary moves, the source is
at the boundary; while it stands, it is where the boundary would be. After an outage of all
partitions the first that is back moves the boundary a little, which is no reason to begin again so
late: of the last moves, the one counts from which the source would have got furthest.

The speed follows from what was seen: a source that replays is faster than the clock. No clock of
another machine is used. Where data is replayed the pace is known after PACE_LEAST_MS; until then,
and where data is slower than the clock, it is the clock's. It is the clock's, too, where the
boundary has gained no more on the clock than records are late by differing amounts: the first
seconds of a source, taken for its speed, would start the timers of buckets early for as long as the
boundary stands. And of a source that has caught up only what it does since then counts.

Invariants:
    SP1 ``upto_ms`` never goes back, and is never beyond the largest event time that was read.
    SP2 a record in front of all others moves it no faster than the boundary moved in each period
        of PACE_LEAST_MS to PACE_OVER_MS before its last move, or the clock since a move of that
        time, whichever gets further. Only the clock counts if the boundary gained no more than
        PACE_CATCH_UP_MS on it in all that time.
    SP3 while nothing is read it continues by PACE_CATCH_UP_MS at most: sources that all stand still
        have not failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.edge.shards import Shard
from anabranch.protocol.log.records import InputPosition


def wrong_shard(shard: Shard, positions: Iterable[InputPosition]) -> InputPosition | None:
    """Return a position in the log of ``shard`` whose partition is another shard's; None if there
    is none. Such a log was written when the source had another number of shards.
    """
    return next((each for each in positions if not shard.has(each.partition)), None)


@dataclass(slots=True)
class _Heard:
    """Newest reported state of one partition of another shard."""

    offset_next: int
    event_time_max_ms: int
    is_idle: bool
    spoke_ms: int | None


class OtherShards:
    """Partitions of the other shards, as their records report them; empty before the first one."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], _Heard] = {}

    def observe(self, positions: Iterable[InputPosition], now_ms: int) -> bool:
        """Record the positions in the newest record of another shard. Return whether one of its
        partitions has new records. Its first record has what it had read before; that counts as of
        now unless the partition was left out then.
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
        """Return the time of the last record of any partition, in ms; None if there was none."""
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


PACE_OVER_MS: Final = 10_000
"""Period over which the speed of a source's boundary is measured, in ms: short, since a source that
has caught up continues as fast as the clock.
"""

PACE_LEAST_MS: Final = 1_000
"""Shortest period over which a speed is measured, in ms: one chunk of a backlog may span any
time.
"""

PACE_CATCH_UP_MS: Final = 1_000
"""Time by which received records are late by differing amounts, in ms. A source advances by it
while nothing is read, since no other record may follow for a minute; in silence it does not wait
for records further ahead. A boundary that gains no more than this on the clock is as fast as the
clock.
"""


class SourcePace:
    """The pace of one source. Times named ``now_ms`` are of a monotonic clock."""

    def __init__(self, upto_ms: int, since_ms: int) -> None:
        """Start at ``upto_ms``, which the source reported last, at ``since_ms``; 0 if it has
        reported none.
        """
        self.upto_ms = upto_ms
        """The source has got to this event time."""
        self._first: tuple[int, int] | None = None
        self._moves: deque[tuple[int, int]] = deque([(since_ms, upto_ms)] if upto_ms else [])
        """Moves of the boundary over PACE_OVER_MS, and the one before, as (time, lowest event time
        then).
        """

    def moved(self, lowest_ms: int, now_ms: int) -> None:
        """Record that every partition that counts has reached the event time ``lowest_ms``."""
        self._moves.append((now_ms, lowest_ms))
        while len(self._moves) > 2 and now_ms - self._moves[1][0] >= PACE_OVER_MS:
            self._moves.popleft()

    def go_on(self, highest_ms: int, now_ms: int, *, speaks: bool) -> None:
        """Advance the source's progress. ``highest_ms``: largest event time that was read, 0 if
        none was; ``speaks``: whether records were read since the last call.
        """
        if self._first is None and highest_ms:
            self._first = (now_ms, highest_ms)
        if self._first is not None and (speaks or highest_ms - self.upto_ms <= PACE_CATCH_UP_MS):
            self.upto_ms = max(
                self.upto_ms, min(highest_ms, self._would_be(now_ms, self._moves or [self._first]))
            )

    @staticmethod
    def _would_be(now_ms: int, moves: Sequence[tuple[int, int]]) -> int:
        """Return the boundary after the moves (SP2)."""
        by_clock_ms = max(event_time_ms + now_ms - at_ms for at_ms, event_time_ms in moves)
        (begun_ms, first_ms), (ended_ms, last_ms) = moves[0], moves[-1]
        if last_ms - first_ms - (ended_ms - begun_ms) <= PACE_CATCH_UP_MS:
            return by_clock_ms
        by_speed_ms = min(
            (
                last_ms + (now_ms - ended_ms) * (last_ms - event_time_ms) // (ended_ms - at_ms)
                for at_ms, event_time_ms in moves
                if ended_ms - at_ms >= PACE_LEAST_MS
            ),
            default=by_clock_ms,
        )
        return max(by_clock_ms, by_speed_ms)
