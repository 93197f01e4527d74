"""Measurement of an overloaded stage: ``python -m experiments.overload``, to
docs/experiments/overload.md.

First the rules in virtual time (``experiments.overload.virtual``), then real runs. Each of these is
a deployment of its own, with a real broker and Spark. A stage whose function takes 4 ms for each
row gets about half of what it can process, then twice as much for a minute, then half again, until
all is corrected. In the last run the scaler may split it, and the rush is smaller and longer.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.machine import machine
from experiments.overload import virtual
from experiments.overload.deployments import SHED, one_stage, scaled_stage, two_stages
from experiments.overload.report import plots, tables, virtual_plots, virtual_tables
from experiments.overload.rush import Course, Outcome, Rush
from experiments.pages import write_page

PAGE: Final = Path("docs/experiments/overload.md")
COURSE: Final = Course(calm=110, rush=440, before_s=20, rush_s=60)
HALVES: Final = Course(calm=55, rush=220, before_s=20, rush_s=60, calm_s=300, lull=5)
"""Course of two stages, each of which gets all rows. Four queries, whose batches have a fixed cost,
leave corrections so little of half a load that these end in a lull.
"""
SCALED: Final = Course(calm=55, rush=240, before_s=40, rush_s=240)
"""Course of a stage that the scaler splits. Before the rush it keeps up easily, for so long that
Java is warm. In the rush come more rows than it can process in batches of a second, and two thirds
of what its halves can, for longer than a split takes and the halves need to catch up.
"""
_COURSES: Final = {**dict.fromkeys(SHED, COURSE), "two": HALVES, "scaled": SCALED}
"""Course of each run, by its name."""
_FILES: Final = {"two": two_stages, "scaled": scaled_stage}
"""Function that makes the pipeline file of a run, if it is not that of one stage."""


def _measure(run: str) -> list[Outcome]:
    """Return the outcomes of one run, one for each output."""

    def say(text: str) -> None:
        sys.stdout.write(f"{run}: {text}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="anabranch-overload-") as name:
        folder = Path(name)
        path = _FILES[run](folder) if run in _FILES else one_stage(folder, run)
        return Rush(path, folder, say).run(_COURSES[run], lambda *_: None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--virtual", action="store_true", help="only the figures in virtual time")
    parser.add_argument("--run", action="append", choices=_COURSES, help="only these runs")
    parser.add_argument(
        "--results", type=Path, help="folder of results: adds to those of earlier calls"
    )
    parser.add_argument("--commit", default="working tree", help="what the page says was measured")
    return parser.parse_args()


def main() -> int:
    """Measure, then write the page and its plots. Return 1 if a corrected result is wrong."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as name:
        results = arguments.results or Path(name)
        results.mkdir(parents=True, exist_ok=True)
        for run in () if arguments.virtual else arguments.run or _COURSES:
            found = [asdict(each) for each in _measure(run)]
            (results / f"{run}.json").write_text(json.dumps(found))
            for each in found:
                figures = {name: at for name, at in each.items() if not isinstance(at, tuple)}
                sys.stdout.write(f"{run}: {figures}\n")
        outcomes = {
            run: [Outcome(**each) for each in json.loads((results / f"{run}.json").read_text())]
            for run in _COURSES
            if (results / f"{run}.json").is_file()
        }
    one = [virtual.one("off", sheds=False), virtual.one("rows, keys or transform", sheds=True)]
    two = {
        "each by its own delay": virtual.two(chooses=False),
        "the cheaper one": virtual.two(chooses=True),
    }
    day = time.strftime("%Y-%m-%d", time.gmtime())
    measured = f"{day}, `{arguments.commit}`, {machine()}."
    write_page(
        PAGE,
        virtual_tables(one, two) | tables(outcomes, COURSE, measured),
        virtual_plots(one, two) | plots(outcomes),
    )
    return int(any(each.wrong for found in outcomes.values() for each in found))


if __name__ == "__main__":
    sys.exit(main())
