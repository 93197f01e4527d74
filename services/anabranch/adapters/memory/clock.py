"""Clock and randomness that tests control."""

from __future__ import annotations

import random
import threading


class VirtualClock:
    """Clock that moves only by ``advance`` and by sleeping: a sleep returns at once, and its time
    has passed. Thread-safe.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        """Set the wall clock to ``now_ms``; the monotonic clock starts at 0."""
        self._lock = threading.Lock()
        self._monotonic_ms = 0
        self._wall_offset_ms = now_ms

    def now_ms(self) -> int:
        """Return the wall clock, in ms since 1970."""
        with self._lock:
            return self._wall_offset_ms + self._monotonic_ms

    def monotonic_ms(self) -> int:
        """Return the time since this clock was created, in ms."""
        with self._lock:
            return self._monotonic_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Let ``duration_ms`` pass, for all users of the clock."""
        self.advance(max(duration_ms, 0))

    def advance(self, duration_ms: int) -> None:
        """Let ``duration_ms`` (not negative) pass."""
        if duration_ms < 0:
            message = f"time cannot pass by {duration_ms} ms; to set the wall clock use jump"
            raise ValueError(message)
        with self._lock:
            self._monotonic_ms += duration_ms

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward or back, as a wrong time server does; no time passes."""
        with self._lock:
            self._wall_offset_ms += by_ms


class SeededEntropy:
    """Source of tokens that are the same for the same seed. Thread-safe."""

    def __init__(self, seed: int) -> None:
        """Start the sequence of ``seed``, any number."""
        self._random = random.Random(seed)  # noqa: S311 - repeatable is what is wanted
        self._lock = threading.Lock()

    def token(self) -> str:
        """Return the next token, 16 lower-case hexadecimal digits."""
        with self._lock:
            return f"{self._random.getrandbits(64):016x}"
