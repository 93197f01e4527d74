"""Which results has a stage with ``amnesia`` given up? Its log says it (SH3 of
``protocol.stage.beginning``); people are told once for each gap.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.control.records import Alarm
from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogEntry, LogSnapshot

GAP: Final = "gap"
"""Kind of an alarm: results were given up."""


class GapBook:
    """The gaps of one stream, as its log says them: for alarms. Reading the log again gives
    the same, as far as it is still there.
    """

    def __init__(self, stream: str, horizon_buckets: int, width_ms: int) -> None:
        self._stream = stream
        self._horizon_buckets = horizon_buckets
        self._width_ms = width_ms
        self._closed = 0
        self.lost = 0
        """Buckets that were given up, as far as the log was read."""

    def seen(self, entry: LogEntry, outcome: Outcome, now_ms: int) -> Alarm | None:
        """Take note of a record right after the log state took it; the alarm, where a gap
        begins.
        """
        if outcome.accepted and isinstance(entry, LogSnapshot):
            self._closed = max(r.closed for r in entry.replicas)
            return None
        if (
            not outcome.accepted
            or not isinstance(entry, BoundaryRecord)
            or entry.kind is not BoundaryKind.STABLE
        ):
            return None
        before, self._closed = self._closed, max(self._closed, entry.closed)
        if not entry.missing or entry.positions:
            return None
        self.lost += self._closed - before
        if entry.prev is not None:
            return None
        first, last = before + 1, max(before, entry.closed) + self._horizon_buckets
        text = (
            f"{self._stream} lost its state: the results of buckets {first}..{last} (times"
            f" {before * self._width_ms} to {last * self._width_ms} ms) are given up, as ha:"
            " amnesia wants it; those after are right"
        )
        return Alarm(GAP, self._stream, first, text, now_ms)
