"""Time as a process has observed it: a pause of the process, and a jump of its clock, do not count
as waiting.

Theory of operation. Time-outs of this project judge *others*: who was not heard for so long is
taken for dead. A process that was stopped, or whose machine slept, has heard nobody, through no
fault of theirs. So each look counts at most ``OBSERVED_STEP_MS``: whoever wakes from a pause must
look again, several times, before any of its time-outs is over.

Invariants:
    OT1 observed time never falls, whatever the clock does.
    OT2 between two looks it grows by at most ``OBSERVED_STEP_MS``, and by no more than the clock.
"""

from __future__ import annotations

from anabranch.protocol.limits import OBSERVED_STEP_MS


class ObservedTime:
    """Turns readings of a clock into observed time, in ms since the first look."""

    def __init__(self) -> None:
        self._last_ms: int | None = None
        self._observed_ms = 0

    def at(self, now_ms: int) -> int:
        """Observed time at the clock's ``now_ms`` (OT1, OT2). Call it at every look."""
        if self._last_ms is not None:
            self._observed_ms += min(max(0, now_ms - self._last_ms), OBSERVED_STEP_MS)
        self._last_ms = now_ms
        return self._observed_ms
