"""Workload of a stage, and the part of it that each node has done: its load, and the quantities
that are metered of a movement.

Theory of operation. The unit is one row of input in a second of event time. How many rows each
bucket of the input has stands in the input's boundary log, which bucket was made on which node in
that of the stage. Both sides of a contract read both logs, so they measure the same without a word
to one another, and a clock counts for nothing: a slot of the contract is the buckets that end in
it. What a seller claims beyond that is a dispute; what it has not made is not paid.

Rows are counted from the moment on at which the logs are followed and something is closed: the
first bucket of a stream has a large number. A slot that was not followed whole has no figure, as
after a restart; the other side's figure counts then (``metering``).

The waiting time of the oldest bucket that the inputs have and the stage has not computed shows
whether the node that runs the stage keeps up. Moments are the follower's own.

Invariants:
    FV1  all followers of the same logs measure the same, in whatever order they are read.
    FV2  a bucket counts for one node, the one that closed it first.
    FV3  a slot is measured when all of its buckets are closed, here and in all inputs.
    FV4  of a slot a movement is paid for the rows that its nodes made, never for more time than it
         ran.
    FV5  a bucket waits from the moment on at which the follower read that all inputs have it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

from anabranch.protocol.federation.contracts import PARTS_PER_MILLION, LoadUnit

ROW_PER_SECOND: Final = LoadUnit("row/s", PARTS_PER_MILLION)
"""The unit of contracts under which agents trade."""

KEPT_BUCKETS: Final = 20_000
"""Maximum number of buckets kept: bounds what a follower holds, and how late a slot may be
measured.
"""

WAITS_MAX: Final = 10_000
"""Maximum number of arrival times kept: bounds what a follower holds of a stage that produces
nothing. Later ones count as one.
"""

_MS_PER_S: Final = 1_000


class Workload:
    """Workload of one stage. Not thread-safe. After a crash it follows the logs from then on."""

    def __init__(self, inputs: Collection[str], bucket_ms: int) -> None:
        self._bucket_ms = bucket_ms
        self._arrived: dict[str, int | None] = dict.fromkeys(inputs)
        """Last stable bucket of each input; None if the input is not followed yet."""
        self._rows: dict[int, int] = {}
        self._made_by: dict[int, str] = {}
        self._made: int | None = None
        self._since = 0
        """Last bucket that is not known."""
        self._measured: int | None = None
        self._waits: deque[tuple[int, int]] = deque()
        """Buckets that the stage has not made up to which all inputs became stable, each with the
        time of that, in ms.
        """

    def arrived(self, stream: str, upto: int, rows: Mapping[int, int], at_ms: int = 0) -> None:
        """Note that an input is stable up to ``upto``. ``rows``: rows of its buckets since the last
        call.
        """
        before = self._arrived[stream]
        self._arrived[stream] = upto
        self._await(at_ms)
        if not before:
            self._since = max(self._since, upto)
            return
        for bucket, count in rows.items():
            self._rows[bucket] = self._rows.get(bucket, 0) + count
        self._forget(self._rows)

    def made(self, node: str, upto: int) -> None:
        """Note that the stage is closed up to ``upto``, the last of it on ``node`` (FV2)."""
        before, self._made = self._made, max(upto, self._made or 0)
        while self._waits and self._waits[0][0] <= self._made:
            self._waits.popleft()
        if not before:
            self._since = max(self._since, upto)
            return
        for bucket in range(max(before, upto - KEPT_BUCKETS) + 1, upto + 1):
            self._made_by[bucket] = node
        self._forget(self._made_by)

    def _await(self, at_ms: int) -> None:
        """Note the arrival of a bucket that the stage has not made (FV5)."""
        upto, last = self._upto, self._waits[-1][0] if self._waits else self._made or 0
        if upto is None or upto <= last:
            return
        if len(self._waits) == WAITS_MAX:
            self._waits.pop()
        self._waits.append((upto, at_ms))

    def waits_since(self) -> int | None:
        """Return the time since which the oldest unmade bucket waits, in ms (FV5); None if all are
        made.
        """
        return self._waits[0][1] if self._waits else None

    def _forget(self, known: Mapping[int, object]) -> None:
        """Forget the oldest entries beyond the maximum."""
        if len(known) <= KEPT_BUCKETS:
            return
        self._since = max(self._since, max(known) - KEPT_BUCKETS // 2)
        self._rows = {bucket: each for bucket, each in self._rows.items() if bucket > self._since}
        self._made_by = {
            bucket: each for bucket, each in self._made_by.items() if bucket > self._since
        }

    @property
    def _upto(self) -> int | None:
        """Last bucket up to which all inputs are stable; None: one is not followed yet."""
        ends = [end for end in self._arrived.values() if end is not None]
        return min(ends) if ends and len(ends) == len(self._arrived) else None

    def load(self) -> int | None:
        """Return the mean load of the rows that arrived since the last call; None: none did."""
        upto = self._upto
        if upto is None:
            return None
        before, self._measured = self._measured, upto
        if not before or upto <= before:
            return None
        rows = sum(count for bucket, count in self._rows.items() if before < bucket <= upto)
        return _rate(rows, (upto - before) * self._bucket_ms)

    def is_over(self, slot: int, meter_ms: int) -> bool:
        """Return whether a slot may be measured (FV3)."""
        upto, last = self._upto, self._buckets(slot, meter_ms).stop - 1
        return upto is not None and self._made is not None and min(upto, self._made) >= last

    def units(self, slot: int, meter_ms: int, nodes: Collection[str], ran_ms: int) -> int | None:
        """Return the mean load that ``nodes`` processed in a slot of which the movement ran for
        ``ran_ms`` (FV4); None: the slot was not followed whole.
        """
        buckets = self._buckets(slot, meter_ms)
        if buckets.start <= self._since or not self.is_over(slot, meter_ms):
            return None
        own = self._own(buckets, nodes)
        rows = sum(self._rows.get(bucket, 0) for bucket in own)
        return _rate(rows, max(len(own) * self._bucket_ms, ran_ms))

    def has_made(self, slot: int, meter_ms: int, nodes: Collection[str]) -> bool:
        """Return whether one of ``nodes`` closed a bucket of a slot, with or without rows."""
        return bool(self._own(self._buckets(slot, meter_ms), nodes))

    def _own(self, buckets: range, nodes: Collection[str]) -> list[int]:
        return [bucket for bucket in buckets if self._made_by.get(bucket) in nodes]

    def _buckets(self, slot: int, meter_ms: int) -> range:
        """Return the buckets that end in a slot: bucket n ends at n widths."""
        first, end = (
            -(-moment // self._bucket_ms) for moment in (slot * meter_ms, (slot + 1) * meter_ms)
        )
        return range(first, end)


def _rate(rows: int, over_ms: int) -> int:
    """Return the rate in rows per second, rounded; 0 for an empty time."""
    return over_ms and (rows * _MS_PER_S + over_ms // 2) // over_ms
