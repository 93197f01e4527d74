"""The named parts of buckets that are still open, of one writer or one branch of it (rules 3-5,
16).

A part belongs to a bucket and comes with the record that named it, so that a rewind can drop the
parts of the records that it cuts off (rule 4). Parts of one bucket keep the order in which they
were named.

Invariants:
    OP1 ``len`` is the number of parts, over all buckets: what PENDING_PARTS_MAX bounds.
    OP2 closing buckets costs what they hold, however much is open beyond them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.buckets import BucketMap
from anabranch.protocol.log.records import Part


class OpenParts:
    """Parts by bucket, each with the id of the record that named it."""

    __slots__ = ("_buckets", "_count")

    def __init__(self, parts: Iterable[tuple[BatchId, Part]] = ()) -> None:
        self._buckets: BucketMap[list[tuple[BatchId, Part]]] = BucketMap()
        self._count = 0
        for ident, part in parts:
            self.add(ident, part)

    def __len__(self) -> int:
        return self._count

    def add(self, ident: BatchId, part: Part) -> None:
        """The record ``ident`` names ``part``."""
        named = self._buckets.get(part.bucket)
        if named is None:
            self._buckets[part.bucket] = [(ident, part)]
        else:
            named.append((ident, part))
        self._count += 1

    def fits(self, parts: Sequence[Part], closed: int, count_max: int) -> bool:
        """Whether at most ``count_max`` parts stay open when a record names ``parts`` and
        closes buckets up to ``closed``.
        """
        if self._count + len(parts) <= count_max:
            return True
        staying = sum(len(named) for bucket, named in self._buckets if bucket > closed)
        return staying + sum(part.bucket > closed for part in parts) <= count_max

    def close(self, upto: int) -> list[tuple[int, tuple[Part, ...]]]:
        """Take out every bucket up to ``upto``: (bucket, its parts), ascending (OP2)."""
        closed = [
            (bucket, tuple([part for _, part in named]))
            for bucket, named in self._buckets.pop_upto(upto)
        ]
        self._count -= sum(len(parts) for _, parts in closed)
        return closed

    def drop(self, idents: Container[BatchId]) -> None:
        """Rule 4: drop the parts that the records ``idents`` named. Costs as much as is open."""
        kept = [(ident, part) for ident, part in self.items() if ident not in idents]
        self.clear()
        for ident, part in kept:
            self.add(ident, part)

    def clear(self) -> None:
        """Drop everything."""
        self._buckets.clear()
        self._count = 0

    def of(self, bucket: int) -> tuple[Part, ...]:
        """The parts of ``bucket``."""
        return tuple([part for _, part in self._buckets.get(bucket) or ()])

    def between(self, first: int, last: int, count_max: int | None = None) -> list[int]:
        """The buckets in ``first..last`` that have parts, ascending; the first ``count_max``
        of them.
        """
        return self._buckets.between(first, last, count_max)

    def items(self) -> tuple[tuple[BatchId, Part], ...]:
        """All of them, by bucket."""
        return tuple([item for _, named in self._buckets for item in named])
