"""Snapshots of a boundary log: when one is due, which records may be deleted then, and how a reader
starts in the middle of the log.

Theory of operation. The manager follows every boundary log. When enough records follow the last log
snapshot it appends another: its log state, without the buckets that no reader needs any more
(``protocol.control.trimming``), which keeps it small. A log snapshot is a function of the log below
``as_of`` and of the trim point, so two managers do no harm, and a lost log snapshot is followed by
another.

Records may be deleted below the newest log snapshot that is at least ``every_records`` older than
the newest of all. So a reader that has just started, or lags a little, is not overtaken; one that
is overtaken ends, and starts again.

A log that begins at offset 0 is read from there. If it begins later, the reader buffers records
until the first log snapshot that it can start from: one whose ``as_of`` is not before the first
offset of the log and that was written soon after ``as_of``. The reader adopts that state, applies
the buffered records from ``as_of`` on, and then follows the log record by record. Until then its
log state is empty, which states nothing wrong.

A log snapshot must keep some buckets that readers have passed: the last results of a stage that
recomputes and compares them after it lost its disk (``protocol.stage.recovery``).

Invariants:
    SN1 nothing is deleted that the first remaining snapshot does not cover: a start from it is
        equivalent to a start from the beginning (BL8).
    SN2 between the last deleted record and the newest log snapshot there are at least
        ``every_records`` offsets.
    SN3 a log snapshot describes every bucket above the trim point; if the log state has forgotten
        one of them, no log snapshot is written.
    SN4 a log snapshot too large to be read is not written. The log state does not keep more than
        fits into one.
    SN5 while a process that does not belong to this pipeline writes to the log, no log snapshot is
        written: it would lack that process's records for good.
    LS1 the log state is, after each step of a reader, that of a prefix of the whole log, or still
        empty.
    LS2 a log that begins at 0 is read record by record; its log snapshots change nothing.
    LS3 a reader buffers at most SNAPSHOT_LATE_RECORDS offsets, however far the next log snapshot
        is.
    LS4 a log snapshot is adopted as a whole or not at all; an unusable one is skipped, and the next
        one may be usable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.limits import REPLICAS_MAX, SNAPSHOT_EVERY_RECORDS, SNAPSHOT_ITEMS_MAX
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import (
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
    LogSnapshot,
    Recomputed,
)

SNAPSHOT_EVERY_PARTS: Final = 100_000
"""Number of named parts after which a log snapshot is due, even if few records carried them: large
records must not slow down a start, nor grow the manager's memory.
"""

SNAPSHOT_LATE_RECORDS: Final = 1_000
"""Maximum distance, in records, between a log snapshot's ``as_of`` and its own offset. A starting
reader buffers that many records (about a MiB); later snapshots are ignored.
"""


def forgettable(log_state: LogState, trim_point: int, writer: str, horizon_buckets: int) -> int:
    """Return the last bucket that a log snapshot need not describe. ``horizon_buckets`` is the
    state horizon of a stage whose only writer is ``writer``; 0 for all others.
    """
    upto = min(trim_point, log_state.upto)
    return (
        max(0, min(upto, log_state.closed(writer) - 2 * horizon_buckets))
        if horizon_buckets
        else upto
    )


def items(log_snapshot: LogSnapshot) -> int:
    """Return an upper estimate of the list items in ``log_snapshot`` that its reader counts
    (SNAPSHOT_ITEMS_MAX).
    """
    count = sum(1 + len(stable.parts) for stable in log_snapshot.ranges)
    for r in log_snapshot.replicas:
        count += 1 + len(r.path) + len(r.timelines) + len(r.pending) + len(r.closed_parts)
        if r.last is not None:
            count += sum(
                map(len, (r.last.parts, r.last.missing, r.last.positions, r.last.made_from))
            )
        if r.branches is not None:
            count += len(r.branches.pending) + sum(
                1 + len(x.parts) + len(x.missing) for x in r.branches.ranges
            )
    return count


class LogSnapshots:
    """Log snapshots of one boundary log, tracked by a process that may write them."""

    def __init__(self, writers: Iterable[str], every_records: int = SNAPSHOT_EVERY_RECORDS) -> None:
        self._writers, self._every = tuple(writers), every_records
        self._as_of: list[int] = []
        """``as_of`` of the log snapshots from which a reader can start, ascending; without deleted
        ones.
        """
        self._forgotten = 0
        """Last bucket that a log snapshot in the log no longer describes; later ones cannot either.
        """
        self._parts = 0
        """Number of parts named since the last log snapshot."""
        self._parts_unchecked = 0
        """Number of parts named since the size of the log state was last checked."""
        self._not_before = 0
        self._is_live = False
        self._unknown_epochs: dict[str, int] = {}
        """Epochs of unknown writers, by name."""
        self.unknown_writer = ""
        """Name of an unknown writer, no replica of this pipeline, that writes to the log; empty if
        there is none (SN5).
        """
        self.rejected = ""
        """Reason, for people, why a log snapshot that was due could not be made; empty if it could.
        """

    @property
    def newest(self) -> int:
        """``as_of`` of the newest log snapshot; 0 if there is none."""
        return self._as_of[-1] if self._as_of else 0

    def read_to_end(self) -> None:
        """Record that the log was read to its end at the start: unknown writers that appear from
        here on are running.
        """
        self._is_live = True

    def seen(self, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        """Record an entry of the log, right after the log state applied it."""
        if isinstance(entry, LogSnapshot):
            if self._is_usable(offset, entry):
                self._as_of.append(entry.as_of)
                self._forgotten, self._parts = max(self._forgotten, entry.forgotten), 0
        elif outcome.reason == "unknown_writer":
            self._note_unknown_writer(offset, entry)
        elif not isinstance(entry, (EpochStarted, BranchEnded)):
            self._parts += len(entry.parts)
            self._parts_unchecked += len(entry.parts)

    def _note_unknown_writer(
        self, offset: int, entry: EpochStarted | BoundaryRecord | BranchEnded | Recomputed
    ) -> None:
        if isinstance(entry, EpochStarted):
            self._unknown_epochs[entry.replica] = offset
            if len(self._unknown_epochs) > REPLICAS_MAX:
                del self._unknown_epochs[next(iter(self._unknown_epochs))]
        if self._is_live and (
            isinstance(entry, EpochStarted)
            or entry.epoch == self._unknown_epochs.get(entry.replica)
        ):
            self.unknown_writer = entry.replica

    def _is_usable(self, offset: int, log_snapshot: LogSnapshot) -> bool:
        """Return whether the log snapshot is newer than the newest one and a reader could start
        from it (``LogStart``).
        """
        if (
            log_snapshot.as_of <= self.newest
            or not offset - SNAPSHOT_LATE_RECORDS <= log_snapshot.as_of <= offset
        ):
            return False
        try:
            LogState(self._writers).adopt(log_snapshot)
        except RemoteProtocolError:
            return False
        return True

    def due(self, offset_next: int) -> bool:
        """Return whether a log snapshot of the records below ``offset_next`` is due."""
        much = offset_next - self.newest >= self._every or self._parts >= SNAPSHOT_EVERY_PARTS
        return much and offset_next >= self._not_before and not self.unknown_writer

    def make(
        self, log_state: LogState, as_of: int, forgettable_upto: int, histories: Mapping[str, str]
    ) -> LogSnapshot | None:
        """Return the log snapshot to append; None if none is possible now (SN3, SN4). Either way
        the next one is not due at once.

        Args:
            log_state: The log state after all records below ``as_of``.
            as_of: Offset of the first record that the log snapshot does not cover.
            forgettable_upto: Result of ``forgettable``.
            histories: Per writer, the plans that computed its chain
                (``protocol.control.consistency``).
        """
        upto = max(forgettable_upto, self._forgotten)
        self._not_before = as_of + self._every
        if log_state.forgotten > upto:
            self.rejected = (
                f"readers need buckets from {upto + 1} on, and those up to {log_state.forgotten}"
                " were dropped from memory for lack of room"
            )
            return None
        log_snapshot = log_state.snapshot(as_of, upto)
        log_snapshot = replace(
            log_snapshot,
            replicas=tuple(
                replace(r, history=histories.get(r.replica, "")) for r in log_snapshot.replicas
            ),
        )
        if (count := items(log_snapshot)) > SNAPSHOT_ITEMS_MAX:
            self.rejected = (
                f"it would have {count} items, more than {SNAPSHOT_ITEMS_MAX}: a reader far behind"
                f" needs buckets from {upto + 1} on"
            )
            return None
        self.rejected = ""
        # A log snapshot that reaches the log later than this is ignored by readers
        # (SNAPSHOT_LATE_RECORDS), so the next one is made then.
        self._not_before = as_of + min(self._every, SNAPSHOT_LATE_RECORDS)
        return log_snapshot

    def too_large(self, as_of: int, reason: str) -> None:
        """Reject the log snapshot that ``make`` returned: its encoding is too large (SN4)."""
        self.rejected, self._not_before = reason, as_of + self._every

    def overfull(self, log_state: LogState) -> bool:
        """Return whether the log state holds more than a log snapshot can describe (SN4); checked
        once every SNAPSHOT_EVERY_PARTS parts.
        """
        if self._parts_unchecked < SNAPSHOT_EVERY_PARTS:
            return False
        self._parts_unchecked = 0
        return log_state.stable_parts > SNAPSHOT_ITEMS_MAX

    def cut(self) -> int:
        """Return the offset below which records may be deleted (SN1, SN2); 0 if none may."""
        below = [as_of for as_of in self._as_of if as_of + self._every <= self.newest]
        if below:
            del self._as_of[: len(below) - 1]
        return below[-1] if below else 0


Step = tuple[int, LogEntry, Outcome]
"""(offset, entry, what the log state did with it)."""


class LogStart:
    """Start of one reading of a log into ``log_state``, which must be empty."""

    def __init__(self, log_state: LogState, offset_first: int) -> None:
        """Start reading at ``offset_first``, the log's first offset at that time."""
        self._log_state, self._offset_first = log_state, offset_first
        self._buffered: deque[tuple[int, LogEntry]] = deque()
        self.is_over = offset_first == 0
        """Whether the log state follows the log, and nothing is buffered any more."""

    def apply(self, offset: int, entry: LogEntry) -> Iterator[Step]:
        """Apply the next record of the log. The log state changes once for each step that the
        caller takes.
        """
        if self.is_over:
            yield offset, entry, self._log_state.apply(offset, entry)
            return
        if isinstance(entry, LogSnapshot) and self._adopt(offset, entry):
            yield offset, entry, Outcome(accepted=True, reason="adopted", replica="")
            while self._buffered:
                at, buffered = self._buffered.popleft()
                if at >= entry.as_of:
                    yield at, buffered, self._log_state.apply(at, buffered)
            return
        self._buffered.append((offset, entry))
        while self._buffered[0][0] < offset - SNAPSHOT_LATE_RECORDS:
            self._buffered.popleft()

    def _adopt(self, offset: int, log_snapshot: LogSnapshot) -> bool:
        """Return whether the log state could be replaced with ``log_snapshot``, and was."""
        if (
            not max(self._offset_first, offset - SNAPSHOT_LATE_RECORDS)
            <= log_snapshot.as_of
            <= offset
        ):
            return False
        try:
            self._log_state.adopt(log_snapshot)
        except RemoteProtocolError:
            return False
        self.is_over = True
        return True
