"""Buckets: the division of event time, maps by bucket number, and the named parts of buckets that
are still open (rules 3-5, 16).

Theory of operation. Bucket ``n`` of a stream of bucket width ``w`` holds the rows with ``(n - 1) *
w < event_time <= n * w``. The *upper* bound belongs to the bucket, so that a window which ends at
the bound lies in the bucket that the bound closes. Bucket 0 holds ``event_time <= 0`` only at 0
itself; user time starts at 1 ms.

Buckets are numbered from the beginning of time and almost all are empty. So neither a ``BucketMap``
nor its users may iterate over bucket numbers. Every method costs as much as the entries it touches
(and the search for them), however far apart their numbers are.

A part belongs to a bucket and comes with the record that named it. ``OpenParts`` holds those of one
writer, or of one branch of it, until their bucket is closed. It knows the record of each, so that a
rewind can drop the parts of the records that it cuts off (rule 4). Parts of one bucket keep the
order in which they were named.

Invariants:
    BU1 every event time in [1, EVENT_TIME_MS_MAX] is in exactly one bucket, ``bucket_of``.
    BU2 ``bound_ms(bucket_of(s)) - width < s <= bound_ms(bucket_of(s))``.
    BU3 ``closed_by(low)`` is the last bucket that no row with ``event_time >= low`` can be in.
    BM1 a map has its keys in ascending order, each once.
    BM2 a range may be of any size: ``first..last`` of 10**15 buckets costs as much as its entries.
    OP1 ``len`` is the number of open parts, over all buckets: what PENDING_PARTS_MAX bounds.
    OP2 closing buckets costs as much as their parts, however many are open beyond them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import Part


def bucket_of(event_time_ms: int, width_ms: int) -> int:
    """Return the bucket that contains ``event_time_ms``."""
    return -(-event_time_ms // width_ms)


def bound_ms(bucket: int, width_ms: int) -> int:
    """Return the boundary of ``bucket``: its largest event time, in ms."""
    return bucket * width_ms


def closed_by(low_mark_ms: int, width_ms: int) -> int:
    """Return the last bucket that is complete if every later row has ``event_time >= low_mark_ms``
    (a row *at* the mark may still arrive).
    """
    return -(-low_mark_ms // width_ms) - 1


def buckets_of(span_ms: int, width_ms: int) -> int:
    """Return the length of a span of time in whole buckets, rounded up."""
    return -(-span_ms // width_ms)


V = TypeVar("V")


class BucketMap(Generic[V]):
    """Ordered map of bucket numbers to values. Iterates over (bucket, value), ascending."""

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
                self._order.append(bucket)  # the common case: buckets arrive in ascending order
            else:
                insort(self._order, bucket)
        self._values[bucket] = value

    def __getitem__(self, bucket: int) -> V:
        return self._values[bucket]

    @property
    def highest(self) -> int:
        """Last bucket that has a value; 0 if the map is empty."""
        return self._order[-1] if self._order else 0

    def get(self, bucket: int) -> V | None:
        """Return the value of ``bucket``; None if it has none."""
        return self._values.get(bucket)

    def has(self, bucket: int) -> bool:
        """Return whether ``bucket`` has a value, which may be None."""
        return bucket in self._values

    def between(self, first: int, last: int, count_max: int | None = None) -> list[int]:
        """Return the buckets in ``first..last`` that have a value, ascending; only the first
        ``count_max`` of them.
        """
        begin, end = bisect_left(self._order, first), bisect_right(self._order, last)
        return self._order[begin : end if count_max is None else min(end, begin + count_max)]

    def pop_between(self, first: int, last: int) -> list[tuple[int, V]]:
        """Remove the buckets in ``first..last`` and return their (bucket, value), ascending."""
        begin, end = bisect_left(self._order, first), bisect_right(self._order, last)
        taken = [(bucket, self._values.pop(bucket)) for bucket in self._order[begin:end]]
        del self._order[begin:end]
        return taken

    def pop_upto(self, last: int) -> list[tuple[int, V]]:
        """Remove every bucket up to ``last`` and return their (bucket, value) pairs, ascending."""
        return self.pop_between(self._order[0], last) if self._order else []

    def clear(self) -> None:
        """Remove all values."""
        self._values.clear()
        self._order.clear()


class OpenParts:
    """Parts of open buckets, by bucket, each with the id of the record that named it."""

    __slots__ = ("_buckets", "_count")

    def __init__(self, parts: Iterable[tuple[BatchId, Part]] = ()) -> None:
        self._buckets: BucketMap[list[tuple[BatchId, Part]]] = BucketMap()
        self._count = 0
        for ident, part in parts:
            self.add(ident, part)

    def __len__(self) -> int:
        return self._count

    def add(self, ident: BatchId, part: Part) -> None:
        """Add ``part``, which the record ``ident`` named."""
        named = self._buckets.get(part.bucket)
        if named is None:
            self._buckets[part.bucket] = [(ident, part)]
        else:
            named.append((ident, part))
        self._count += 1

    def fits(self, parts: Sequence[Part], closed: int, count_max: int) -> bool:
        """Return whether at most ``count_max`` parts stay open after a record that names ``parts``
        and closes buckets up to ``closed``.
        """
        if self._count + len(parts) <= count_max:
            return True
        staying = sum(len(named) for bucket, named in self._buckets if bucket > closed)
        return staying + sum(part.bucket > closed for part in parts) <= count_max

    def close(self, upto: int) -> list[tuple[int, tuple[Part, ...]]]:
        """Remove every bucket up to ``upto`` and return (bucket, its parts), ascending (OP2)."""
        closed = [
            (bucket, tuple([part for _, part in named]))
            for bucket, named in self._buckets.pop_upto(upto)
        ]
        self._count -= sum(len(parts) for _, parts in closed)
        return closed

    def drop(self, idents: Container[BatchId]) -> None:
        """Drop the parts that the records ``idents`` named (rule 4). Costs as much as is open."""
        kept = [(ident, part) for ident, part in self.items() if ident not in idents]
        self.clear()
        for ident, part in kept:
            self.add(ident, part)

    def clear(self) -> None:
        """Drop all parts."""
        self._buckets.clear()
        self._count = 0

    def of(self, bucket: int) -> tuple[Part, ...]:
        """Return the parts of ``bucket``, in the order in which they were named."""
        return tuple([part for _, part in self._buckets.get(bucket) or ()])

    def between(self, first: int, last: int, count_max: int | None = None) -> list[int]:
        """Return the buckets in ``first..last`` that have parts, ascending; only the first
        ``count_max`` of them.
        """
        return self._buckets.between(first, last, count_max)

    def items(self) -> tuple[tuple[BatchId, Part], ...]:
        """Return all (record id, part) pairs, ordered by bucket."""
        return tuple([item for _, named in self._buckets for item in named])
