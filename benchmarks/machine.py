"""Description of the machine and of the commit that a report was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
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


def commit() -> str:
    """Return the abbreviated hash of the commit that is checked out, with a mark if files differ
    from it, or "no commit".
    """
    done = subprocess.run(
        ["git", "describe", "--always", "--exclude=*", "--dirty=, changed"],  # noqa: S607 - the caller's git
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip() or "no commit"
