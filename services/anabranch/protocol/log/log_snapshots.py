"""When does a boundary log get a snapshot, what of the log may be deleted then, and how does a
reader begin in the middle?

Theory of operation. The manager follows every boundary log. When enough came after the last log
snapshot it appends another: its log state, less the buckets that no reader needs any more
(``protocol.control.trimming``), which keeps it small. A log snapshot is a function of the log below
``as_of`` and of the trim point, so two managers harm nobody, and one that is lost is followed by
another.

Deleted is what lies below the newest log snapshot that is far enough behind the newest of all:
whoever has just begun to read, or lags a little, is not overtaken; whoever is ends, and begins
again.

A log that begins at offset 0 is read from there. Where it begins later, the reader buffers records
until it meets the first log snapshot of a state that it can go on from: one that begins where the
log does, or later, and was written soon after. It takes that state, then its buffered records from
there on, and from then on goes on as ever. Until then its log state is as at the beginning: nothing
is known, and nothing wrong is stated.

What a log snapshot may not forget, though readers have passed it: the last results of a stage that
makes them again after it lost its disk, and compares (``protocol.stage.recovery``).

Invariants:
    SN1 nothing is deleted that the first snapshot that is left does not cover: a start from there
        is a start from the beginning (BL8).
    SN2 between the end of what is deleted and the newest log snapshot there are at least
        ``every_records`` offsets.
    SN3 a log snapshot describes every bucket above the trim point; where the log state does not
        know them any more there is none.
    SN4 a log snapshot too large to be read is not written. The log state does not keep more than
        fits into one.
    SN5 while a process that this pipeline does not have writes to the log there is none: what it
        writes would be missing in it for good.
    LS1 the log state is, after each step of a reader, that of a beginning of the whole log, or
        still at its beginning.
    LS2 a log that begins at 0 is read record by record; its log snapshots change nothing.
    LS3 a reader buffers at most SNAPSHOT_LATE_RECORDS offsets, however far the next log snapshot
        is.
    LS4 a log snapshot is taken as it stands or not at all; one that cannot be is passed by, and the
        next one may do.
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
"""Named parts after which a log snapshot is written although few records came: large records
must not make a start slow, nor the manager grow.
"""

SNAPSHOT_LATE_RECORDS: Final = 1_000
"""Records between what a log snapshot covers and the snapshot: a reader that begins holds so
many back (about a MiB). A later one does not count.
"""


def forgettable(log_state: LogState, trim_point: int, writer: str, horizon_buckets: int) -> int:
    """Buckets up to this one need not be described. ``horizon_buckets``: of a stage that has
    a horizon, whose only writer is ``writer``; else 0.
    """
    upto = min(trim_point, log_state.upto)
    return (
        max(0, min(upto, log_state.closed(writer) - 2 * horizon_buckets))
        if horizon_buckets
        else upto
    )


def items(log_snapshot: LogSnapshot) -> int:
    """How many items of lists its reader counts (SNAPSHOT_ITEMS_MAX); a few more."""
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
    """The log snapshots of one boundary log, as one who may write them sees it."""

    def __init__(self, writers: Iterable[str], every_records: int = SNAPSHOT_EVERY_RECORDS) -> None:
        self._writers, self._every = tuple(writers), every_records
        self._as_of: list[int] = []
        """Of the log snapshots from which a reader can begin, ascending; none that is deleted."""
        self._forgotten = 0
        """What log snapshots in the log have forgotten is forgotten."""
        self._parts = 0
        """Named since the last log snapshot."""
        self._unlooked = 0
        """Named since it was looked how much the log state holds."""
        self._not_before = 0
        self._is_live = False
        self._strange: dict[str, int] = {}
        """Epochs of writers that this pipeline does not have."""
        self.stranger = ""
        """A process writes to the log under this name, which no replica of this pipeline has;
        empty: none does (SN5).
        """
        self.rejected = ""
        """Why there was no log snapshot when one was due, in words; empty: there was."""

    @property
    def newest(self) -> int:
        """The newest log snapshot's ``as_of``; 0: there is none."""
        return self._as_of[-1] if self._as_of else 0

    def read_to_end(self) -> None:
        """The log was read as far as it went at the start: strangers from here on are alive."""
        self._is_live = True

    def seen(self, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        """Take note of a record, right after the log state took it."""
        if isinstance(entry, LogSnapshot):
            if self._is_usable(offset, entry):
                self._as_of.append(entry.as_of)
                self._forgotten, self._parts = max(self._forgotten, entry.forgotten), 0
        elif outcome.reason == "unknown_writer":
            self._strange_record(offset, entry)
        elif not isinstance(entry, (EpochStarted, BranchEnded)):
            self._parts += len(entry.parts)
            self._unlooked += len(entry.parts)

    def _strange_record(
        self, offset: int, entry: EpochStarted | BoundaryRecord | BranchEnded | Recomputed
    ) -> None:
        if isinstance(entry, EpochStarted):
            self._strange[entry.replica] = offset
            if len(self._strange) > REPLICAS_MAX:
                del self._strange[next(iter(self._strange))]
        if self._is_live and (
            isinstance(entry, EpochStarted) or entry.epoch == self._strange.get(entry.replica)
        ):
            self.stranger = entry.replica

    def _is_usable(self, offset: int, log_snapshot: LogSnapshot) -> bool:
        """Whether a reader could begin with it (``LogStart``), and it is news."""
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
        """Whether the log is to get a snapshot of what is below ``offset_next``."""
        much = offset_next - self.newest >= self._every or self._parts >= SNAPSHOT_EVERY_PARTS
        return much and offset_next >= self._not_before and not self.stranger

    def make(
        self, log_state: LogState, as_of: int, forgettable_upto: int, histories: Mapping[str, str]
    ) -> LogSnapshot | None:
        """The log snapshot to append; None: there can be none now (SN3, SN4). Either way the next
        one is not due at once.

        Args:
            log_state: Of everything below ``as_of``.
            as_of: Of the log snapshot.
            forgettable_upto: What ``forgettable`` says.
            histories: By which plans each writer's chain was made
                (``protocol.control.consistency``).
        """
        upto = max(forgettable_upto, self._forgotten)
        self._not_before = as_of + self._every
        if log_state.forgotten > upto:
            self.rejected = (
                f"readers need buckets from {upto + 1} on, and there was no room for those up to"
                f" {log_state.forgotten}"
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
        # If it does not get into the log before this, it is of no use.
        self._not_before = as_of + min(self._every, SNAPSHOT_LATE_RECORDS)
        return log_snapshot

    def too_large(self, as_of: int, reason: str) -> None:
        """The log snapshot that was made has too many bytes (SN4)."""
        self.rejected, self._not_before = reason, as_of + self._every

    def overfull(self, log_state: LogState) -> bool:
        """Whether the log state holds more than a log snapshot could say (SN4); looked at now
        and then.
        """
        if self._unlooked < SNAPSHOT_EVERY_PARTS:
            return False
        self._unlooked = 0
        return log_state.stable_parts > SNAPSHOT_ITEMS_MAX

    def cut(self) -> int:
        """Records below this offset may be deleted (SN1, SN2); 0: none."""
        below = [as_of for as_of in self._as_of if as_of + self._every <= self.newest]
        if below:
            del self._as_of[: len(below) - 1]
        return below[-1] if below else 0


Step = tuple[int, LogEntry, Outcome]
"""A record, and what the log state did with it."""


class LogStart:
    """The beginning of one reading of one log into ``log_state``, to which nothing was
    applied yet.
    """

    def __init__(self, log_state: LogState, offset_first: int) -> None:
        """``offset_first``: of the log, when the reading began."""
        self._log_state, self._offset_first = log_state, offset_first
        self._buffered: deque[tuple[int, LogEntry]] = deque()
        self.is_over = offset_first == 0
        """It buffers nothing any more."""

    def apply(self, offset: int, entry: LogEntry) -> Iterator[Step]:
        """Take the next record of the log. The log state changes once for each step that the caller
        takes.
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
        """Whether the log state is what ``log_snapshot`` says now."""
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
