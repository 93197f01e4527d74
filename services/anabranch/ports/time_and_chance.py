"""Clocks and random numbers."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time, as an argument."""

    def now_ms(self) -> int:
        """Wall clock: for lag, heartbeats and the `max_ahead` guard."""

    def monotonic_ms(self) -> int:
        """For waits and time-outs."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Wait."""


class Entropy(Protocol):
    """Randomness, as an argument."""

    def token(self) -> str:
        """16 lower-case hexadecimal digits."""
