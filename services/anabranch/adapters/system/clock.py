"""Clocks of this machine: the implementation of ``ports.Clock``."""

from __future__ import annotations

import time

_NS_PER_MS = 1_000_000


class SystemClock:
    """Wall clock, monotonic clock and waiting of this machine."""

    def now_ms(self) -> int:
        """Return the time in ms since 1970 UTC. It may jump when the clock is set."""
        return time.time_ns() // _NS_PER_MS

    def monotonic_ms(self) -> int:
        """Return the time in ms since an arbitrary moment. It never runs backwards."""
        return time.monotonic_ns() // _NS_PER_MS

    def sleep_ms(self, duration_ms: int) -> None:
        """Block this thread for ``duration_ms`` milliseconds; not at all for zero or less."""
        if duration_ms > 0:
            time.sleep(duration_ms / 1000)
