"""Process tree, read from /proc (Linux): which processes run, and how much memory and processor
time they take.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from demo.stalls import Spent

_PROC = Path("/proc")
_LOW_FIELD = 2
_STOLEN_FIELD = 8
_FREE_FIELDS = {_LOW_FIELD, 4, 5}
"""Fields of the processors' line of /proc/stat that do not take time from others: tasks of a low
priority, which yield to all others; idle; idle while a disk works. Guests' time is behind
``_STOLEN_FIELD``, and included in the other fields.
"""


class Process(NamedTuple):
    """Unambiguous identity of a process: an id alone may be reused. ``started`` is in clock ticks
    since the machine started.
    """

    pid: int
    started: int


def find(pid: int) -> Process | None:
    """Return the process that has this id now; None if it has ended."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in {"Z", "X"} else Process(pid, int(fields[19]))


def is_running(process: Process) -> bool:
    """Return whether this very process has not ended yet."""
    return find(process.pid) == process


def descendants(root: int) -> set[Process]:
    """Return ``root`` and all processes below it that run now."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        fields = _stat(int(folder.name)) if folder.name.isdigit() else None
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found: set[Process] = set()
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        process = find(pid)
        if process is not None and process not in found:
            found.add(process)
        waiting += children.pop(pid, [])
    return found


def proportional_bytes(processes: set[Process]) -> int:
    """Return the proportional set size of all processes, in bytes: a page that n processes share
    counts as 1/n in each.
    """
    total_kib = 0
    for process in processes:
        try:
            text = (_PROC / str(process.pid) / "smaps_rollup").read_text()
        except OSError:  # it ended meanwhile
            continue
        total_kib += sum(
            int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")
        )
    return total_kib * 1024


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name: state, parent, ..., start time at index
    19.
    """
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def processor_s(process: Process) -> float:
    """Return the processor seconds of the process itself so far; 0 once it has ended."""
    fields = _stat(process.pid)
    return (
        0.0
        if fields is None or int(fields[19]) != process.started
        else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    )


def busy_s(*, with_low: bool = False) -> float:
    """Return the processor seconds that the machine worked and that its host gave to others. 0
    where the system does not report it.

    Tasks of a low priority count only ``with_low`` or if this process is one: otherwise they yield
    to it. A deployment lowers the priority of processes of its own while they start, so what is
    left of the result without the time of a deployment is known only ``with_low``.
    """
    counts_low = with_low or os.getpriority(os.PRIO_PROCESS, 0) > 0
    free = _FREE_FIELDS - ({_LOW_FIELD} if counts_low else set())
    try:
        fields = (_PROC / "stat").read_text().partition("\n")[0].split()
    except OSError:
        return 0.0
    worked = sum(int(fields[number]) for number in {*range(1, _STOLEN_FIELD + 1)} - free)
    return worked / os.sysconf("SC_CLK_TCK")


class TreeMeter(threading.Thread):
    """Meter that samples process trees once a second. ``peak_bytes`` is the largest sum that it
    saw.
    """

    def __init__(self, *roots: int, sees_memory: bool = True) -> None:
        """Prepare the meter. ``sees_memory``: also measure memory, for which the system walks each
        process's pages and meanwhile gives it no new ones.
        """
        super().__init__(name="tree", daemon=True)
        self._roots = roots
        self._sees_memory = sees_memory
        self._stopping = threading.Event()
        self._processor_s: dict[Process, float] = {}
        self._running: set[Process] = set()
        self.spent: list[Spent] = []
        """Samples of the machine's processor time and the share of the trees and this process."""
        self.peak_bytes = 0
        self.last_bytes = 0

    @property
    def seen(self) -> set[Process]:
        """All processes that ever ran in the trees."""
        return set(self._processor_s)

    @property
    def processor_s(self) -> float:
        """Processor seconds of all processes, except the last second of those that have ended."""
        return sum(self._processor_s.copy().values())

    def run(self) -> None:
        """Sample until ``stop``."""
        while not self._stopping.is_set():
            self.sample()
            self._stopping.wait(1.0)

    def sample(self) -> None:
        """Add a sample.

        The processes are read one after the other, which takes longer the busier the machine is.
        So the machine's own figures are those of the middle of that time: what the trees spend
        meanwhile would count as spent by others in one sample, and be missing there in the next.
        """
        begun_ms, begun_s = time.time_ns() // 1_000_000, busy_s()
        processes = {each for root in self._roots for each in descendants(root)}
        for process in processes:
            took_s = processor_s(process)
            self._processor_s[process] = max(took_s, self._processor_s.get(process, 0.0))
        is_whole = self._running <= processes
        own_s = self.processor_s + sum(os.times()[:4])
        ended_ms, ended_s = time.time_ns() // 1_000_000, busy_s()
        self.spent.append(
            Spent((begun_ms + ended_ms) // 2, (begun_s + ended_s) / 2, own_s, is_whole)
        )
        self._running = processes
        if self._sees_memory:
            self.last_bytes = proportional_bytes(processes)
            self.peak_bytes = max(self.peak_bytes, self.last_bytes)

    def stop(self) -> None:
        """Stop sampling."""
        self._stopping.set()
        self.join()
