"""When is a process, or a replica on a node, started again that ended?

Theory of operation. Whatever ends may be started again, since all that matters is in Kafka and in checkpoints. What ends soon after its start waits
longer each time, so that what cannot run costs little; what ran for a while begins with the first delay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DELAY_FIRST_MS: Final = 500
DELAY_MAX_MS: Final = 30_000
STAGE_FAILED_DELAY_MAX_MS: Final = 60_000
"""A function that fails will most likely fail again: the log and the machine get more rest."""

HEALTHY_AFTER_MS: Final = 60_000
"""What ran so long starts again at the first delay."""


@dataclass(slots=True)
class Backoff:
    """Growing delays of one of them: doubled at each end that comes soon after the start. Times are monotonic ms."""

    failures: int = 0

    def after_end(self, ran_ms: int, delay_max_ms: int = DELAY_MAX_MS) -> int:
        """How long to wait, in ms, after the end of what had been ready for ``ran_ms``."""
        if ran_ms >= HEALTHY_AFTER_MS:
            self.failures = 0
        delay_ms = min(delay_max_ms, DELAY_FIRST_MS << min(self.failures, 16))
        self.failures += 1
        return delay_ms
