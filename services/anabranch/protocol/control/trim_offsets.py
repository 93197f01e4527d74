"""Up to which offset may the blocks of one stream be deleted, once no reader needs its buckets up
to some bucket (rule 18)?

Theory of operation. A trim point is a bucket, deletion wants an offset for each partition of each
writer's block topic. Blocks of later buckets stand between those of earlier ones, and blocks may be
there that no record names yet. What is known:

- the parts that accepted records name. Blocks of later buckets keep everything from their first
  offset on;
- a writer's stable batches come one after the other: a batch's blocks are written after the record
  of the batch before was appended. So blocks of its *next* stable record stand behind all blocks
  that its stable records have named so far, in each partition. Its branch writes at the same time,
  so that tentative parts say nothing of the kind, nor do those of buckets that it makes again for a
  reader.

A log snapshot in place of the beginning of the log names all that is above the trim point. What
records named of buckets below it is not known then, and not needed: it was deleted, or will be
behind what later buckets have.

Hence: delete below the end of what stable records named of trimmed buckets, but nothing that a
    later bucket needs.

Invariants:
    TO1 no offset of a part of a bucket above the trim point is deleted, whether stable, pending,
        tentative, or recomputed.
    TO2 no block of a stable record that is still to come is deleted.
    TO3 offsets never fall.
    TO4 memory is that of the parts of buckets above the trim point, summed up by bucket and
        partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.bucket_map import BucketMap
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    LogEntry,
    LogSnapshot,
    Part,
    Recomputed,
)

Place = tuple[str, int]
"""(writer, partition of its block topic)."""


@dataclass(slots=True)
class _Span:
    """What records named of one bucket in one partition."""

    first: int
    stable_next: int = 0
    """End of what stable records named; 0: nothing."""


class TrimOffsets:
    """The offsets of one stream. Tell it every record of the boundary log right after the log
    state took it.
    """

    def __init__(self) -> None:
        self._spans: dict[Place, BucketMap[_Span]] = {}
        self._offsets: dict[Place, int] = {}
        self._passed: dict[Place, int] = {}
        """End of what stable records named of trimmed buckets."""
        self._bucket = 0

    def seen(self, entry: LogEntry, outcome: Outcome) -> None:
        """Take note of a record."""
        if not outcome.accepted:
            return
        if isinstance(entry, LogSnapshot):
            self._adopt(entry)
        elif isinstance(entry, (BoundaryRecord, Recomputed)):
            in_order = isinstance(entry, BoundaryRecord) and entry.kind is BoundaryKind.STABLE
            self._named(entry.replica, entry.parts, in_order=in_order)

    def _adopt(self, log_snapshot: LogSnapshot) -> None:
        for stable in log_snapshot.ranges:
            self._named(stable.replica, stable.parts, in_order=not stable.recomputed)
        for r in log_snapshot.replicas:
            self._named(
                r.replica, (*r.closed_parts, *(part for _, part in r.pending)), in_order=True
            )
            if r.branches is not None:
                self._named(r.replica, [part for _, part in r.branches.pending], in_order=False)
                for covered in r.branches.ranges:
                    self._named(r.replica, covered.parts, in_order=False)

    def _named(self, replica: str, parts: Iterable[Part], *, in_order: bool) -> None:
        """Parts of ``replica``; ``in_order``: named by a stable record."""
        for part in parts:
            place = replica, part.partition
            stable_next = part.offset_next if in_order else 0
            if part.bucket <= self._bucket:
                self._passed[place] = max(self._passed.get(place, 0), stable_next)
                continue
            spans = self._spans.setdefault(place, BucketMap())
            span = spans.get(part.bucket)
            if span is None:
                spans[part.bucket] = _Span(part.offset_first, stable_next)
            else:
                span.first, span.stable_next = (
                    min(span.first, part.offset_first),
                    max(span.stable_next, stable_next),
                )

    def below(self, bucket: int) -> dict[Place, int]:
        """The offsets below which may be deleted, by place, when nobody needs buckets up to
        ``bucket``; places where it is 0 are left out.
        """
        self._bucket = max(self._bucket, bucket)
        for place, spans in self._spans.items():
            for _, span in spans.pop_upto(self._bucket):
                self._passed[place] = max(self._passed.get(place, 0), span.stable_next)
        for place, passed in self._passed.items():
            needed = min((span.first for _, span in self._spans.get(place) or ()), default=passed)
            self._offsets[place] = max(self._offsets.get(place, 0), min(passed, needed))
        return {place: offset for place, offset in self._offsets.items() if offset}
