"""Timeline of a stream's last buckets, one cell each: stable, tentative, undone or replaced.

Theory of operation. A timeline receives every record of a boundary log after the log state has
taken it, and reads the effect from the log state. A bucket is stable once the log state has closed
it, and tentative if a branch closed it before. When the first bucket of a failure is corrected, all
tentative cells so far become *undone* until their corrections come, as by the undo of the live
topic. Buckets that branches close after that are tentative again.

A crash loses nothing: a new timeline is filled from the log, as far back as the log goes.

Invariants:
    ST1 a timeline has at most ``cells_max`` cells, those of the newest buckets; taking a record
        costs no more than that, however many buckets it closes.
    ST2 a stable or replaced cell stays what it is.
    ST3 ``changes`` names each cell that has changed since the last call, in its newest form.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.log.boundary_log import contents
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, BranchNumber, LogSnapshot

if TYPE_CHECKING:
    from anabranch.protocol.log.boundary_log import LogState, Outcome
    from anabranch.protocol.log.records import LogEntry

_NONE: Final[BranchNumber] = (-1, -1)


class BucketPhase(StrEnum):
    """Phase of a bucket's results."""

    STABLE = "stable"
    TENTATIVE = "tentative"
    UNDONE = "undone"
    """Tentative results that a correction has voided, and whose own correction is missing yet."""
    REPLACED = "replaced"
    """Stable results that have replaced tentative ones."""


@dataclass(slots=True)
class Cell:
    """Cell of one closed bucket."""

    phase: BucketPhase
    rows: int
    writer: str
    """Replica whose results readers take."""
    tentative_ms: int | None = None
    """Delay of the tentative close in ms: the writer's clock minus the bucket's end; None: the
    bucket was not closed as tentative, or the time is not known.
    """
    stable_ms: int | None = None
    """Delay of the stable close in ms, likewise."""
    missing: tuple[str, ...] = ()
    """Streams that were missing when the tentative results were computed."""
    shed: int = 0
    """Per mille of their input's rows that overloaded stages left out of the tentative results."""

    @property
    def first_ms(self) -> int | None:
        """Delay of the first results, tentative or stable, in ms."""
        return self.stable_ms if self.tentative_ms is None else self.tentative_ms


