"""The cutting of a record that names too many parts (rules 3, 9).

Theory of operation. How many buckets a batch of a stage gives results in is up to its function and
its state: windows over a backlog end in far more buckets than were read. The plan stands in Spark's
log before anybody can know, and is run again as it is (rule 9). So the record must be sayable
however many parts it has. ``pieces`` cuts its parts by bucket. Each piece is an ordinary record
that continues the one before and closes what is whole by then, so every reader takes it as any
other, and the number of open parts does not grow with the batch. The last piece has the batch's own
id, which is what whoever goes on from the checkpoint continues. The ids of those before are of one
timeline of their own, named after the batch's: readers remember TIMELINES_MAX of them, and must not
lose the batch's own over its pieces.

Invariants:
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

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from anabranch.protocol.errors import TooManyParts
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import PARTS_PER_RECORD_MAX
from anabranch.protocol.log.records import BoundaryRecord

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
