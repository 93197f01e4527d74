"""Clocks and random numbers."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Source of time, passed as an argument so that tests can control it."""

    def now_ms(self) -> int:
        """Return the wall clock, in ms since 1970: for lag, heartbeats and the
        ``max_ahead`` guard.
        """

    def monotonic_ms(self) -> int:
        """Return a clock in ms that never runs backwards: for waits and timeouts."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Wait for ``duration_ms``."""


class Entropy(Protocol):
    """Source of randomness, passed as an argument so that tests can control it."""

    def token(self) -> str:
        """Return a random token of 16 lower-case hexadecimal digits."""
