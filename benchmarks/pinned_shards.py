"""Shards of a source or an output, each a process on a core of its own (``taskset``), while they
drain a backlog and nothing else runs but the broker.

Where there are no more cores than shards the broker shares them, so look at records per second of a
shard's processor time: more cores give as many times more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from anabranch.local.embedded_kafka import EmbeddedKafka
from benchmarks.machine import machine
from benchmarks.processes import exit_on_signals, machine_cpu_s, tree

_JOBS: Final = Path(__file__).with_name("jobs")
_DRAINED_WITHIN_S: Final = 280.0


def options(name: str, records: int) -> argparse.ArgumentParser:
    """Return a parser with the options of all these benchmarks. ``records``: the default number of
    records.
    """
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--records", type=int, default=records)
    parser.add_argument("--shards", default="1,2")
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=Path(tempfile.gettempdir()) / f"anabranch-{name.replace('_', '-')}",
    )
    return parser


def measure(arguments: argparse.Namespace, drain: Callable[[Path, int], str]) -> None:
    """Print what ``drain`` says for each number of shards, in a folder that is empty."""
    exit_on_signals()
    print(machine())
    for shards in map(int, arguments.shards.split(",")):
        shutil.rmtree(arguments.work_dir, ignore_errors=True)
        arguments.work_dir.mkdir(parents=True)
        print(drain(arguments.work_dir, shards), flush=True)
    shutil.rmtree(arguments.work_dir, ignore_errors=True)


def job(folder: Path, name: str) -> Path:
    """Copy the jobs to ``folder`` and return the path of the requested pipeline file."""
    for path in _JOBS.glob("*"):
        if path.is_file():
            shutil.copy(path, folder)
    return folder / name


@contextmanager
def broker(folder: Path) -> Iterator[EmbeddedKafka]:
    """One that runs."""
    kafka = EmbeddedKafka(folder / "kafka")
    kafka.start()
    try:
        yield kafka
    finally:
        kafka.stop()


class Shards:
    """Processes that run. Use it as a context manager, which ends them."""

    def __init__(
        self, module: str, pipeline: Path, names: Iterable[str], kafka: EmbeddedKafka
    ) -> None:
        """Start ``python -m module`` for each of ``names``."""
        cores = sorted(os.sched_getaffinity(0))
        self._kafka = kafka
        self._running = [
            _start(module, pipeline, name, kafka.address, cores[index % len(cores)])
            for index, name in enumerate(names)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._running:
            each.send_signal(signal.SIGCONT)
            each.terminate()
        for each in self._running:
            each.wait()

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Wait; ``is_done`` takes its time."""
        deadline_s = time.monotonic() + _DRAINED_WITHIN_S
        while not is_done():
            if any(each.poll() is not None for each in self._running):
                raise SystemExit("a shard has ended: see its log in the work directory")
            if time.monotonic() > deadline_s:
                raise SystemExit("not drained in time")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """They stand still while the block runs."""
        for each in self._running:
            each.send_signal(signal.SIGSTOP)
        yield
        for each in self._running:
            each.send_signal(signal.SIGCONT)

    def used_s(self) -> list[float]:
        """Processor time of each."""
        return [sum(tree(each.pid).values()) for each in self._running]

    def broker_s(self) -> float:
        """Processor time of the broker."""
        return sum(tree(self._kafka.pid or 0).values())


class Use:
    """Use of processors since the object was created."""

    def __init__(self, shards: Shards, shards_before_s: list[float]) -> None:
        """``shards_before_s``: what the shards had used before the backlog was there."""
        self._shards = shards
        self._shards_s = shards_before_s
        self._broker_s = shards.broker_s()
        self._machine_s = machine_cpu_s()

    def line(self, records: int, what: str, seconds: float) -> str:
        """Return the figures as a line, once ``records`` of ``what`` are drained."""
        used_s = [
            now - before for now, before in zip(self._shards.used_s(), self._shards_s, strict=True)
        ]
        broker_s = self._shards.broker_s() - self._broker_s
        others_s = machine_cpu_s() - self._machine_s - sum(used_s) - broker_s
        per_core = [f"{records / len(used_s) / each / 1_000:.0f}" for each in used_s]
        return (
            f"{len(used_s)} shards: {records} {what} in {seconds:.1f} s,"
            f" {records / seconds / 1_000:.0f} k/s; processor time of the shards"
            f" {', '.join(f'{each:.2f}' for each in used_s)} s, so {', '.join(per_core)} k {what}"
            f" per second of a core; of the broker {broker_s:.1f} s, of all else {others_s:.1f} s"
        )


def _start(
    module: str, pipeline: Path, name: str, kafka: str, core: int
) -> subprocess.Popen[bytes]:
    state = pipeline.parent / name
    state.mkdir()
    command = ["taskset", "--cpu-list", str(core), sys.executable, "-m", module]
    command += ["--pipeline", str(pipeline), "--name", name, "--kafka", kafka]
    with (state / "log").open("wb") as output:
        return subprocess.Popen([*command, "--state-dir", str(state)], stdout=output, stderr=output)
