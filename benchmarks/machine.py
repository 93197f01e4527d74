"""Description of the machine that a report was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """Cores that this process may use, their model, memory, system: figures of two machines
    are no comparison.
    """
    memory = next(
        line.split()[1]
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal")
    )
    models = (
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    cores = len(os.sched_getaffinity(0))
    return (
        f"{cores} cores ({next(models, '?')}), {int(memory) / 2**20:.0f} GiB, {platform.system()}"
        f" {platform.release()}"
    )
