"""How does a reader begin to read a boundary log whose beginning was deleted?

Theory of operation. A log that begins at offset 0 is read from there. Where it begins later, what
came before stands in a ``LogSnapshot`` further on: the manager deletes only below the ``as_of`` of
one that is in the log already (``protocol.log.log_snapshots``). The reader holds records back until
it meets the first log snapshot of a state that it can go on from: one that begins where the log
does, or later, and was written soon after. It takes that state, then the records that were held
back from there on, and from then on goes on as ever. Until then its log state is as at the
beginning: nothing is known, and nothing wrong is stated.

Invariants:
    LS1 the log state is, after each step, that of a beginning of the whole log, or still at its
        beginning.
    LS2 a log that begins at 0 is read record by record; its log snapshots change nothing.
    LS3 at most SNAPSHOT_LATE_RECORDS offsets are held back, however far the next log snapshot is.
    LS4 a log snapshot is taken as it stands or not at all; one that cannot be is passed by, and the
        next one may do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.limits import SNAPSHOT_LATE_RECORDS
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import LogEntry, LogSnapshot

Step = tuple[int, LogEntry, Outcome]
"""A record, and what the log state did with it."""


class LogStart:
    """The beginning of one reading of one log into ``log_state``, to which nothing was
    applied yet.
    """

    def __init__(self, log_state: LogState, offset_first: int) -> None:
        """``offset_first``: of the log, when the reading began."""
        self._log_state, self._offset_first = log_state, offset_first
        self._held: deque[tuple[int, LogEntry]] = deque()
        self.is_over = offset_first == 0
        """Nothing is held back any more."""

    def apply(self, offset: int, entry: LogEntry) -> Iterator[Step]:
        """Take the next record of the log. The log state changes once for each step that is
        asked for.
        """
        if self.is_over:
            yield offset, entry, self._log_state.apply(offset, entry)
            return
        if isinstance(entry, LogSnapshot) and self._adopt(offset, entry):
            yield offset, entry, Outcome(accepted=True, reason="adopted", replica="")
            while self._held:
                at, held = self._held.popleft()
                if at >= entry.as_of:
                    yield at, held, self._log_state.apply(at, held)
            return
        self._held.append((offset, entry))
        while self._held[0][0] < offset - SNAPSHOT_LATE_RECORDS:
            self._held.popleft()

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