class StreamTimeline:
    """Timeline of one stream. Not thread-safe."""

    def __init__(self, bucket_ms: int, cells_max: int) -> None:
        """Begin without cells. ``bucket_ms`` is the width of a bucket."""
        self._bucket_ms, self._cells_max = bucket_ms, cells_max
        self.cells: dict[int, Cell] = {}
        """Cells by the number of their bucket."""
        self.upto = 0
        """Last stable bucket."""
        self.tentative_upto = 0
        """Last bucket that any branch has closed."""
        self._branches: dict[str, tuple[BranchNumber, int]] = {}
        """Newest branch of each replica, and the last bucket of it that has a cell."""
        self._correcting = False
        """Whether tentative cells of a failure still wait for their corrections."""
        self._changed: set[int] = set()

    @property
    def newest(self) -> int:
        """Last closed bucket, stable or tentative."""
        return max(self.upto, self.tentative_upto)

    @property
    def missing(self) -> tuple[str, ...]:
        """Streams that are missing from the newest results; empty: none."""
        if self.tentative_upto <= self.upto:
            return ()
        found = self.cells.get(self.tentative_upto)
        return () if found is None else found.missing

    @property
    def shed(self) -> int:
        """Per mille of their input's rows that the newest results lack."""
        if self.tentative_upto <= self.upto:
            return 0
        found = self.cells.get(self.tentative_upto)
        return 0 if found is None else found.shed

    @property
    def read_from(self) -> str:
        """Replica that made the newest results; empty: there are none yet."""
        found = self.cells.get(self.newest)
        return "" if found is None else found.writer

    def take(self, entry: LogEntry, outcome: Outcome, log_state: LogState) -> None:
        """Update the cells for ``entry``, which ``log_state`` has taken with ``outcome``."""
        if not outcome.accepted:
            return
        if isinstance(entry, BoundaryRecord) and entry.kind is BoundaryKind.TENTATIVE:
            self._take_tentative(entry, log_state)
        elif log_state.closed_upto > self.upto:
            self._take_stable(entry, log_state)
        self._prune()

    def changes(self) -> list[int]:
        """Return the buckets whose cells have changed since the last call, ascending (ST3).

        Buckets whose cells were dropped since are left out.
        """
        found = sorted(bucket for bucket in self._changed if bucket in self.cells)
        self._changed.clear()
        return found

    def _take_stable(self, entry: LogEntry, log_state: LogState) -> None:
        """Make the cells stable of the buckets that ``log_state`` has closed with ``entry``."""
        upto = log_state.closed_upto
        first = max(self.upto, upto - self._cells_max) + 1
        written_ms = entry.written_ms if isinstance(entry, BoundaryRecord) else 0
        if isinstance(entry, LogSnapshot):
            first = max(first, entry.forgotten + 1)
        writer = "" if isinstance(entry, LogSnapshot) else entry.replica
        filled = _filled(log_state, first, upto)
        if not self.upto and isinstance(entry, BoundaryRecord):
            # The first record closes all buckets since 1970. Only those from the first rows on
            # are worth a cell.
            first = min([*filled, *self.cells], default=upto)
        has_replaced = False
        for bucket in range(first, upto + 1):
            rows, source = filled.get(bucket, (0, writer))
            old = self.cells.get(bucket)
            late_ms = written_ms - bucket * self._bucket_ms if written_ms else None
            if old is None:
                self.cells[bucket] = Cell(BucketPhase.STABLE, rows, source, stable_ms=late_ms)
            else:
                old.phase = BucketPhase.REPLACED
                old.rows = rows
                old.writer = source
                old.stable_ms = late_ms
                has_replaced = True
            self._changed.add(bucket)
        self.upto = upto
        if has_replaced:
            self._undo()

    def _undo(self) -> None:
        """Mark the tentative cells as undone, at the first correction of a failure."""
        left = [
            bucket
            for bucket in range(self.upto + 1, self.tentative_upto + 1)
            if bucket in self.cells
        ]
        if not self._correcting:
            for bucket in left:
                self.cells[bucket].phase = BucketPhase.UNDONE
                self._changed.add(bucket)
        self._correcting = bool(left)

    def _take_tentative(self, entry: BoundaryRecord, log_state: LogState) -> None:
        """Add cells for the buckets that a branch has closed with ``entry``, unless they have
        cells.
        """
        branch = entry.branch or _NONE
        known, shown = self._branches.get(entry.replica, (_NONE, 0))
        first = max(
            shown + 1 if known == branch else 1,
            self.upto + 1,
            entry.closed - self._cells_max + 1,
        )
        self._branches[entry.replica] = branch, entry.closed
        if not self.upto and not self.cells:
            # Begin at the first rows, as for the first stable record.
            filled = log_state.tentative_filled(entry.replica, first, entry.closed, 1)
            first = min(filled, default=entry.closed)
        for covered in log_state.tentative_ranges(entry.replica, first, entry.closed):
            for bucket in range(max(first, covered.first), min(covered.last, entry.closed) + 1):
                if bucket not in self.cells:
                    made = log_state.tentative(entry.replica, bucket)
                    self.cells[bucket] = Cell(
                        BucketPhase.TENTATIVE,
                        0 if made is None else contents(made.parts)[0],
                        entry.replica,
                        tentative_ms=entry.written_ms - bucket * self._bucket_ms
                        if entry.written_ms
                        else None,
                        missing=covered.missing,
                        shed=covered.shed,
                    )
                    self._changed.add(bucket)
        self.tentative_upto = max(self.tentative_upto, entry.closed)

    def _prune(self) -> None:
        """Drop the cells of the oldest buckets (ST1)."""
        floor = self.newest - self._cells_max
        if len(self.cells) > self._cells_max:
            for bucket in [bucket for bucket in self.cells if bucket <= floor]:
                del self.cells[bucket]
        self._changed = {bucket for bucket in self._changed if bucket > floor}


def _filled(log_state: LogState, first: int, last: int) -> dict[int, tuple[int, str]]:
    """Return (rows, replica) for each stable bucket with rows from ``first`` to ``last``.

    Empty if the log state has forgotten some of these buckets.
    """
    try:
        found = log_state.stable(first, last)
    except LocalProtocolError:
        return {}
    return {bucket: (contents(parts)[0], writer) for bucket, writer, parts in found}
