"""Timing of a failover by phase, logged once the first results are out.

A crash loses the figures and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.ports import Clock


class Failover:
    """Stopwatch of one failover of a standby process, by phase."""

    def __init__(self, clock: Clock, silence_ms: int) -> None:
        """Start the failover's first phase. ``silence_ms``: how long the primary was silent before
        it.
        """
        self._clock, self._ms = clock, {"silence": silence_ms}
        self._since_ms = clock.monotonic_ms()

    def passed(self, phase: str) -> None:
        """End ``phase`` now. It began where the previous one ended."""
        now_ms = self._clock.monotonic_ms()
        self._ms[phase], self._since_ms = now_ms - self._since_ms, now_ms

    def first_batch(self, batch_ms: int) -> dict[str, int]:
        """End the failover with its first batch, which took ``batch_ms``. Return the ms of each
        phase, by name.
        """
        self.passed("query")
        self._ms["query"] = max(0, self._ms["query"] - batch_ms)
        return self._ms | {"first_batch": batch_ms}
