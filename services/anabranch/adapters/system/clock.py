"""The system's clocks behind ``ports.Clock``."""

from __future__ import annotations

import time

_NS_PER_MS = 1_000_000


class SystemClock:
    """Wall clock, monotonic clock and waiting of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump when someone sets the clock."""
        return time.time_ns() // _NS_PER_MS

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back."""
        return time.monotonic_ns() // _NS_PER_MS

    def sleep_ms(self, duration_ms: int) -> None:
        """Block this thread for ``duration_ms`` milliseconds; not at all for zero or less."""
        if duration_ms > 0:
            time.sleep(duration_ms / 1000)
