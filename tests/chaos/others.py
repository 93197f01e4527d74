"""How much of the machine others had while a run went on: what comes late may be late for that."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from harness.waiting import busy_s, low_priority_s


class OthersShare:
    """Since it was made: the share of the processors' time that neither this process nor the
    deployment had.
    """

    def __init__(self, deployment_s: Callable[[], float]) -> None:
        self._deployment_s = deployment_s
        self._begin = self._look()

    def _look(self) -> tuple[float, float, float]:
        busy = busy_s() + (low_priority_s() if _yields() else 0.0)
        return time.monotonic(), busy, self._deployment_s() + sum(os.times()[:4])

    def now(self) -> float:
        """From 0 to 1."""
        passed, busy, own = (
            now - then for now, then in zip(self._look(), self._begin, strict=True)
        )
        return max(0.0, busy - own / (os.cpu_count() or 1)) / passed


def _yields() -> bool:
    """Whether this process and what it starts run at a low priority: so may others, then."""
    return os.getpriority(os.PRIO_PROCESS, 0) > 0
