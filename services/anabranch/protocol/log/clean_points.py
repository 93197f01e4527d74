"""At which of a peer's batches may its checkpoint be copied (rule 6)?

Theory of operation. A replica without a disk goes on in a copy of a peer's checkpoint, under a base
record: "buckets up to ``base`` are not mine". Of a bucket of which the peer had named parts already
the copy makes only the rest, so ``base`` must not be below it; and what is not the copy's should be
stable already, or it would depend on the peer for ever. So a batch will do if all that it had
closed or begun is stable by now. It must also still count: be on the peer's accepted chain. All
this is seen by following the stage's own log.

Where results are never ahead of the input, and nothing is late, every batch will do; else one that
is a little older.

The same holds for a replica's own checkpoint whose records were cut off the chain: another process
of the replica went on from an older one, and its disk was lost. Nothing may continue such a record;
under a base record its state is as good as a peer's.

Invariants:
    CP1 the base of a point is the highest bucket that the peer had closed, or named a part of, by
        then; up to it everything is stable.
    CP2 a point was made under the plan of the one who asks: another plan's state means something
        else.
    CP3 memory is bounded by what Spark retains: older batches cannot be gone back to.
    CP4 a point is the record of a batch on the peer's accepted chain; of the replica itself, one
        that was on its chain once.
    CP5 of a log that is read from a log snapshot on, the tip of each chain is known, and what came
        after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CHECKPOINT_BATCHES_RETAINED
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogEntry, LogSnapshot


@dataclass(frozen=True, slots=True)
class _Mark:
    """One record on a peer's chain."""

    ident: BatchId
    base: int
    fingerprint: str


class CleanPoints:
    """The clean points of some replicas. Tell it every record of the stage's log right after
    the log state took it.
    """

    def __init__(self, replicas: Iterable[str], own: str = "") -> None:
        """``own``: the one that asks."""
        self._own = own
        self._chains: dict[str, deque[_Mark]] = {
            r: deque(maxlen=2 * CHECKPOINT_BATCHES_RETAINED) for r in (*replicas, own)
        }
        self._cut_off: deque[_Mark] = deque(maxlen=2 * CHECKPOINT_BATCHES_RETAINED)
        """Of the one that asks."""

    def seen(self, log_state: LogState, entry: LogEntry, outcome: Outcome) -> None:
        """Take note of a record."""
        if outcome.accepted and isinstance(entry, LogSnapshot):
            for replica in self._chains:
                if replica in log_state.writers and (tip := log_state.tip(replica)) is not None:
                    self._mark(log_state, replica, tip)
            return
        if (
            not outcome.accepted
            or not isinstance(entry, BoundaryRecord)
            or entry.kind is not BoundaryKind.STABLE
        ):
            return
        chain = self._chains.get(entry.replica)
        if chain is None:
            return
        while chain and chain[-1].ident != entry.prev:
            mark = chain.pop()  # cut off (rule 4)
            if entry.replica == self._own:
                self._cut_off.append(mark)
        self._mark(log_state, entry.replica, entry.id)

    def _mark(self, log_state: LogState, replica: str, tip: BatchId) -> None:
        pending = log_state.pending(replica)
        base = max(log_state.closed(replica), pending[-1].bucket if pending else 0)
        self._chains[replica].append(_Mark(tip, base, log_state.origin(replica).tip_by))

    def base(self, replica: str, ident: BatchId, fingerprint: str, stable_upto: int) -> int | None:
        """The base of the record ``ident`` of ``replica``; None: it is not a point for
        ``fingerprint`` now (CP1, CP2, CP4).
        """
        return self._base(self._chains.get(replica, ()), ident, fingerprint, stable_upto)

    def cut_off_base(self, ident: BatchId, fingerprint: str, stable_upto: int) -> int | None:
        """The same of a record of the one that asks, which was cut off its chain."""
        return self._base(self._cut_off, ident, fingerprint, stable_upto)

    @staticmethod
    def _base(
        marks: Iterable[_Mark], ident: BatchId, fingerprint: str, stable_upto: int
    ) -> int | None:
        for mark in marks:
            if mark.ident == ident and mark.fingerprint == fingerprint and mark.base <= stable_upto:
                return mark.base
        return None
