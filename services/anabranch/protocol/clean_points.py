"""At which of a sibling's batches may its checkpoint be copied (rule 6)?

Theory of operation. A replica without a disk goes on in a copy of a sibling's checkpoint, under a base record: "buckets up to ``base`` are not
mine". Of a bucket of which the sibling had named parts already the copy makes only the rest, so ``base`` must not be below it; and what is not
the copy's should be stable already, or it would depend on the sibling for ever. So a batch will do if all that it had closed or begun is stable
by now. It must also still count: be on the sibling's accepted chain. All this is seen by following the stage's own log.

Where results are never ahead of the input, and nothing is late, every batch will do; else one that is a little older.

Invariants:
    K1  the base of a point is the highest bucket that the sibling had closed, or named a part of, by then; up to it everything is stable.
    K2  a point was made under the plan of the one who asks: another plan's state means something else.
    K3  memory is bounded by what Spark retains: older batches cannot be gone back to.
    K4  a point is the record of a batch on the sibling's accepted chain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.protocol.boundary_log import Outcome, StreamFold
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CHECKPOINT_BATCHES_RETAINED
from anabranch.protocol.records import BoundaryKind, BoundaryRecord, LogEntry


@dataclass(frozen=True, slots=True)
class _Mark:
    """One record on a sibling's chain."""

    ident: BatchId
    base: int
    fingerprint: str


class CleanPoints:
    """The clean points of some replicas. Tell it every record of the stage's log right after the fold took it."""

    def __init__(self, replicas: Iterable[str]) -> None:
        self._chains: dict[str, deque[_Mark]] = {r: deque(maxlen=2 * CHECKPOINT_BATCHES_RETAINED) for r in replicas}

    def seen(self, fold: StreamFold, entry: LogEntry, outcome: Outcome) -> None:
        """Take note of a record."""
        if not outcome.accepted or not isinstance(entry, BoundaryRecord) or entry.kind is not BoundaryKind.STABLE:
            return
        chain = self._chains.get(entry.replica)
        if chain is None:
            return
        while chain and chain[-1].ident != entry.prev:
            chain.pop()  # cut off (rule 4)
        pending = fold.pending(entry.replica)
        base = max(fold.closed(entry.replica), pending[-1].bucket if pending else 0)
        chain.append(_Mark(entry.id, base, fold.fingerprint(entry.replica)))

    def base(self, replica: str, ident: BatchId, fingerprint: str, stable_upto: int) -> int | None:
        """The base of the record ``ident`` of ``replica``; None: it is not a point for ``fingerprint`` now (K1, K2, K4)."""
        for mark in self._chains.get(replica, ()):
            if mark.ident == ident and mark.fingerprint == fingerprint and mark.base <= stable_upto:
                return mark.base
        return None
