"""Watch over the machine while a run is measured: finds the stalls that make delays say nothing.

A thread sleeps for short times and records how late it wakes: a machine that stands still wakes
nobody. What other programs and the host take shows in the samples of ``TreeMeter`` instead, since a
sleeper gets its turn soon also where the system gets half of its time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from demo.process_tree import TreeMeter
from demo.stalls import Stall, late_wake, merged, taken_away

SLEEP_MS: Final = 20
"""Time between two wake-ups, in ms: a tenth of the shortest stall that counts."""
_PRESSURE: Final = Path("/proc/pressure")
_RESOURCES: Final = ("cpu", "io", "memory")


def now_ms() -> int:
    """Return the wall clock, by which delays are measured, too, in ms since 1970."""
    return time.time_ns() // 1_000_000


class MachineWatch(threading.Thread):
    """Watcher of the machine. It owns its thread; ``meter``, which samples the processor time of
    the system under test, is started and stopped by its owner.
    """

    def __init__(self, meter: TreeMeter, clock_ms: Callable[[], int] = now_ms) -> None:
        super().__init__(name="machine", daemon=True)
        self._meter = meter
        self._clock_ms = clock_ms
        self._stopping = threading.Event()
        self._late: list[Stall] = []
        self._begun_s, self._pressure_s = time.monotonic(), pressure_s()

    def run(self) -> None:
        """Sleep and wake until ``stop``."""
        while not self._stopping.is_set():
            due_ms = self._clock_ms() + SLEEP_MS
            self._stopping.wait(SLEEP_MS / 1_000)
            self._late += late_wake(due_ms, self._clock_ms())

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self.join()

    def stalls(self) -> list[Stall]:
        """Return the stalls so far, ascending; none of them touch."""
        taken = taken_away(self._meter.spent.copy(), os.cpu_count() or 1)
        return merged([*self._late.copy(), *taken])

    def pressure(self) -> dict[str, float]:
        """Return the share of the time so far in which some task waited, per resource; empty where
        the system does not report it. Evidence for people: what the system itself causes is in it.
        """
        passed_s = time.monotonic() - self._begun_s
        return {
            name: (took_s - self._pressure_s[name]) / passed_s
            for name, took_s in pressure_s().items()
            if name in self._pressure_s and passed_s > 0
        }


def pressure_s() -> dict[str, float]:
    """Return the seconds in which some task waited for a resource, per resource."""
    found = {}
    for name in _RESOURCES:
        try:
            line = (_PRESSURE / name).read_text().partition("\n")[0]
        except OSError:  # the kernel has no pressure information, or not of this resource
            continue
        found[name] = int(line.rpartition("total=")[2]) / 1_000_000
    return found
