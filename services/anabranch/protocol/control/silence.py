"""For how long was another one not heard, by whoever hears that its own news come back?

Theory of operation. A process that hears nobody may be cut off itself, and so may be all of them:
where the broker is away, everybody is silent, and nobody is dead. What a process says itself goes
the same way as what it waits for: to the broker, into a control topic, and back. So silence is
counted from one of its own news to the next. Where they are far apart the way was closed
meanwhile, or the process was paused, and the other one may have had no chance either: the silence
begins anew.

Invariants:
    SL1 silence counts only between two own news that came back at most ``OBSERVED_STEP_MS`` apart.
    SL2 a sign of life ends it, and so does a longer gap between own news.
    SL3 it never counts more than the clock does.
"""

from __future__ import annotations

from anabranch.protocol.limits import OBSERVED_STEP_MS


class Silence:
    """Of one other process. ``now_ms`` is any clock of one's own."""

    def __init__(self) -> None:
        self._came_back_ms: int | None = None
        self._since_ms = 0
        self.ms = 0
        """For so long nothing was heard though it could have been."""

    def broken(self, now_ms: int) -> None:
        """A sign of life of the other one (SL2)."""
        self.ms, self._since_ms = 0, now_ms

    def came_back(self, now_ms: int) -> None:
        """Own news was read back, or the broker has answered (SL1)."""
        before_ms, self._came_back_ms = self._came_back_ms, now_ms
        if before_ms is None or not 0 <= now_ms - before_ms <= OBSERVED_STEP_MS:
            self.broken(now_ms)
            return
        self.ms += max(0, now_ms - max(before_ms, self._since_ms))
