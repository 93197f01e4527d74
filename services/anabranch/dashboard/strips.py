"""The last buckets of a stream as cells of a strip: stable, tentative, undone, replaced.

Theory of operation. A strip is fed every record of a boundary log, after the log state has taken
it, and asks the log state what came of it: a bucket is stable when ``upto`` has passed it,
tentative when a branch has closed it before. When the first bucket of a failure is corrected, all
tentative ones that were shown by then are void (*undone*) until their corrections come: that is the
undo of the live topic. What branches go on to make meanwhile is tentative again.

A crash loses nothing: a new strip is filled from the log, as far back as the log goes.

Invariants:
    ST1 a strip has at most ``cells_max`` cells, those of the newest buckets; taking a record costs
        no more than that, however far it jumps.
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


class Phase(StrEnum):
    """What has become of a bucket. ``REPLACED``: it is stable, and was tentative before."""

    STABLE = "stable"
    TENTATIVE = "tentative"
    UNDONE = "undone"
    REPLACED = "replaced"


@dataclass(slots=True)
class Cell:
    """One bucket that was closed. ``tentative_ms`` and ``stable_ms`` are delays: the writer's clock
    when it closed the bucket so, minus the bucket's end; None: it did not, or it is not known.
    """

    phase: Phase
    rows: int
    writer: str
    """The replica that it is read from."""
    tentative_ms: int | None = None
    stable_ms: int | None = None
    missing: tuple[str, ...] = ()
    """Streams without which its tentative version was made."""

    @property
    def first_ms(self) -> int | None:
        """Delay of the first result."""
        return self.stable_ms if self.tentative_ms is None else self.tentative_ms


class Strip:
    """The strip of one stream. Not thread-safe."""

    def __init__(self, bucket_ms: int, cells_max: int) -> None:
        self._bucket_ms, self._cells_max = bucket_ms, cells_max
        self.cells: dict[int, Cell] = {}
        self.upto = 0
        """The last stable bucket."""
        self.tentative_upto = 0
        """The last bucket that any branch has closed."""
        self._branches: dict[str, tuple[BranchNumber, int]] = {}
        """Of each replica its newest branch, and up to where the strip shows it."""
        self._correcting = False
        self._changed: set[int] = set()

    @property
    def newest(self) -> int:
        """The last bucket with a result."""
        return max(self.upto, self.tentative_upto)

    @property
    def missing(self) -> tuple[str, ...]:
        """What its newest results are made without; empty: nothing."""
        if self.tentative_upto <= self.upto:
            return ()
        found = self.cells.get(self.tentative_upto)
        return () if found is None else found.missing

    @property
    def read_from(self) -> str:
        """The replica that made the newest result; empty: there is none yet."""
        found = self.cells.get(self.newest)
        return "" if found is None else found.writer

    def take(self, entry: LogEntry, outcome: Outcome, log_state: LogState) -> None:
        """``log_state`` has taken ``entry`` with ``outcome``."""
        if not outcome.accepted:
            return
        if isinstance(entry, BoundaryRecord) and entry.kind is BoundaryKind.TENTATIVE:
            self._take_tentative(entry, log_state)
        elif log_state.closed_upto > self.upto:
            self._take_stable(entry, log_state)
        self._prune()

    def changes(self) -> list[int]:
        """The buckets whose cells have changed, ascending; those of cells that are gone are left
        out.
        """
        found = sorted(bucket for bucket in self._changed if bucket in self.cells)
        self._changed.clear()
        return found

    def _take_stable(self, entry: LogEntry, log_state: LogState) -> None:
        upto = log_state.closed_upto
        first = max(self.upto, upto - self._cells_max) + 1
        written_ms = entry.written_ms if isinstance(entry, BoundaryRecord) else 0
        if isinstance(entry, LogSnapshot):
            first = max(first, entry.forgotten + 1)
        writer = "" if isinstance(entry, LogSnapshot) else entry.replica
        filled = _filled(log_state, first, upto)
        if not self.upto and isinstance(entry, BoundaryRecord):
            # Everything since the beginning of time is closed by the first record; the stream
            # begins with its first rows.
            first = min([*filled, *self.cells], default=upto)
        has_replaced = False
        for bucket in range(first, upto + 1):
            rows, source = filled.get(bucket, (0, writer))
            old = self.cells.get(bucket)
            late_ms = written_ms - bucket * self._bucket_ms if written_ms else None
            if old is None:
                self.cells[bucket] = Cell(Phase.STABLE, rows, source, stable_ms=late_ms)
            else:
                old.phase = Phase.REPLACED
                old.rows = rows
                old.writer = source
                old.stable_ms = late_ms
                has_replaced = True
            self._changed.add(bucket)
        self.upto = upto
        if has_replaced:
            self._undo()

    def _undo(self) -> None:
        """A correction has come. With the first one of a failure all that is tentative is void."""
        left = [
            bucket
            for bucket in range(self.upto + 1, self.tentative_upto + 1)
            if bucket in self.cells
        ]
        if not self._correcting:
            for bucket in left:
                self.cells[bucket].phase = Phase.UNDONE
                self._changed.add(bucket)
        self._correcting = bool(left)

    def _take_tentative(self, entry: BoundaryRecord, log_state: LogState) -> None:
        branch = entry.branch or _NONE
        known, shown = self._branches.get(entry.replica, (_NONE, 0))
        first = max(
            shown + 1 if known == branch else 1,
            self.upto + 1,
            entry.closed - self._cells_max + 1,
        )
        self._branches[entry.replica] = branch, entry.closed
        if not self.upto and not self.cells:
            # As for the first stable record.
            filled = log_state.tentative_filled(entry.replica, first, entry.closed, 1)
            first = min(filled, default=entry.closed)
        for covered in log_state.tentative_ranges(entry.replica, first, entry.closed):
            for bucket in range(max(first, covered.first), min(covered.last, entry.closed) + 1):
                if bucket not in self.cells:
                    made = log_state.tentative(entry.replica, bucket)
                    self.cells[bucket] = Cell(
                        Phase.TENTATIVE,
                        0 if made is None else contents(made.parts)[0],
                        entry.replica,
                        tentative_ms=entry.written_ms - bucket * self._bucket_ms
                        if entry.written_ms
                        else None,
                        missing=covered.missing,
                    )
                    self._changed.add(bucket)
        self.tentative_upto = max(self.tentative_upto, entry.closed)

    def _prune(self) -> None:
        """ST1."""
        floor = self.newest - self._cells_max
        if len(self.cells) > self._cells_max:
            for bucket in [bucket for bucket in self.cells if bucket <= floor]:
                del self.cells[bucket]
        self._changed = {bucket for bucket in self._changed if bucket > floor}


def _filled(log_state: LogState, first: int, last: int) -> dict[int, tuple[int, str]]:
    """Rows of each bucket that has any, and whose they are; of what the log state has forgotten:
    nothing.
    """
    try:
        found = log_state.stable(first, last)
    except LocalProtocolError:
        return {}
    return {bucket: (contents(parts)[0], writer) for bucket, writer, parts in found}
