"""Processor time of the parts of a deployment: what leaving out rows can save, and what it cannot.

Rows are left out when a stage reads them. What takes them from Kafka and what brings results there
works as much as without shedding, and so do the broker, the feeder and the receiver on the same
machine. An overload that these alone cannot keep up with says nothing about shedding.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from demo.deployment import Row
from demo.process_tree import Process, descendants, processor_s

Spent = dict[str, float]

STAGES: Final = ("stages, Java", "stages, Python")
"""Parts in which rows are left out."""
OWN: Final = "feeder and receiver"

EDGES_SHARE: Final = 0.6
"""Share of the cores that all other parts may need in an overload."""
FACTOR_LEAST, FACTOR_MOST = 1.2, 2.0
"""Bounds of the overload, in rates without shedding: below it hardly is one."""


def part_times(rows: Iterable[Row]) -> Spent:
    """Return the processor seconds so far of each service in ``rows``, and of this process."""
    own = os.times()
    found = {OWN: own.user + own.system}
    for row in rows:
        for process in () if row.pid is None else descendants(row.pid):
            part = row.service
            if part == "processing":
                part = STAGES[0] if _is_java(process) else STAGES[1]
            found[part] = found.get(part, 0.0) + processor_s(process)
    return found


def _is_java(process: Process) -> bool:
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip() == "java"
    except OSError:  # it has ended
        return False


def per_reading(before: Mapping[str, float], after: Mapping[str, float], readings: int) -> Spent:
    """Return the processor time of each part for a reading, in microseconds."""
    return {
        part: round((after[part] - before.get(part, 0.0)) / readings * 1e6, 2)
        for part in sorted(after)
    }


def edges_us(spent: Spent) -> float:
    """Return what a reading costs outside of the stages once there is a live topic, in
    microseconds: ``spent`` is that of a run without one.
    """
    outside = sum(us for part, us in spent.items() if part not in STAGES)
    return outside + spent.get("delivery", 0.0)


def overload_factor(spent: Spent, readings_per_s: float, cores: int) -> float:
    """Return the largest overload, as a multiple of ``readings_per_s``, in which all that is not a
    stage takes at most ``EDGES_SHARE`` of the cores.
    """
    fits = EDGES_SHARE * cores * 1e6 / max(0.1, edges_us(spent)) / readings_per_s
    return min(FACTOR_MOST, max(FACTOR_LEAST, fits))
