"""Branches of one writer: its output while it worked on incomplete input (rule 16).

Theory of operation. When a replica has waited long enough for its input it forks: the running query
continues as a *branch*, with a number (epoch, counter) that grows over forks and restarts. The
records of a branch form a chain of their own, which begins at a stable record and names the last
bucket that was closed there (``base``). A record that closes up to c makes the branch's buckets up
to c tentative: they may be shown and used, and are replaced by stable ones as these arrive. A newer
branch of the same writer replaces the older ones' versions of the same buckets.

A branch runs from its first record until the log shows its end (``BranchEnded``), or the start of
its writer's next process: a process that died without an end leaves no running branch. It is
*corrected* once a writer that has no branch has closed all buckets that it had closed: the stage is
in time again. The branch continues, beside stable buckets, until its own replica has caught up.

Coverage is kept as ranges (``TentativeRange``), parts only for the buckets that have any.

Invariants:
    TE1 a record counts only if it continues the newest branch at its tip, or begins a newer branch
        (with a base).
    TE2 a bucket is covered by the newest branch that closed it; it never goes back to an older one.
    TE3 ranges ascend and do not overlap; every bucket with parts lies in one.
    TE4 buckets that are stable, as stated by ``prune``, are not covered.
    TE5 memory is bounded: above the limits the lowest buckets are no longer covered.
    TE6 ``upto`` never goes back.
    TE7 a branch that has ended never runs again: no record of it counts, and the end of an older
        one does not end a newer one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from typing import Final, Self

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import PENDING_PARTS_MAX
from anabranch.protocol.log.buckets import BucketMap, OpenParts
from anabranch.protocol.log.records import (
    BoundaryRecord,
    BranchEnded,
    BranchNumber,
    BranchSnapshot,
    Part,
    TentativeRange,
)

TENTATIVE_PARTS_MAX: Final = 400_000
"""Maximum number of parts of one writer's tentative buckets that a reader holds. A failure may last
for days; beyond the limit the oldest buckets are no longer served.
"""

TENTATIVE_RANGES_MAX: Final = 20_000
"""Maximum number of ranges of one writer's tentative buckets. A writer that names different missing
streams in every record must not exhaust its readers' memory.
"""

_NONE: Final[BranchNumber] = (-1, -1)
"""Lower than the number of any branch."""


class Branches:
    """Tentative state of one writer, derived from the log alone."""

    def __init__(self) -> None:
        self._number = _NONE
        self.tip: BatchId | None = None
        """Last record of the newest branch; None if this writer never had one."""
        self.upto = 0
        """Highest bucket that any branch has closed."""
        self.ended: BranchNumber | None = None
        """Newest branch that has ended, with all earlier ones; None if the log shows no end."""
        self.corrected: BranchNumber | None = None
        """Newest branch whose buckets a writer without a branch has closed, with all earlier ones;
        None if there is none.
        """
        self.first_upto = 0
        """Last bucket that the first record of the newest branch closed: up to here the replica
        waited its full delay before it forked.
        """
        self._closed = 0
        """Last bucket that the newest branch closed."""
        self._open = OpenParts()
        self._ranges: list[TentativeRange] = []
        """Covered ranges, ascending, without their parts."""
        self._filled: BucketMap[tuple[Part, ...]] = BucketMap()
        self._filled_parts = 0

    @property
    def number(self) -> BranchNumber | None:
        """Number of the newest branch; None if this writer never had one."""
        return None if self.tip is None else self._number

    def runs(self, epoch: int) -> bool:
        """Return whether the newest branch belongs to ``epoch``, the writer's newest, and has not
        ended.
        """
        return self._number[0] == epoch and self._number > (self.ended or _NONE)

    def is_corrected(self) -> bool:
        """Return whether a writer without a branch has closed all that the newest branch had closed
        by then.
        """
        return self._number <= (self.corrected or _NONE)

    def end(self, entry: BranchEnded) -> str:
        """Apply the end of a branch, stated in the current epoch (TE7). Return the result code
        (``Outcome.reason``).
        """
        if entry.branch <= (self.ended or _NONE):
            return "known"
        self.ended = entry.branch
        return "branch_ended"

    def correct(self, closed: int) -> None:
        """Mark the newest branch as corrected if ``closed`` covers it: the last bucket that a
        writer without a branch has closed.
        """
        if closed >= self.upto:
            self.corrected = self.number

    def rejection(self, record: BoundaryRecord) -> str:
        """Return why ``record``, which is of the current epoch and not known yet, does not count
        (TE1); empty if it does.
        """
        number = record.branch
        if number is None or number[0] != record.epoch:
            return "malformed"
        if number <= (self.ended or _NONE):
            return "ended_branch"
        if number > self._number:
            return "no_base" if record.base is None else ""
        if number < self._number:
            return "older_branch"
        if record.base is not None or record.prev != self.tip:
            return "off_chain"
        return "" if self._open.fits(record.parts, record.closed, PENDING_PARTS_MAX) else "pending"

    def take(self, record: BoundaryRecord, stable_upto: int) -> None:
        """Apply a record that passed ``rejection``; buckets up to ``stable_upto`` are stable."""
        if record.base is not None:
            self._number, self._closed = record.branch or _NONE, record.base
            self.first_upto = record.closed
            self._open.clear()
        self.tip = record.id
        floor = max(self._closed, stable_upto)
        for part in record.parts:
            if part.bucket > floor:
                self._open.add(record.id, part)
        if record.closed > self._closed:
            self._closed = record.closed
            self.upto = max(self.upto, record.closed)
            if record.closed > floor:
                made = TentativeRange(
                    floor + 1, record.closed, self._number, record.missing, shed=record.shed
                )
                self._cover(made)

    def _cover(self, made: TentativeRange) -> None:
        """Cover the range ``made`` of the newest branch, replacing older coverage (TE2, TE3)."""
        ranges, first, last = self._ranges, made.first, made.last
        begin = bisect_left(ranges, first, key=lambda r: r.last)
        end = bisect_right(ranges, last, key=lambda r: r.first)
        left = [replace(r, last=first - 1) for r in ranges[begin:end][:1] if r.first < first]
        right = [replace(r, first=last + 1) for r in ranges[begin:end][-1:] if r.last > last]
        before = ranges[begin - 1] if begin else None
        if before is not None and before == replace(made, first=before.first, last=first - 1):
            made, begin = replace(made, first=before.first), begin - 1
        ranges[begin:end] = [*left, made, *right]
        self._filled_parts -= sum(len(parts) for _, parts in self._filled.pop_between(first, last))
        for bucket, parts in self._open.close(last):
            self._filled[bucket] = parts
            self._filled_parts += len(parts)
        while len(ranges) > TENTATIVE_RANGES_MAX or self._filled_parts > TENTATIVE_PARTS_MAX:
            self._drop(
                ranges[0].last
                if len(ranges) > TENTATIVE_RANGES_MAX
                else next(iter(self._filled))[0]
            )

    def prune(self, upto: int) -> None:
        """Drop buckets up to ``upto``, which are stable (TE4)."""
        self._open.close(upto)
        self._drop(upto)

    def _drop(self, upto: int) -> None:
        ranges = self._ranges
        if not ranges or ranges[0].first > upto:
            return
        del ranges[: bisect_right(ranges, upto, key=lambda r: r.last)]
        if ranges and ranges[0].first <= upto:
            ranges[0] = replace(ranges[0], first=upto + 1)
        self._filled_parts -= sum(len(parts) for _, parts in self._filled.pop_upto(upto))

    def bucket(self, bucket: int) -> TentativeRange | None:
        """Return a covered bucket as a range of its own, with its parts; None if it is not
        covered.
        """
        at = bisect_left(self._ranges, bucket, key=lambda r: r.last)
        if at == len(self._ranges) or self._ranges[at].first > bucket:
            return None
        parts = self._filled.get(bucket) or ()
        return replace(self._ranges[at], first=bucket, last=bucket, parts=parts)

    def ranges(self, first: int, last: int) -> list[TentativeRange]:
        """Return the covered ranges within ``first..last``, ascending, clipped to it, without
        parts.
        """
        if first > last:
            return []
        begin = bisect_left(self._ranges, first, key=lambda r: r.last)
        end = bisect_right(self._ranges, last, key=lambda r: r.first)
        found = self._ranges[begin:end]
        if found:
            found[0] = replace(found[0], first=max(first, found[0].first))
            found[-1] = replace(found[-1], last=min(last, found[-1].last))
        return found

    def filled(self, first: int, last: int, count_max: int | None = None) -> list[int]:
        """Return the covered buckets in ``first..last`` that have parts; only the first
        ``count_max`` of them.
        """
        return self._filled.between(first, last, count_max)

    def snapshot(self) -> BranchSnapshot | None:
        """Return the state for a log snapshot; None if this writer never had a branch."""
        if self.tip is None:
            return None
        return BranchSnapshot(
            number=self._number,
            tip=self.tip,
            closed=self._closed,
            upto=self.upto,
            first_upto=self.first_upto,
            pending=self._open.items(),
            ranges=tuple(
                [
                    replace(
                        r,
                        parts=tuple(
                            [
                                p
                                for b in self._filled.between(r.first, r.last)
                                for p in self._filled[b]
                            ]
                        ),
                    )
                    for r in self._ranges
                ]
            ),
        )

    @classmethod
    def from_snapshot(
        cls,
        log_snapshot: BranchSnapshot | None,
        ended: BranchNumber | None = None,
        corrected: BranchNumber | None = None,
    ) -> Self:
        """Return the state that ``log_snapshot``, ``ended`` and ``corrected`` describe."""
        branches = cls()
        branches.ended, branches.corrected = ended, corrected
        if log_snapshot is None:
            return branches
        branches._number = log_snapshot.number
        branches.tip = log_snapshot.tip
        branches._closed = log_snapshot.closed
        branches.upto = log_snapshot.upto
        branches.first_upto = log_snapshot.first_upto
        branches._open = OpenParts(log_snapshot.pending)
        for entry in log_snapshot.ranges:
            branches._ranges.append(replace(entry, parts=()))
            filled: dict[int, list[Part]] = {}
            for part in entry.parts:
                filled.setdefault(part.bucket, []).append(part)
            for bucket, parts in filled.items():
                branches._filled[bucket] = tuple(parts)
            branches._filled_parts += len(entry.parts)
        return branches
