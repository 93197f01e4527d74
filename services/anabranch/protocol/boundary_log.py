"""The fold of a boundary log: what is every bucket of a stream made of, and by whom.

Theory of operation. All writers of a stream append to one single-partition topic, so every reader folds the same sequence and comes to the
same answer. A writer's records form a chain: each has an id (lineage, batch) and names the id that it continues. The fold keeps, per
writer, its epoch, the accepted chain, and the *pending* parts: parts of buckets that the writer has not closed yet. A record that closes up
to c makes the writer's buckets up to c final. The stream's stable bucket n is the one of the writer that closed it first, whole.

Buckets are numbered from the beginning of time, so almost all are empty: only buckets with parts are stored, everything else is ranges.

Invariants:
    L1  records of a writer count only while they carry the epoch of its newest ``EpochStarted`` (rule 1).
    L2  a record is accepted once: a known id is ignored (rule 4).
    L3  an accepted record continues the tip, or cuts the chain back to an earlier id on it; parts of what was cut off are dropped (rule 4).
    L4  what a writer has closed stays as it is; later parts for it are ignored (rules 4, 5).
    L5  stable bucket n is taken from one writer: the first in the log that closed it. It never changes (rule 5).
    L6  a base record makes buckets up to ``base`` not this writer's, and resets its pending parts (rule 6).
    L7  ``upto`` never goes back, and every bucket up to it is stable.
    L8  folding from a ``Summary`` gives the same as folding from the beginning.

Reading parts whose blocks are garbage is the reader's business (rule 7, ``runtime.block_reader``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CHAIN_RECORDS_MAX
from anabranch.protocol.records import BoundaryKind, BoundaryRecord, EpochStarted, LogEntry, Part, ReplicaSummary, StableRange, Summary


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the fold did with one record: ``reason`` is a short code, counted by the reader."""

    accepted: bool
    reason: str
    replica: str


@dataclass(slots=True)
class _Writer:
    """One writer, from the log alone."""

    epoch: int = -1
    fingerprint: str = ""
    schema: str = ""
    closed: int = 0
    base: int = 0
    path: list[BatchId] = field(default_factory=list)
    lineages: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[BatchId, Part]] = field(default_factory=list)
    final: dict[int, tuple[Part, ...]] = field(default_factory=dict)
    last: BoundaryRecord | None = None


