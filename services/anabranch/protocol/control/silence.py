"""For how long was another process not heard, though it could have been?

Theory of operation. A process that hears nobody may be cut off itself, and so may be all of them:
where the broker is away, everybody is silent, and nobody is dead. What a process says itself goes
the same way as what it waits for: to the broker, into a control topic, and back. So silence is
counted from one of its own news to the next. Where they are far apart the way was closed meanwhile,
or the process was paused. When the way is open again, the other one may not know it yet: who could
not write tries again after ``HEARTBEAT_SEND_MS``. So the silence begins anew, as much below zero.

Where every round trip is long, the machine or the broker has too much to do. The silence grows even
then, a little for each of the own news: who waits for a dead one waits longer, but not for ever.

Invariants:
    SL1 silence begins with the first of the own news that comes back.
    SL2 a sign of life ends it.
    SL3 where nothing comes back for more than ``OBSERVED_STEP_MS``, it is ``HEARTBEAT_SEND_MS``
        below zero after that; from then on each gap counts ``OBSERVED_STEP_MS`` at most, until
        there is a sign of life.
    SL4 it never counts more than the clock does.
"""

from __future__ import annotations

from anabranch.protocol.limits import HEARTBEAT_SEND_MS, OBSERVED_STEP_MS


class Silence:
    """Of one other process. ``now_ms`` is any clock of one's own that is never set back."""

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._was_closed = False
        self.ms = 0
        """For so long nothing was heard; below zero where the way was closed just now."""

    def broken(self, now_ms: int) -> None:
        """A sign of life of the other one (SL2)."""
        self.ms, self._was_closed = 0, False
        if self._since_ms is not None:
            self._since_ms = now_ms

    def came_back(self, now_ms: int) -> None:
        """Own news was read back, or the broker has answered (SL1, SL3)."""
        since_ms, self._since_ms = self._since_ms, now_ms
        if since_ms is None:
            return
        gap_ms = now_ms - since_ms
        if gap_ms > OBSERVED_STEP_MS and not self._was_closed:
            self.ms, self._was_closed = -HEARTBEAT_SEND_MS, True
        else:
            self.ms += min(gap_ms, OBSERVED_STEP_MS)
