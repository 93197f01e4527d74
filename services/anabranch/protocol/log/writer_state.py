"""State of one writer, as its boundary log alone defines it, independently of the other
writers.

Theory of operation. A writer's records form a chain: each has an id (timeline, batch) and names the
id that it continues. The state consists of the epoch, the accepted chain, and the *pending* parts:
parts of buckets that the writer has not closed yet. A record with ``closed`` c closes the writer's
buckets up to c. A record that continues an earlier one cuts off the records between: the writer
restarted from an older checkpoint. Branches are kept beside the chain (``protocol.log.tentative``).

No method raises, whatever a record says. The invariants are those of ``protocol.log.boundary_log``
that concern one writer: BL2, BL3, BL4, BL6 and BL13.
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
    BranchEnded,
    EpochStarted,
    Part,
    Provenance,
    Recomputed,
    ReplicaSnapshot,
)
from anabranch.protocol.log.tentative import Branches


@dataclass(slots=True)
class WriterState:
    """State of one writer, derived from the log alone."""

    epoch: int = -1
    """Offset of the newest ``EpochStarted``; -1 if the writer never began."""
    token: str = ""
    """Token of that record."""
    fingerprint: str = ""
    schema: str = ""
    version: int = 1
    node: str = ""
    closed: int = 0
    """Last bucket that the writer has closed, or that its base excludes from its own."""
    base: int = 0
    path: list[BatchId] = field(default_factory=list)
    """Ids of the accepted chain, as far as they are remembered."""
    timelines: dict[str, int] = field(default_factory=dict)
    """Last batch of each timeline of this epoch."""
    pending: OpenParts = field(default_factory=OpenParts)
    closed_parts: BucketMap[tuple[Part, ...]] = field(default_factory=BucketMap)
    last: BoundaryRecord | None = None
    branches: Branches = field(default_factory=Branches)
    origin: Provenance = field(default_factory=Provenance)

    @classmethod
    def from_snapshot(cls, r: ReplicaSnapshot) -> Self:
        """Return the writer that ``r`` describes, without those of its parts that stable ranges
        name.
        """
        writer = cls(
            epoch=r.epoch,
            token=r.token,
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
        """Return the state for a log snapshot, with the writer's parts of the closed buckets
        ``own``.
        """
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
            token=self.token,
        )

    def begin(self, offset: int, entry: EpochStarted) -> None:
        """Begin a new epoch at ``offset``. The chain continues."""
        self.epoch, self.token = offset, entry.token
        self.fingerprint = entry.fingerprint
        self.schema = entry.schema
        self.version = entry.version
        self.node = entry.node
        self.timelines.clear()  # records of older epochs are rejected before their id is compared

    def begin_anew(self) -> None:
        """Forget the epoch and the chain: no record of a process that has written so far counts any
        more, and none continues one of them. What was closed stays closed.
        """
        self.epoch, self.token = -1, ""
        self.path, self.pending = [], OpenParts()
        self.last, self.origin = None, Provenance()
        self.timelines.clear()

    def is_of_epoch(self, entry: BoundaryRecord | BranchEnded | Recomputed) -> bool:
        """Return whether the record belongs to the newest epoch (BL1)."""
        return entry.epoch == self.epoch and entry.token in ("", self.token)

    def knows(self, ident: BatchId) -> bool:
        """Return whether the record ``ident`` was accepted (BL2)."""
        return ident.batch <= self.timelines.get(ident.timeline, -1)

    def know(self, ident: BatchId) -> None:
        """Remember that the record ``ident`` was accepted (BL2)."""
        self.timelines[ident.timeline] = ident.batch
        if len(self.timelines) > TIMELINES_MAX:
            del self.timelines[next(iter(self.timelines))]

    def rewind(self, record: BoundaryRecord, stable_upto: int) -> str:
        """Cut the chain back to the record that ``record`` continues (rules 4 and 6). Return why
        the record does not count, if nothing was changed; empty if it does.

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
        """Return the number of parts of closed buckets that no reader can forget, because buckets
        before the writer's base are not stable (BL13).
        """
        if self.base <= stable_upto:
            return 0
        return sum(
            len(self.closed_parts[bucket])
            for bucket in self.closed_parts.between(stable_upto + 1, self.closed)
        )

    def take(self, record: BoundaryRecord, forgotten: int) -> bool:
        """Make ``record``, which ``rewind`` accepted, the new tip and close the buckets up to
        ``record.closed``. Return whether that closed any.

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
