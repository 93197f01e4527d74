"""Clock for an agent's waits: the wall clock, made to never go back.

Theory of operation. An agent's waits end at moments of the wall clock, since contracts have dates.
A clock that was fast goes back when it is corrected, perhaps by hours, and a wait would last longer
by as much. So this clock continues from where it was, at half the speed of the monotonic clock,
until the wall clock has caught up. A wait then lasts at most twice as long. Records for others have
the time of the wall clock itself.

Invariants:
    WT1  the time does not go back, and is never behind the wall clock.
    WT2  in any span it advances by half of what the monotonic clock does, or more.
    WT3  while it is in front of the wall clock it advances by no more than that.
"""

from __future__ import annotations


class SteadyTime:
    """Wall clock that never runs backwards within a process. Not thread-safe. After a crash a new
    one begins at the wall clock.
    """

    def __init__(self) -> None:
        self._known: tuple[int, int] | None = None
        """A time, and the monotonic clock's then: the last at which it was the wall clock's."""

    def at(self, wall_ms: int, monotonic_ms: int) -> int:
        """Return the time when the two clocks say so."""
        if self._known is not None:
            time_ms, since_ms = self._known
            steady_ms = time_ms + (monotonic_ms - since_ms + 1) // 2
            if wall_ms < steady_ms:
                return steady_ms
        self._known = wall_ms, monotonic_ms
        return wall_ms
