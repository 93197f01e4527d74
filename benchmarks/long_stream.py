"""Does memory grow with the length of the stream? A long windowed run, with the PSS of each process
every second.

``python -m benchmarks.long_stream``: 5 million records at a steady pace (default 20 000/s, their
event time is the clock's) through the windowed job; prints, per process, the PSS at one fifth of
the run and at its end and the slope of a straight line through the samples of the last 80 %, in MiB
per million records; and compares the results with polars.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from anabranch.local.embedded_kafka import EmbeddedKafka
from benchmarks.broker import ResultReader, create_topics
from benchmarks.generator import times_of
from benchmarks.processes import exit_on_signals, memory_mib, name_of, tree
from benchmarks.systems import SYSTEMS, start
from benchmarks.workload import WINDOW_MS, compare, expected, parse, readings

_HEAD_START_S: Final = 8.0
_TAIL_S: Final = 8.0
_SETTLED: Final = 0.2
"""Part of the run that is left out: caches, compiled code and state fill up in it."""


def _watch(roots: dict[str, int], until_s: float) -> dict[str, list[tuple[float, float]]]:
    """(time, PSS in MiB) samples, one a second, of every process under ``roots``."""
    samples: dict[str, list[tuple[float, float]]] = {}
    names: dict[int, str] = {}
    while time.time() < until_s:
        for root_name, root in roots.items():
            for pid in tree(root):
                name = names.setdefault(pid, f"{root_name if pid == root else name_of(pid)} {pid}")
                pss = memory_mib(pid)[0]
                if pss:
                    samples.setdefault(name, []).append((time.time(), pss))
        time.sleep(1.0)
    return samples


def _print_slopes(
    samples: dict[str, list[tuple[float, float]]], start_s: float, end_s: float, rate: int
) -> float:
    """One line per process that lived through the last 80 %; the sum of the slopes."""
    total = 0.0
    print(
        f"{'process':34} {'at 20 %':>9} {'at end':>9} {'peak':>9}  slope, MiB per million records"
    )
    first_s = start_s + _SETTLED * (end_s - start_s)
    for name, points in sorted(samples.items(), key=lambda item: -item[1][-1][1]):
        settled = [(at_s, pss) for at_s, pss in points if first_s <= at_s <= end_s]
        if len(settled) < (end_s - first_s) / 4:  # short-lived: workers that come and go
            continue
        slope_mib_s = float(
            np.polyfit([at_s - start_s for at_s, _ in settled], [pss for _, pss in settled], 1)[0]
        )
        slope = slope_mib_s / rate * 1e6
        total += slope
        print(
            f"{name:34} {settled[0][1]:9.1f} {settled[-1][1]:9.1f}"
            f" {max(pss for _, pss in points):9.1f}  {slope:+.2f}"
        )
    print(f"{'all together':34} {'':9} {'':9} {'':9}  {total:+.2f}")
    return total


def main() -> int:
    """Run. 0: all results were right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", choices=SYSTEMS, default="anabranch-1")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rate", type=int, default=20_000, help="records/s")
    parser.add_argument(
        "--work-dir", type=Path, default=Path(tempfile.gettempdir()) / "anabranch-long-stream"
    )
    arguments = parser.parse_args()
    exit_on_signals()
    folder: Path = arguments.work_dir
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kafka = EmbeddedKafka(folder / "kafka")
    kafka.start()
    running = None
    try:
        create_topics(kafka.address)
        running = start(arguments.system, "windowed", kafka.address, folder)
        print(f"{arguments.system} ready after {running.await_ready():.1f} s", flush=True)
        seconds = arguments.records / arguments.rate
        start_s = time.time() + _HEAD_START_S
        command = [
            sys.executable,
            "-m",
            "benchmarks.generator",
            kafka.address,
            str(int(start_s * 1000)),
            str(arguments.rate),
            str(seconds),
        ]
        generator = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
            env=dict(os.environ),
        )
        try:
            samples = _watch(
                {"kafka": kafka.pid or 0, "anabranch up": running.pid}, start_s + seconds + _TAIL_S
            )
            generator.communicate(timeout=60)
        finally:
            generator.kill()
        running.check_alive()
        _print_slopes(samples, start_s, start_s + seconds, arguments.rate)
        reader = ResultReader(kafka.address)
        got = parse("windowed", reader.read_to_end().values)
        reader.close()
        frame = readings(times_of(int(start_s * 1000), arguments.rate, seconds))
        closed_ms = int(frame["time"][-1]) // WINDOW_MS * WINDOW_MS  # the last window stays open
        wanted = expected("windowed", frame.filter(frame["time"] < closed_ms))
        verdict = compare("windowed", wanted, got.filter(got["window_start"] < closed_ms))
        print(f"{frame.height} records; results: {verdict}")
    finally:
        if running is not None:
            running.stop()
        kafka.stop()
        shutil.rmtree(folder / "kafka", ignore_errors=True)
    return 0 if verdict.right else 1


if __name__ == "__main__":
    sys.exit(main())
