"""Buckets: how event time is cut, and values by bucket number.

Theory of operation. Bucket ``n`` of a stream of bucket width ``w`` holds the rows with ``(n - 1) *
w < event_time <= n * w``. The *upper* bound belongs to the bucket, so that a window which ends at
the bound lies in the bucket that the bound closes. Bucket 0 holds ``event_time <= 0`` only at 0
itself; user time starts at 1 ms.

Buckets are numbered from the beginning of time and almost all are empty. So nothing in a
``BucketMap`` or in whoever uses it may count through bucket numbers. Every method costs as much as
the entries it touches (and the search for them), however far apart their numbers are.

Invariants:
    BU1 every event time in [1, EVENT_TIME_MS_MAX] is in exactly one bucket, ``bucket_of``.
    BU2 ``bound_ms(bucket_of(s)) - width < s <= bound_ms(bucket_of(s))``.
    BU3 ``closed_by(low)`` is the last bucket that no row with ``event_time >= low`` can be in.
    BM1 a map has its keys in ascending order, each once.
    BM2 a range may be of any size: ``first..last`` of 10**15 buckets costs what stands in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, TypeVar


def bucket_of(event_time_ms: int, width_ms: int) -> int:
    """The bucket that a row of ``event_time_ms`` is in."""
    return -(-event_time_ms // width_ms)


def bound_ms(bucket: int, width_ms: int) -> int:
    """The largest event time in ``bucket``, which is its boundary."""
    return bucket * width_ms


def closed_by(low_mark_ms: int, width_ms: int) -> int:
    """The last bucket that is complete when every later row has ``event_time >= low_mark_ms``
    (a row *at* the mark may still come).
    """
    return -(-low_mark_ms // width_ms) - 1


def buckets_of(span_ms: int, width_ms: int) -> int:
    """A span of time in whole buckets, rounded up."""
    return -(-span_ms // width_ms)


V = TypeVar("V")


class BucketMap(Generic[V]):
    """An ordered map of bucket numbers. Iterates over its (bucket, value) pairs, ascending."""

    __slots__ = ("_order", "_values")

    def __init__(self) -> None:
        self._values: dict[int, V] = {}
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[tuple[int, V]]:
        return ((bucket, self._values[bucket]) for bucket in self._order)

    def __setitem__(self, bucket: int, value: V) -> None:
        if bucket not in self._values:
            if not self._order or bucket > self._order[-1]:
                self._order.append(bucket)  # almost always: streams go forward
            else:
                insort(self._order, bucket)
        self._values[bucket] = value

    def __getitem__(self, bucket: int) -> V:
        return self._values[bucket]

    @property
    def highest(self) -> int:
        """The last bucket that has a value; 0: none has."""
        return self._order[-1] if self._order else 0

    def get(self, bucket: int) -> V | None:
        """The value of ``bucket``; None: it has none."""
        return self._values.get(bucket)

    def has(self, bucket: int) -> bool:
        """Whether ``bucket`` has a value, which may be None."""
        return bucket in self._values

    def between(self, first: int, last: int, count_max: int | None = None) -> list[int]:
        """The buckets in ``first..last`` that have a value, ascending; the first
        ``count_max`` of them.
        """
        begin, end = bisect_left(self._order, first), bisect_right(self._order, last)
        return self._order[begin : end if count_max is None else min(end, begin + count_max)]

    def pop_between(self, first: int, last: int) -> list[tuple[int, V]]:
        """Take out the buckets in ``first..last``: their (bucket, value), ascending."""
        begin, end = bisect_left(self._order, first), bisect_right(self._order, last)
        taken = [(bucket, self._values.pop(bucket)) for bucket in self._order[begin:end]]
        del self._order[begin:end]
        return taken

    def pop_upto(self, last: int) -> list[tuple[int, V]]:
        """Take out every bucket up to ``last``."""
        return self.pop_between(self._order[0], last) if self._order else []

    def clear(self) -> None:
        """Take out everything."""
        self._values.clear()
        self._order.clear()
