"""What a boundary log says of one of its writers, whatever the others do.

Theory of operation. A writer's records form a chain: each has an id (timeline, batch) and names the
id that it continues. Kept are the epoch, the accepted chain, and the *pending* parts: parts of
buckets that the writer has not closed yet. A record that closes up to c closes the writer's buckets
up to c. A record that continues an earlier one cuts off what lies between: a restart from an older
checkpoint. Its branches are beside the chain (``protocol.log.tentative``).

Nothing here raises, whatever a record says. The invariants are those of
``protocol.log.boundary_log`` that speak of one writer: BL2, BL3, BL4, BL6 and BL13.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CHAIN_RECORDS_MAX, PENDING_PARTS_MAX, TIMELINES_MAX
from anabranch.protocol.log.buckets import BucketMap, OpenParts
from anabranch.protocol.log.records import (
    BoundaryRecord,
    EpochStarted,
    Origin,
    Part,
    ReplicaSnapshot,
)
from anabranch.protocol.log.tentative import Branches


@dataclass(slots=True)
class WriterState:
    """One writer, from the log alone."""

    epoch: int = -1
    """Offset of its newest ``EpochStarted``; -1: it never began."""
    fingerprint: str = ""
    schema: str = ""
    version: int = 1
    node: str = ""
    closed: int = 0
    """The last bucket that it has closed, or that its base says is not its own."""
    base: int = 0
    path: list[BatchId] = field(default_factory=list)
    """The accepted chain, as far as it is remembered."""
    timelines: dict[str, int] = field(default_factory=dict)
    """The last batch of each timeline of this epoch."""
    pending: OpenParts = field(default_factory=OpenParts)
    closed_parts: BucketMap[tuple[Part, ...]] = field(default_factory=BucketMap)
    last: BoundaryRecord | None = None
    branches: Branches = field(default_factory=Branches)
    origin: Origin = field(default_factory=Origin)

    @classmethod
    def from_snapshot(cls, r: ReplicaSnapshot) -> Self:
        """The writer that ``r`` was made from, without those of its buckets that are in stable
        ranges.
        """
        writer = cls(
            epoch=r.epoch,
            fingerprint=r.fingerprint,
            schema=r.schema,
            version=r.version,
            node=r.node,
            closed=r.closed,
            base=r.base,
            path=list(r.path),
            timelines={i.timeline: i.batch for i in r.timelines},
            pending=OpenParts(r.pending),
            last=r.last,
            branches=Branches.from_snapshot(r.branches, r.ended, r.corrected),
            origin=r.origin,
        )
        for part in r.closed_parts:
            kept = writer.closed_parts.get(part.bucket) or ()
            writer.closed_parts[part.bucket] = (*kept, part)
        return writer

    def snapshot(self, name: str, own: Iterable[int]) -> ReplicaSnapshot:
        """The writer, with its parts of the closed buckets ``own``."""
        return ReplicaSnapshot(
            replica=name,
            epoch=self.epoch,
            fingerprint=self.fingerprint,
            schema=self.schema,
            closed=self.closed,
            base=self.base,
            path=tuple(self.path),
            version=self.version,
            node=self.node,
            timelines=tuple(BatchId(k, v) for k, v in self.timelines.items()),
            pending=self.pending.items(),
            last=self.last,
            closed_parts=tuple(part for bucket in own for part in self.closed_parts[bucket]),
            branches=self.branches.snapshot(),
            origin=self.origin,
            ended=self.branches.ended,
            corrected=self.branches.corrected,
        )

    def begin(self, offset: int, entry: EpochStarted) -> None:
        """A new epoch, which is the offset of its record. The chain goes on."""
        self.epoch = offset
        self.fingerprint = entry.fingerprint
        self.schema = entry.schema
        self.version = entry.version
        self.node = entry.node
        self.timelines.clear()  # ids of older epochs are rejected by the epoch

    def knows(self, ident: BatchId) -> bool:
        """BL2: whether the record of this id was accepted."""
        return ident.batch <= self.timelines.get(ident.timeline, -1)

    def know(self, ident: BatchId) -> None:
        """BL2: the record of this id was accepted."""
        self.timelines[ident.timeline] = ident.batch
        if len(self.timelines) > TIMELINES_MAX:
            del self.timelines[next(iter(self.timelines))]

    def rewind(self, record: BoundaryRecord, stable_upto: int) -> str:
        """Rules 4 and 6: go to the place on the chain that ``record`` continues. Returns why it
        does not count (nothing has changed); empty: it does.

        ``stable_upto``: every bucket of the stream up to this one is stable.
        """
        if self._behind_hole(stable_upto) > PENDING_PARTS_MAX:
            return "pending"
        if record.base is not None:
            self.path = [] if record.prev is None else [record.prev]
            self.pending.clear()
            self.base = max(self.base, record.base)
            self.closed = max(self.closed, record.base)
        elif record.prev is None:
            self.path = []
            self.pending.clear()
        elif self.path and self.path[-1] == record.prev:
            if not self.pending.fits(record.parts, record.closed, PENDING_PARTS_MAX):
                return "pending"
        elif record.prev in self.path:
            end = self.path.index(record.prev) + 1
            self.pending.drop(frozenset(self.path[end:]))
            del self.path[end:]
        else:
            return "off_chain"
        return ""

    def _behind_hole(self, stable_upto: int) -> int:
        """Parts of buckets that the writer closed and that no reader can forget, because what
        lies before its base is not stable (BL13).
        """
        if self.base <= stable_upto:
            return 0
        return sum(
            len(self.closed_parts[bucket])
            for bucket in self.closed_parts.between(stable_upto + 1, self.closed)
        )

    def take(self, record: BoundaryRecord, forgotten: int) -> bool:
        """``record``, which ``rewind`` has let pass, is the new tip: it closes the buckets up to
        ``record.closed``. Whether it closes any.

        ``forgotten``: buckets up to this one are not described.
        """
        self.path.append(record.id)
        del self.path[:-CHAIN_RECORDS_MAX]
        self.last = record
        for part in record.parts:
            if part.bucket > self.closed:
                self.pending.add(record.id, part)
        if record.closed <= self.closed:
            return False
        for bucket, parts in self.pending.close(record.closed):
            if bucket > forgotten:
                self.closed_parts[bucket] = parts
        self.closed = record.closed
        return True
