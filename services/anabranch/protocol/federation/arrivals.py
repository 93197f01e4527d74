"""Arrivals of a stream by its boundary log: the quantities that are metered under
contracts for streams.

Theory of operation. The log says of each bucket when it became stable, by the log's own time, which
nobody can choose, and how many rows it has. A bucket came in time if that was no later than the
contract's delay after its end. Nothing else counts: no claim of either side, no clock of theirs,
nothing on the way of the data. So all readers of one log count the same, now or later, as long as
the log is kept.

A period is a whole number of buckets, counted from 1970: period p has those that end after its
beginning and no later than its end. It is over when nothing can come in time any more. Where a
reading began after the beginning of the log, a period of which it missed something has no figure.

Invariants:
    FD1  all readers of one log count the same, wherever their reading began; or count nothing.
    FD2  a bucket counts once: when it became stable.
    FD3  a bucket that is closed long before it ends does not come in time: its rows cannot be known
        then, so it is a mere claim.
    FD4  what is held is bounded by the periods that are not metered, however far apart bucket
        numbers are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from anabranch.protocol.federation.contract_log import WORD_SKEW_MS

EARLY_MS_MAX: Final = WORD_SKEW_MS
"""Maximum lead of a source's clock over the log's, in ms."""

PERIODS_MAX: Final = 100_000
"""Maximum number of unmetered periods kept; the oldest are dropped and have no figure: bounds what
a long log can make a reader hold.
"""


class Arrived(NamedTuple):
    """Messages and buckets of a period that arrived in time."""

    messages: int = 0
    buckets: int = 0


class Arrivals:
    """Arrivals of one plan's stream. Not thread-safe. After a crash: read the log again."""

    def __init__(self, bucket_ms: int, settle_ms: int, delay_ms: int) -> None:
        """Begin without arrivals. ``delay_ms``: time after a bucket's end in which it is in
        time.
        """
        self._width_ms, self._settle_ms, self._delay_ms = bucket_ms, settle_ms, delay_ms
        self._periods: dict[int, Arrived] = {}
        self._first = 0
        """First period that has a figure, or will have one."""
        self._seen_ms = 0

    @property
    def first_period(self) -> int:
        """First period that has a figure, or will have one."""
        return self._first

    def begins_after(self, bucket: int) -> None:
        """Note that the arrival times of the buckets up to this one are unknown (FD1)."""
        self.forget(self._period(bucket) + 1)

    def forget(self, period: int) -> None:
        """Forget the periods before ``period``: they have been metered, or need not be."""
        if period > self._first:
            self._first = period
            self._periods = {each: found for each, found in self._periods.items() if each >= period}

    def came(
        self, after: int, upto: int, rows: Iterable[tuple[int, int]], appended_ms: int
    ) -> None:
        """Count the buckets ``after + 1`` to ``upto``, which became stable by a record that the
        broker appended at this time. ``rows``: (bucket, rows) of those with rows.
        """
        first, last = self._in_time(appended_ms)
        first, last = max(first, after + 1, self._first * self._per_period + 1), min(last, upto)
        for period in range(self._period(first), self._period(last) + 1) if first <= last else ():
            ends = (period + 1) * self._per_period
            count = min(last, ends) - max(first, ends - self._per_period + 1) + 1
            self._add(period, Arrived(0, count))
        for bucket, count in rows:
            if first <= bucket <= last:
                self._add(self._period(bucket), Arrived(count, 0))
        self._seen_ms = max(self._seen_ms, appended_ms)
        if len(self._periods) > PERIODS_MAX:
            self.forget(max(self._periods) - PERIODS_MAX // 2)

    def is_over(self, period: int) -> bool:
        """Return whether no row of a period can still arrive in time, by the log as far as read."""
        return self._seen_ms > (period + 1) * self._settle_ms + self._delay_ms

    def of(self, period: int) -> Arrived | None:
        """Return the arrivals in time of a period; None if it was not followed as a whole."""
        return None if period < self._first else self._periods.get(period, Arrived())

    @property
    def _per_period(self) -> int:
        return self._settle_ms // self._width_ms

    def _period(self, bucket: int) -> int:
        return (bucket - 1) // self._per_period

    def _in_time(self, appended_ms: int) -> tuple[int, int]:
        """Return the first and last bucket that still arrive in time (FD3)."""
        width_ms = self._width_ms
        return -(-(appended_ms - self._delay_ms) // width_ms), (
            appended_ms + EARLY_MS_MAX
        ) // width_ms

    def _add(self, period: int, more: Arrived) -> None:
        found = self._periods.get(period, Arrived())
        self._periods[period] = Arrived(
            found.messages + more.messages, found.buckets + more.buckets
        )
