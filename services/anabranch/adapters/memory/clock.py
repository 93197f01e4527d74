"""Time and randomness that a test decides about."""

from __future__ import annotations

import random
import threading


class VirtualClock:
    """A clock that moves only by ``advance`` and by sleeping: a sleep ends at once and has
    taken its time. Thread-safe.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        """``now_ms`` is the wall clock's start; the monotonic clock starts at 0."""
        self._lock = threading.Lock()
        self._monotonic_ms = 0
        self._wall_offset_ms = now_ms

    def now_ms(self) -> int:
        """The wall clock."""
        with self._lock:
            return self._wall_offset_ms + self._monotonic_ms

    def monotonic_ms(self) -> int:
        """Milliseconds passed since this clock was made."""
        with self._lock:
            return self._monotonic_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Let ``duration_ms`` pass, for everyone."""
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
    """Tokens that are the same for the same seed. Thread-safe."""

    def __init__(self, seed: int) -> None:
        """``seed``: any number."""
        self._random = random.Random(seed)  # noqa: S311 - repeatable is what is wanted
        self._lock = threading.Lock()

    def token(self) -> str:
        """16 lower-case hexadecimal digits."""
        with self._lock:
            return f"{self._random.getrandbits(64):016x}"
