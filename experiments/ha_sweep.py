"""Sweep of the measurements of ``experiments.ha`` over rate, window and the interval between copies
of a checkpoint (Hwang et al., ICDE 2005): ``python -m experiments.ha_sweep``, to
experiments/HA_SWEEP.md.

One of the three is varied at a time, the others stay as in HA.md. Copies of a checkpoint are made
in ``ha: passive`` alone, so their interval is varied there alone. Each session has a broker of its
own, and is added to the results as soon as it has ended; a session that is in them is not run
again, so a sweep that was interrupted continues. It needs an idle machine, four minutes for each
session, and two hours for one run of all 28.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Final

from anabranch.local.embedded_kafka import EmbeddedKafka
from benchmarks.machine import machine
from benchmarks.processes import exit_on_signals
from experiments.ha import MODES, RESTART_S, Point, Row, Session
from experiments.pages import table

RATES: Final = (1_000, 4_000, 16_000)
WINDOWS_S: Final = (2, 10, 30)
COPIES_S: Final = (1.0, 5.0, 15.0, 30.0)
COPYING: Final = "passive, replicas: 2"
"""The only mode that copies checkpoints."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One session: its mode, its point, and what it gave."""

    mode: str
    point: Point
    row: Row


@dataclass(frozen=True, slots=True)
class Axis:
    """One quantity that is varied."""

    title: str
    points: tuple[tuple[str, Point], ...]
    """Value as shown, and the point."""
    modes: tuple[str, ...]


def axes(*, dry: bool) -> list[Axis]:
    """Return what is varied. ``dry``: one small value of each, for a try that the script runs."""
    usual = Point(steady_s=2.0, settled_s=4.0) if dry else Point()
    values = 1 if dry else None
    return [
        Axis(
            "Rate, records per second",
            tuple((f"{rate}", replace(usual, rate=rate)) for rate in RATES[:values]),
            tuple(MODES),
        ),
        Axis(
            "Window",
            tuple(
                (f"{window_s} s", replace(usual, window_s=window_s))
                for window_s in WINDOWS_S[:values]
            ),
            tuple(MODES),
        ),
        Axis(
            "Interval between copies of the checkpoint",
            tuple(
                (f"{every_s:g} s", replace(usual, copy_every_s=every_s))
                for every_s in COPIES_S[:values]
            ),
            (COPYING,),
        ),
    ]


def sessions(chosen: Sequence[Axis], modes: Sequence[str]) -> Iterator[tuple[str, Point]]:
    """Yield each session once, though several axes share a point."""
    yield from dict.fromkeys(
        (mode, point)
        for axis in chosen
        for _, point in axis.points
        for mode in axis.modes
        if mode in modes
    )


def report(measured: Sequence[Measured], chosen: Sequence[Axis]) -> str:
    """Return the page."""
    lines = [
        "# High availability against rate, window and checkpoint interval",
        "",
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, `make bench-ha-sweep`, {machine()}.",
        "What is measured is in [HA.md](HA.md); what is not varied is as there. Means of the runs.",
        f"The killed process is started again after {RESTART_S} s.",
        "",
    ]
    for axis in chosen:
        rows = []
        for mode in axis.modes:
            for value, point in axis.points:
                found = [each.row for each in measured if (each.mode, each.point) == (mode, point)]
                if found:
                    rows.append([mode, value, *_cells(found)])
        head = ["`ha`", axis.title, "runs", "CPU s per million records", "recovery after SIGKILL"]
        head += ["CPU s until then", "after loss of the disk", "rows made again", "wrong"]
        head.append("lost, not given up")
        lines += [f"## {axis.title}", "", table(head, rows), ""]
    return "\n".join(lines)


def _cells(found: Sequence[Row]) -> list[str]:
    """Return the figures of the runs of one session."""
    return [
        str(len(found)),
        f"{mean(row.cpu_s_per_million for row in found):.0f}",
        f"{mean(row.kill_s for row in found):.1f} s",
        f"{mean(row.kill_cpu_s for row in found):.1f}",
        f"{mean(row.disk_s for row in found):.1f} s",
        f"{mean(row.again for row in found):.0%}",
        str(sum(row.wrong for row in found)),
        str(sum(row.lost - row.given_up for row in found)),
    ]


def main(arguments: Sequence[str]) -> int:
    """Run the sessions that are not in the results yet, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m experiments.ha_sweep", description=__doc__)
    parser.add_argument(
        "--mode", action="append", choices=MODES, help="only this one; may be given several times"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each session")
    parser.add_argument("--dry", action="store_true", help="one small value of each, briefly")
    folder = Path(tempfile.gettempdir())
    parser.add_argument("--results", type=Path, default=folder / "anabranch-ha-sweep.json")
    parser.add_argument("--report", type=Path, default=Path(__file__).with_name("HA_SWEEP.md"))
    given = parser.parse_args(arguments)
    exit_on_signals()
    chosen, measured = axes(dry=given.dry), read(given.results)
    for number in range(given.runs):
        # Runs of a session are apart in time, so that a slow hour of the machine hits all.
        for mode, point in sessions(chosen, given.mode or list(MODES)):
            done = sum((each.mode, each.point) == (mode, point) for each in measured)
            if done <= number:
                measured.append(Measured(mode, point, measure(mode, point)))
                print(measured[-1], flush=True)
                given.results.write_text(json.dumps([asdict(each) for each in measured]))
                given.report.write_text(report(measured, chosen))
    given.report.write_text(report(measured, chosen))
    return 0


def measure(mode: str, point: Point) -> Row:
    """Run one session on a broker of its own."""
    with tempfile.TemporaryDirectory() as folder:
        kafka = EmbeddedKafka(Path(folder) / "kafka")
        try:
            return Session(kafka.start(), mode, Path(folder) / "run", point).run()
        finally:
            kafka.stop(3.0)


def read(results: Path) -> list[Measured]:
    """Return the sessions of earlier calls."""
    if not results.exists():
        return []
    return [
        Measured(each["mode"], Point(**each["point"]), Row(**each["row"]))
        for each in json.loads(results.read_text())
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
