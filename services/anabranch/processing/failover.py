"""Where the time of a failover goes: its phases one after the other, logged once, when results come
again.

A crash loses the figures and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.ports import Clock


class Failover:
    """One that has begun, by a process that stood by."""

    def __init__(self, clock: Clock, silence_ms: int) -> None:
        """It begins now. ``silence_ms``: how long the primary was not heard before."""
        self._clock, self._ms = clock, {"silence": silence_ms}
        self._since_ms = clock.monotonic_ms()

    def passed(self, phase: str) -> None:
        """``phase`` lies between the end of the one before and now."""
        now_ms = self._clock.monotonic_ms()
        self._ms[phase], self._since_ms = now_ms - self._since_ms, now_ms

    def first_batch(self, batch_ms: int) -> dict[str, int]:
        """The first batch has ended, after ``batch_ms`` of its own: the ms of all phases, by
        name.
        """
        self.passed("query")
        self._ms["query"] = max(0, self._ms["query"] - batch_ms)
        return self._ms | {"first_batch": batch_ms}
