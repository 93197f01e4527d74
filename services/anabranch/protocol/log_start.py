"""How does a reader begin to fold a boundary log whose beginning was deleted?

Theory of operation. A log that begins at offset 0 is folded from there. Where it begins later, what came before stands in a ``Summary`` further on:
the manager deletes only below the ``as_of`` of one that is in the log already (``protocol.summaries``). The reader holds records back until it
meets the first summary of a state that it can go on from: one that begins where the log does, or later, and was written soon after. It takes
that state, then the records that were held back from there on, and from then on folds as ever. Until then its fold is as at the beginning:
nothing is known, and nothing wrong is said.

Invariants:
    W1  the fold is, after each step, that of a beginning of the whole log, or still at its beginning.
    W2  a log that begins at 0 is folded record by record; its summaries change nothing.
    W3  at most SUMMARY_LATE_RECORDS offsets are held back, however far the next summary is.
    W4  a summary is taken as it stands or not at all; one that cannot be is passed by, and the next one may do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from anabranch.protocol.boundary_log import Outcome, StreamFold
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.limits import SUMMARY_LATE_RECORDS
from anabranch.protocol.records import LogEntry, Summary

Step = tuple[int, LogEntry, Outcome]
"""A record, and what the fold did with it."""


class LogStart:
    """The beginning of one reading of one log into ``fold``, to which nothing was applied yet."""

    def __init__(self, fold: StreamFold, offset_first: int) -> None:
        """``offset_first``: of the log, when the reading began."""
        self._fold, self._offset_first = fold, offset_first
        self._held: deque[tuple[int, LogEntry]] = deque()
        self.is_over = offset_first == 0
        """Nothing is held back any more."""

    def apply(self, offset: int, entry: LogEntry) -> Iterator[Step]:
        """Take the next record of the log. The fold changes once for each step that is asked for."""
        if self.is_over:
            yield offset, entry, self._fold.apply(offset, entry)
            return
        if isinstance(entry, Summary) and self._adopt(offset, entry):
            yield offset, entry, Outcome(accepted=True, reason="adopted", replica="")
            while self._held:
                at, held = self._held.popleft()
                if at >= entry.as_of:
                    yield at, held, self._fold.apply(at, held)
            return
        self._held.append((offset, entry))
        while self._held[0][0] < offset - SUMMARY_LATE_RECORDS:
            self._held.popleft()

    def _adopt(self, offset: int, summary: Summary) -> bool:
        """Whether the fold is what ``summary`` says now."""
        if not max(self._offset_first, offset - SUMMARY_LATE_RECORDS) <= summary.as_of <= offset:
            return False
        try:
            self._fold.adopt(summary)
        except RemoteProtocolError:
            return False
        self.is_over = True
        return True