class StreamFold:
    """The fold of one stream's boundary log. Feed it every record in log order by ``apply``."""

    def __init__(self, writers: Iterable[str]) -> None:
        self._writers = {w: _Writer() for w in writers}
        self._upto = 0
        self._forgotten = 0
        self._stable: dict[int, tuple[str, tuple[Part, ...]]] = {}
        self._order: list[int] = []
        """The keys of ``_stable``, ascending."""
        self._open_max = 0

    @property
    def upto(self) -> int:
        """Every bucket up to this one is stable; 0 at the beginning."""
        return self._upto

    @property
    def forgotten(self) -> int:
        """Buckets up to this one are no longer described."""
        return self._forgotten

    def epoch(self, replica: str) -> int | None:
        """Offset of the writer's newest ``EpochStarted``; None: it never began."""
        epoch = self._writers[replica].epoch
        return None if epoch < 0 else epoch

    def closed(self, replica: str) -> int:
        """The last bucket that this writer has closed, or that its base says is not its own."""
        return self._writers[replica].closed

    def fingerprint(self, replica: str) -> str:
        """Of the plan of the writer's newest epoch; empty before the first."""
        return self._writers[replica].fingerprint

    def schema(self) -> str:
        """Columns of the stream as the first of its writers that said so makes them; empty while none has begun."""
        return next((w.schema for w in self._writers.values() if w.schema), "")

    def last(self, replica: str) -> BoundaryRecord | None:
        """The tip of the writer's accepted chain."""
        return self._writers[replica].last

    def tip(self, replica: str) -> BatchId | None:
        """Id of the tip of the writer's accepted chain."""
        path = self._writers[replica].path
        return path[-1] if path else None

    def accepted(self, replica: str, ident: BatchId) -> bool:
        """Whether the record of this id is on the writer's accepted chain."""
        return ident in self._writers[replica].path

    def pending(self, replica: str) -> tuple[Part, ...]:
        """Named parts of buckets that the writer has not closed."""
        return tuple(part for _, part in self._writers[replica].pending)

    def apply(self, offset: int, entry: LogEntry) -> Outcome:
        """Take the next record of the log.

        Args:
            offset: Its offset, which is the epoch that an ``EpochStarted`` begins.
            entry: The record.
        """
        if isinstance(entry, Summary):
            return Outcome(accepted=False, reason="summary", replica="")
        writer = self._writers.get(entry.replica)
        if writer is None:
            return Outcome(accepted=False, reason="unknown_writer", replica=entry.replica)
        if isinstance(entry, EpochStarted):
            writer.epoch, writer.fingerprint, writer.schema = offset, entry.fingerprint, entry.schema
            writer.lineages.clear()  # ids of older epochs are refused by the epoch
            return Outcome(accepted=True, reason="epoch", replica=entry.replica)
        if entry.epoch != writer.epoch:
            return Outcome(accepted=False, reason="fenced", replica=entry.replica)
        if entry.kind is BoundaryKind.TENTATIVE:
            return Outcome(accepted=False, reason="tentative", replica=entry.replica)
        if entry.id.batch <= writer.lineages.get(entry.id.lineage, -1):
            return Outcome(accepted=False, reason="known", replica=entry.replica)
        reason = self._continue(writer, entry)
        if reason != "accepted":
            return Outcome(accepted=False, reason=reason, replica=entry.replica)
        writer.lineages[entry.id.lineage] = entry.id.batch
        writer.path.append(entry.id)
        del writer.path[:-CHAIN_RECORDS_MAX]
        writer.last = entry
        writer.pending += [(entry.id, part) for part in entry.parts if part.bucket > writer.closed]
        self._open_max = max([self._open_max, *(part.bucket for part in entry.parts)])
        self._close(entry.replica, writer, entry.closed)
        return Outcome(accepted=True, reason="accepted", replica=entry.replica)

    def _continue(self, writer: _Writer, record: BoundaryRecord) -> str:
        """Rules 4 and 6: where on the writer's chain does ``record`` go?"""
        if record.base is not None:
            writer.path = [] if record.prev is None else [record.prev]
            writer.pending = []
            writer.base = max(writer.base, record.base)
            writer.closed = max(writer.closed, record.base)
            return "accepted"
        if record.prev is None:
            writer.path, writer.pending = [], []
            return "accepted"
        if writer.path and writer.path[-1] == record.prev:
            return "accepted"
        if record.prev in writer.path:
            writer.path = writer.path[: writer.path.index(record.prev) + 1]
            kept = set(writer.path)
            writer.pending = [(ident, part) for ident, part in writer.pending if ident in kept]
            return "accepted"
        return "off_chain"

    def _close(self, replica: str, writer: _Writer, upto: int) -> None:
        """Rule 5: buckets (closed, upto] of this writer become final, and stable where no other writer was first."""
        if upto <= writer.closed:
            return
        final: dict[int, list[Part]] = {}
        for _, part in writer.pending:
            if part.bucket <= upto:
                final.setdefault(part.bucket, []).append(part)
        writer.pending = [(ident, part) for ident, part in writer.pending if part.bucket > upto]
        for bucket, parts in final.items():
            if bucket > self._forgotten:
                writer.final[bucket] = tuple(parts)
        writer.closed = upto
        self._advance(replica)

    def _advance(self, replica: str) -> None:
        """Rule 5, over ranges: give (upto, closed] to writers, the one that just closed first."""
        order = [replica, *(r for r in self._writers if r != replica)]
        moved = True
        while moved:
            moved = False
            for name in order:
                writer = self._writers[name]
                if writer.base <= self._upto < writer.closed:
                    for bucket in sorted(b for b in writer.final if self._upto < b <= writer.closed):
                        self._stable[bucket] = (name, writer.final[bucket])
                        insort(self._order, bucket)
                    self._upto = writer.closed
                    moved = True

    def stable(self, first: int, last: int) -> list[tuple[int, str, tuple[Part, ...]]]:
        """The non-empty stable buckets in ``first..last``, ascending: (bucket, the writer to read it from, its parts).

        Raises:
            LocalProtocolError: the range reaches past ``upto``, or into what was forgotten.
        """
        if last > self._upto or first <= self._forgotten:
            message = f"buckets {first}..{last} asked for; stable up to {self._upto}, forgotten up to {self._forgotten}"
            raise LocalProtocolError(message)
        order = self._order
        return [(b, *self._stable[b]) for b in order[bisect_left(order, first) : bisect_left(order, last + 1)]]

    def replica_bucket(self, replica: str, bucket: int) -> tuple[Part, ...] | None:
        """The writer's own final parts of ``bucket``; None while it has not closed it, where it is not its own, or when forgotten."""
        writer = self._writers[replica]
        if bucket <= max(writer.base, self._forgotten) or bucket > writer.closed:
            return None
        return writer.final.get(bucket, ())

    def past(self, bucket: int) -> bool:
        """Rule 13: is there a sign that the stream has got beyond ``bucket``: a boundary, or a named part of a later bucket?"""
        return self._upto >= bucket or self._open_max > bucket

    def forget(self, upto: int) -> None:
        """The reader has passed ``upto``: drop what describes buckets up to it. Bounds memory; capped at ``self.upto``."""
        upto = min(upto, self._upto)
        if upto <= self._forgotten:
            return
        cut = bisect_left(self._order, upto + 1)
        for bucket in self._order[:cut]:
            del self._stable[bucket]
        del self._order[:cut]
        for writer in self._writers.values():
            for bucket in [b for b in writer.final if b <= upto]:
                del writer.final[bucket]
        self._forgotten = upto

    def summary(self, as_of: int) -> Summary:
        """The state after all records below offset ``as_of``."""
        replicas = tuple(
            ReplicaSummary(
                replica=name, epoch=w.epoch, fingerprint=w.fingerprint, schema=w.schema, closed=w.closed, base=w.base, path=tuple(w.path),
                lineages=tuple(BatchId(k, v) for k, v in sorted(w.lineages.items())), pending=tuple(w.pending), last=w.last,
            )
            for name, w in self._writers.items()
        )  # fmt: skip
        ranges: list[StableRange] = [StableRange(b, b, self._stable[b][0], self._stable[b][1]) for b in self._order]
        ranges.append(StableRange(self._upto, self._upto, "", ()))
        return Summary(as_of=as_of, forgotten=self._forgotten, replicas=replicas, ranges=tuple(ranges))

    @classmethod
    def from_summary(cls, summary: Summary) -> Self:
        """The fold to go on with from offset ``summary.as_of``.

        Only stable buckets come back whole; what a slower sibling closed itself (``replica_bucket``) is known again from here on.
        """
        fold = cls(r.replica for r in summary.replicas)
        fold._forgotten = summary.forgotten
        for r in summary.replicas:
            fold._writers[r.replica] = _Writer(
                epoch=r.epoch, fingerprint=r.fingerprint, schema=r.schema, closed=r.closed, base=r.base, path=list(r.path),
                lineages={i.lineage: i.batch for i in r.lineages}, pending=list(r.pending), last=r.last,
            )  # fmt: skip
            fold._open_max = max([fold._open_max, *(p.bucket for _, p in r.pending)])
        for entry in summary.ranges:
            if entry.replica:
                fold._stable[entry.first] = (entry.replica, entry.parts)
                fold._order.append(entry.first)
                fold._writers[entry.replica].final[entry.first] = entry.parts
            else:
                fold._upto = entry.last
        fold._open_max = max([fold._open_max, *fold._order])
        return fold
