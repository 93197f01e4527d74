"""When is a boundary log summed up, and what of it may be deleted?

Theory of operation. The manager follows every boundary log. When enough came after the last summary it appends another: what it has folded, less
the buckets that no reader needs any more (``protocol.trimming``), which keeps it small. A summary is a function of the log below ``as_of`` and of
the trim point, so two managers harm nobody, and one that is lost is followed by another.

Deleted is what lies below the newest summary that is far enough behind the newest of all: whoever has just begun to read, or lags a little, is not
overtaken; whoever is ends, and begins again. How a reader begins in the middle is ``protocol.log_start``.

What a summary may not forget, though readers have passed it: the last results of a stage that makes them again after it lost its disk, and
compares (``protocol.state_horizon``).

Invariants:
    S1  nothing is deleted that the first summary which is left does not sum up: a start from there is a start from the beginning (L8).
    S2  between the end of what is deleted and the newest summary there are at least ``every_records`` offsets.
    S3  a summary describes every bucket above the trim point; where the fold does not know them any more there is none.
    S4  a summary too large to be read is not written. The fold does not keep more than could be said in one.
    S5  while a process that this pipeline does not have writes to the log there is none: what it writes would be missing in it for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from anabranch.protocol.boundary_log import Outcome, StreamFold
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.limits import REPLICAS_MAX, SUMMARY_EVERY_PARTS, SUMMARY_EVERY_RECORDS, SUMMARY_ITEMS_MAX, SUMMARY_LATE_RECORDS
from anabranch.protocol.records import BoundaryRecord, EpochStarted, LogEntry, Resent, Summary


def forgettable(fold: StreamFold, trim_point: int, writer: str, horizon_buckets: int) -> int:
    """Buckets up to this one need not be described. ``horizon_buckets``: of a stage that has a horizon, whose only writer is ``writer``; else 0."""
    upto = min(trim_point, fold.upto)
    return max(0, min(upto, fold.closed(writer) - 2 * horizon_buckets)) if horizon_buckets else upto


def items(summary: Summary) -> int:
    """How many items of lists its reader counts (SUMMARY_ITEMS_MAX); a few more."""
    count = sum(1 + len(stable.parts) for stable in summary.ranges)
    for r in summary.replicas:
        count += 1 + len(r.path) + len(r.lineages) + len(r.pending) + len(r.closed_parts)
        if r.last is not None:
            count += sum(map(len, (r.last.parts, r.last.missing, r.last.positions, r.last.made_from)))
        if r.branches is not None:
            count += len(r.branches.pending) + sum(1 + len(x.parts) + len(x.missing) for x in r.branches.ranges)
    return count


class LogSummaries:
    """The summaries of one boundary log, as one who may write them sees it."""

    def __init__(self, writers: Iterable[str], every_records: int = SUMMARY_EVERY_RECORDS) -> None:
        self._writers, self._every = tuple(writers), every_records
        self._as_of: list[int] = []
        """Of the summaries from which a reader can begin, ascending; none that is deleted."""
        self._forgotten = 0
        """What summaries in the log have forgotten is forgotten."""
        self._parts = 0
        """Named since the last summary."""
        self._unlooked = 0
        """Named since it was looked how much the fold holds."""
        self._not_before = 0
        self._is_live = False
        self._strange: dict[str, int] = {}
        """Epochs of writers that this pipeline does not have."""
        self.stranger = ""
        """A process writes to the log under this name, which no replica of this pipeline has; empty: none does (S5)."""
        self.refused = ""
        """Why there was no summary when one was due, in words; empty: there was."""

    @property
    def newest(self) -> int:
        """The newest summary's ``as_of``; 0: there is none."""
        return self._as_of[-1] if self._as_of else 0

    def read_to_end(self) -> None:
        """The log was read as far as it went at the start: strangers from here on are alive."""
        self._is_live = True

    def seen(self, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        """Take note of a record, right after the fold took it."""
        if isinstance(entry, Summary):
            if self._is_usable(offset, entry):
                self._as_of.append(entry.as_of)
                self._forgotten, self._parts = max(self._forgotten, entry.forgotten), 0
        elif outcome.reason == "unknown_writer":
            self._strange_record(offset, entry)
        elif not isinstance(entry, EpochStarted):
            self._parts += len(entry.parts)
            self._unlooked += len(entry.parts)

    def _strange_record(self, offset: int, entry: EpochStarted | BoundaryRecord | Resent) -> None:
        if isinstance(entry, EpochStarted):
            self._strange[entry.replica] = offset
            if len(self._strange) > REPLICAS_MAX:
                del self._strange[next(iter(self._strange))]
        if self._is_live and (isinstance(entry, EpochStarted) or entry.epoch == self._strange.get(entry.replica)):
            self.stranger = entry.replica

    def _is_usable(self, offset: int, summary: Summary) -> bool:
        """Whether a reader could begin with it (``protocol.log_start``), and it is news."""
        if summary.as_of <= self.newest or not offset - SUMMARY_LATE_RECORDS <= summary.as_of <= offset:
            return False
        try:
            StreamFold(self._writers).adopt(summary)
        except RemoteProtocolError:
            return False
        return True

    def due(self, offset_next: int) -> bool:
        """Whether the log is to be summed up below ``offset_next``."""
        much = offset_next - self.newest >= self._every or self._parts >= SUMMARY_EVERY_PARTS
        return much and offset_next >= self._not_before and not self.stranger

    def make(self, fold: StreamFold, as_of: int, forgettable_upto: int, histories: Mapping[str, str]) -> Summary | None:
        """The summary to append; None: there can be none now (S3, S4). Either way the next one is not due at once.

        Args:
            fold: Of everything below ``as_of``.
            as_of: Of the summary.
            forgettable_upto: What ``forgettable`` says.
            histories: By which plans each writer's chain was made (``protocol.consistency``).
        """
        upto = max(forgettable_upto, self._forgotten)
        self._not_before = as_of + self._every
        if fold.forgotten > upto:
            self.refused = f"readers need buckets from {upto + 1} on, and there was no room for those up to {fold.forgotten}"
            return None
        summary = fold.summary(as_of, upto)
        summary = replace(summary, replicas=tuple(replace(r, history=histories.get(r.replica, "")) for r in summary.replicas))
        if (count := items(summary)) > SUMMARY_ITEMS_MAX:
            self.refused = (
                f"it would have {count} items, more than {SUMMARY_ITEMS_MAX}: a reader far behind needs buckets from {upto + 1} on"
            )
            return None
        self.refused = ""
        # If it does not get into the log before this, it is of no use.
        self._not_before = as_of + min(self._every, SUMMARY_LATE_RECORDS)
        return summary

    def too_large(self, as_of: int, reason: str) -> None:
        """The summary that was made has too many bytes (S4)."""
        self.refused, self._not_before = reason, as_of + self._every

    def overfull(self, fold: StreamFold) -> bool:
        """Whether the fold holds more than a summary could say (S4); looked at now and then."""
        if self._unlooked < SUMMARY_EVERY_PARTS:
            return False
        self._unlooked = 0
        return fold.stable_parts > SUMMARY_ITEMS_MAX

    def cut(self) -> int:
        """Records below this offset may be deleted (S1, S2); 0: none."""
        below = [as_of for as_of in self._as_of if as_of + self._every <= self.newest]
        if below:
            del self._as_of[: len(below) - 1]
        return below[-1] if below else 0
