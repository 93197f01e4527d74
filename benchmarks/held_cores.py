"""Groups of processes that are held to a share of a core, by the cgroups of Linux.

Theory of operation. A group may run for ``cores`` x 100 ms of processor time in each 100 ms; then
the kernel stops all its threads until the next 100 ms begin. What a process of the group starts is
in the group, too. Version 1 of cgroups has a folder for the limit and another one for the processor
time that was used, or one that is both; version 2 has one for all.

Programs that read their limit when they start, as Java does to know how many cores there are, do
not see one under which they come later.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from demo.process_tree import descendants

PERIOD_US: Final = 100_000
"""Period of the limit, in µs: the kernel's default."""
CGROUPS: Final = Path("/sys/fs/cgroup")
_LEAST_CORES: Final = 0.01
"""Smallest share that the kernel takes: 1 ms in a period."""
_PROCESSES: Final = "cgroup.procs"
_REMOVE_S: Final = 5.0
"""Time within which the last process of a group has ended after it was killed, in seconds."""


class HoldError(Exception):
    """Raised when processes cannot be held; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor time of a group since its beginning."""

    cpu_s: float
    periods: int
    """Periods in which a process of the group could run."""
    stopped: int
    """Periods in which the group had used its share before their end, and wanted more."""

    def since(self, before: Spent) -> Spent:
        """Return the part of it after ``before``."""
        return Spent(
            self.cpu_s - before.cpu_s, self.periods - before.periods, self.stopped - before.stopped
        )


class HeldGroup:
    """Group of processes that together get at most ``cores`` cores."""

    def __init__(self, name: str, cores: float, root: Path = CGROUPS) -> None:
        """Make the group, without processes.

        Raises:
            HoldError: the system has no such groups, or this user may not make any.
        """
        self._is_new = (root / "cgroup.controllers").is_file()
        if not self._is_new and not (root / "cpu").is_dir():
            raise HoldError(
                f"{root} has no cgroups for processors; mount them, or leave out --node-core"
            )
        self._limit = root / name if self._is_new else root / "cpu" / name
        self._usage = root / name if self._is_new else root / "cpuacct" / name
        self._folders = tuple(dict.fromkeys((self._limit, self._usage)))
        """Folders of the group: two in version 1 of cgroups, one in version 2."""
        try:
            if self._is_new:
                _write(root / "cgroup.subtree_control", "+cpu")
            for folder in self._folders:
                folder.mkdir(exist_ok=True)
            self._set(round(cores * PERIOD_US))
        except OSError as error:
            for folder in self._folders:
                with suppress(OSError):
                    folder.rmdir()
            raise HoldError(
                f"cannot make the cgroup {self._limit}: {error.strerror}; run as a user who may,"
                " such as root, or leave out --node-core"
            ) from error

    def add(self, pids: Iterable[int]) -> None:
        """Put processes into the group. Those that have ended meanwhile are passed over."""
        for pid in pids:
            for folder in self._folders:
                try:
                    _write(folder / _PROCESSES, str(pid))
                except ProcessLookupError:
                    break

    def add_tree(self, root: int) -> None:
        """Put a process and all below it into the group, those included that start meanwhile."""
        added: set[int] = set()
        while new := {each.pid for each in descendants(root)} - added:
            self.add(sorted(new))
            added |= new

    def spent(self) -> Spent:
        """Return the processor time of the group so far."""
        pairs = (line.split() for line in (self._limit / "cpu.stat").read_text().splitlines())
        stat = {name: int(value) for name, value in pairs}
        if self._is_new:
            cpu_s = stat["usage_usec"] / 1e6
        else:
            cpu_s = int((self._usage / "cpuacct.usage").read_text()) / 1e9
        return Spent(cpu_s, stat["nr_periods"], stat["nr_throttled"])

    def release(self) -> None:
        """Take the limit away. Processes that stop in order need it gone."""
        self._set(None)

    def remove(self) -> None:
        """Remove the group, whose processes have ended or are ending.

        Raises:
            HoldError: it still has processes.
        """
        end_s = time.monotonic() + _REMOVE_S
        for folder in self._folders:
            while folder.is_dir():
                try:
                    folder.rmdir()
                except OSError as error:
                    if time.monotonic() > end_s:
                        raise HoldError(f"cannot remove the cgroup {folder}: {error}") from error
                    time.sleep(0.1)

    def _set(self, quota_us: int | None) -> None:
        if self._is_new:
            quota = "max" if quota_us is None else str(quota_us)
            _write(self._limit / "cpu.max", f"{quota} {PERIOD_US}")
        else:
            _write(self._limit / "cpu.cfs_period_us", str(PERIOD_US))
            _write(self._limit / "cpu.cfs_quota_us", str(-1 if quota_us is None else quota_us))


def cores(text: str) -> float:
    """Return a number of cores that a group can be held to.

    Raises:
        ValueError: it is none.
    """
    found = float(text)
    if not found >= _LEAST_CORES:
        raise ValueError(f"{text} is less than {_LEAST_CORES} cores")
    return found


def _write(file: Path, text: str) -> None:
    """Write as the kernel wants it, in one call."""
    with file.open("a") as opened:
        opened.write(f"{text}\n")
