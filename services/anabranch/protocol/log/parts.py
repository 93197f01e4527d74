"""Named parts: those of buckets that are still open, and the cutting of a record that names too
many (rules 3-5, 9, 16).

Theory of operation. A part belongs to a bucket and comes with the record that named it.
``OpenParts`` holds those of one writer, or of one branch of it, until their bucket is closed. It
knows the record of each, so that a rewind can drop the parts of the records that it cuts off (rule
4). Parts of one bucket keep the order in which they were named.

How many buckets a batch of a stage gives results in is up to its function and its state: windows
over a backlog end in far more buckets than were read. The plan stands in Spark's log before anybody
can know, and is run again as it is (rule 9). So the record must be sayable however many parts it
has. ``pieces`` cuts its parts by bucket. Each piece is an ordinary record that continues the one
before and closes what is whole by then, so every reader takes it as any other, and the number of
open parts does not grow with the batch. The last piece has the batch's own id, which is what
whoever goes on from the checkpoint continues. The ids of those before are of one timeline of their
own, named after the batch's: readers remember TIMELINES_MAX of them, and must not lose the batch's
own over its pieces.

Invariants:
    OP1 ``len`` is the number of open parts, over all buckets: what PENDING_PARTS_MAX bounds.
    OP2 closing buckets costs what they hold, however much is open beyond them.
    RP1 no piece names more than PARTS_PER_RECORD_MAX parts, and a record that needs no cut is its
        only piece.
    RP2 a bucket is closed with the piece that names its last part, or a later one: the pieces
        together say what the record says.
    RP3 after a crash between two pieces the batch's re-run continues the record before the batch,
        which cuts off the pieces that were appended (rule 4). The buckets that they closed stay,
        and are the same, as those of any batch that is run again.
    RP4 ids of pieces are distinct, and rise within their timeline from piece to piece and from
        batch to batch, however many there are.
    RP5 a batch has at most PIECES_MAX pieces, so that the record before it is still remembered when
        the last one is appended (RP3).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from anabranch.protocol.errors import TooManyParts
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import PARTS_PER_RECORD_MAX
from anabranch.protocol.log.buckets import BucketMap
from anabranch.protocol.log.records import BoundaryRecord, Part


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


PIECES_MAX: Final = 1_000
"""Records in which one batch of a stage is written: far more parts than the memory of a stage
holds. Well below CHAIN_RECORDS_MAX: a batch that is run again continues the record before its first
piece.
"""


def pieces(record: BoundaryRecord) -> Iterator[BoundaryRecord]:
    """The records to append for ``record`` of a stage, in order; the last one has its id.

    Raises:
        TooManyParts: before the first piece (RP5).
    """
    if len(record.parts) > PIECES_MAX * PARTS_PER_RECORD_MAX:
        message = (
            f"batch {record.id} gives results in {len(record.parts)} parts, more than {PIECES_MAX}"
            " records name"
        )
        raise TooManyParts(message)
    if len(record.parts) <= PARTS_PER_RECORD_MAX:
        yield record
        return
    parts = sorted(record.parts, key=lambda part: part.bucket)
    base = record.base
    prev = record.prev
    number = 0
    while len(parts) > PARTS_PER_RECORD_MAX:
        number += 1
        named, parts = tuple(parts[:PARTS_PER_RECORD_MAX]), parts[PARTS_PER_RECORD_MAX:]
        ident = BatchId(f"{record.id.timeline}.pieces", record.id.batch * PIECES_MAX + number)
        yield replace(
            record,
            id=ident,
            prev=prev,
            base=base,
            closed=min(record.closed, parts[0].bucket - 1),
            parts=named,
        )
        base, prev = None, ident
    yield replace(record, prev=prev, base=base, parts=tuple(parts))
