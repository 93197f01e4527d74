"""CPU time and memory of a process tree, from /proc (Linux)."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_SAMPLE_S: Final = 0.5
_MEMORY_EVERY: Final = 4
"""Memory is sampled at every fourth CPU sample: reading it costs the sampled process a lock."""


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds used so far and memory, by kind of process."""

    at_s: float
    cpu_s: dict[str, float]
    pss_mib: dict[str, float]
    rss_mib: float
    broker_cpu_s: float
    others_cpu_s: float
    """CPU seconds of everything on the machine that is no part of the benchmark: above a few
    per cent a run proves little.
    """


def _stat(pid: int) -> tuple[int, float] | None:
    """(parent, CPU seconds of the process and of its ended children), None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15])) * _TICK_S


def name_of(pid: int) -> str:
    """Return a readable name of a process, from its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    text = " ".join(words)
    if "org.apache.spark.deploy.SparkSubmit" in text:
        return "spark jvm"
    if any(
        word in text
        for word in (
            "worker_daemon",
            "pyspark.daemon",
            "pyspark.worker",
            "planner_worker",
            "pyspark/daemon",
        )
    ):
        return "spark python"
    if "redis" in Path(words[0]).name:
        return "redis"
    for service in ("ingestion", "processing", "delivery", "consistency_manager"):
        if f"anabranch.{service}" in text:
            return service
    if "anabranch" in text and " up " in text:
        return "supervisor"
    return Path(words[0]).name or "other"


def exit_on_signals() -> None:
    """From now on SIGTERM and SIGHUP end this process as an exception does, so that what is
    measured is ended too; once is enough.
    """

    def leave(number: int, _frame: object) -> None:
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, leave)


def tree(root: int) -> dict[int, float]:
    """CPU seconds of ``root`` and of all processes below it."""
    parents: dict[int, list[int]] = {}
    cpu: dict[int, float] = {}
    # Names are wanted, not paths: this runs twice a second over all processes.
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (stat := _stat(int(name))) is not None:
            parents.setdefault(stat[0], []).append(int(name))
            cpu[int(name)] = stat[1]
    found: dict[int, float] = {}
    todo = [root]
    while todo:
        pid = todo.pop()
        if pid in cpu:
            found[pid] = cpu[pid]
            todo.extend(parents.get(pid, []))
    return found


def machine_cpu_s() -> float:
    """CPU seconds that all processes of the machine have used, the kernel's work for them
    included.
    """
    user, nice, system, _idle, _iowait, irq, softirq = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) * _TICK_S


def memory_mib(pid: int) -> tuple[float, float]:
    """(PSS, RSS) of a process; zeros when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0.0, 0.0
    values = {line.split(":")[0]: line.split()[1] for line in lines[1:] if ":" in line}
    return int(values.get("Pss", 0)) / 1024, int(values.get("Rss", 0)) / 1024


@dataclass(slots=True)
class Sampler:
    """Samples a tree in a thread until stopped."""

    root: int
    broker: int
    samples: list[Sample] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; the samples stay."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        kinds: dict[int, str] = {}
        count = 0
        while not self._stop.wait(_SAMPLE_S):
            cpu: dict[str, float] = {}
            pss: dict[str, float] = {}
            rss = 0.0
            machine_s = machine_cpu_s()
            own_s = sum(
                tree(os.getpid()).values()
            )  # the benchmark, its generator, the broker and the measured system
            for pid, seconds in tree(self.root).items():
                kind = kinds.get(pid)
                if kind is None or count % 20 == 0:  # an exec changes what a process is
                    kind = kinds[pid] = name_of(pid)
                cpu[kind] = cpu.get(kind, 0.0) + seconds
                if count % _MEMORY_EVERY == 0:
                    own_pss, own_rss = memory_mib(pid)
                    pss[kind] = pss.get(kind, 0.0) + own_pss
                    rss += own_rss
            broker_s = sum(tree(self.broker).values())
            self.samples.append(Sample(time.time(), cpu, pss, rss, broker_s, machine_s - own_s))
            count += 1

    def beside_between(self, first_s: float, last_s: float) -> tuple[float, float]:
        """CPU seconds of (the broker, everything that is no part of the benchmark) between
        the samples nearest to two times.
        """
        if not self.samples:
            return 0.0, 0.0
        first = min(self.samples, key=lambda sample: abs(sample.at_s - first_s))
        last = min(self.samples, key=lambda sample: abs(sample.at_s - last_s))
        return last.broker_cpu_s - first.broker_cpu_s, max(
            0.0, last.others_cpu_s - first.others_cpu_s
        )

    def cpu_between(self, first_s: float, last_s: float) -> dict[str, float]:
        """CPU seconds by kind of process between the samples nearest to two times."""
        if not self.samples:
            return {}
        first = min(self.samples, key=lambda sample: abs(sample.at_s - first_s))
        last = min(self.samples, key=lambda sample: abs(sample.at_s - last_s))
        return {
            kind: round(seconds - first.cpu_s.get(kind, 0.0), 2)
            for kind, seconds in last.cpu_s.items()
        }

    def peak_mib(self, first_s: float, last_s: float) -> tuple[float, float]:
        """(PSS, RSS) of the whole tree at their highest between two times."""
        inside = [s for s in self.samples if first_s - 3 <= s.at_s <= last_s + 3 and s.pss_mib]
        return max((sum(s.pss_mib.values()) for s in inside), default=0.0), max(
            (s.rss_mib for s in inside), default=0.0
        )
