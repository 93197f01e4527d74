"""Demo of an overload: ``python -m experiments.overload.demo``, two to four minutes.

A toll road on real Kafka and Spark, whose stage takes 4 ms for each vehicle. The load rises to
about twice what the stage can process, and falls again. Exit code 0: new results came within their
bound throughout, they were marked as made from part of the rows and are what the rows give that the
stage keeps at the stated share, and the corrected topic is equal to an answer that was computed
without anabranch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from demo.deployment import DeploymentError
from experiments.overload.deployments import SHED, one_stage
from experiments.overload.rush import MAX_DELAY_MS, Course, Fault, Outcome, Rush

COURSE: Final = Course(calm=60, rush=440, before_s=10, rush_s=15)
_EACH_MS: Final = 3_000
"""Interval between two lines of the story, in ms."""


class Story:
    """Lines that say what happens, while it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun_s = time.monotonic()
        self._said_s = 0.0
        self._phase = ""

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        self._console.print(f"{time.monotonic() - self._begun_s:6.1f} s  {text}", highlight=False)

    def follow(self, rush: Rush, since_s: float) -> None:
        """Say what the output shows now, every few seconds. ``since_s``: since the begin of the
        rush; 0 before it.
        """
        rate = COURSE.calm if rush.traffic is None else rush.traffic.rows_per_s
        phase = self._phase_of(rate, since_s)
        if phase != self._phase:
            self._phase = phase
            self.say(f"[bold]{phase}[/bold]")
        if time.monotonic() - self._said_s < _EACH_MS / 1_000:
            return
        self._said_s = time.monotonic()
        (shown,) = rush.shown.values()
        newest_ms = max(shown.delays_ms, default=0)
        first = shown.first_of(newest_ms)
        if first is None:
            return
        kept = 100 - round(shown.shed[newest_ms] / 10)
        how = "stable" if not first.is_tentative else f"tentative, from {kept} % of the vehicles"
        corrected_s = (newest_ms - shown.upto_ms) / 1_000
        behind = f"; corrected results {corrected_s:.0f} s behind" if corrected_s > 1 else ""
        self.say(
            f"{rate:3} vehicles/s: the newest second came after"
            f" {shown.delays_ms[newest_ms] / 1_000:.1f} s, {how}{behind}"
        )

    @staticmethod
    def _phase_of(rate: int, since_s: float) -> str:
        if since_s == 0:
            return "calm: half of what the stage can process, or less"
        if rate == COURSE.rush:
            return "rush: twice as many vehicles as the stage can process"
        return "calm again: what was left out is processed"


def report(outcome: Outcome, shed: str, fault: Fault | None = None) -> tuple[Table, bool]:
    """Return the verdict as a table, and whether all is right. With a ``fault`` the delay is not
    judged: of a stage with one replica nothing comes while it restarts, and a cut source has a wait
    of its own.
    """
    bound_ms = outcome.usual_ms + MAX_DELAY_MS
    checks = [
        (
            "new results came in time",
            outcome.rush_ms <= bound_ms or fault is not None,
            f"at most {outcome.rush_ms / 1_000:.1f} s; bound {bound_ms / 1_000:.1f} s"
            + ("" if fault is None else ", not judged beside a fault"),
        ),
        (
            "they were marked",
            outcome.shed > 0,
            f"anabranch-shed: {outcome.shed:.0f} per mille left out in the rush, shed: {shed}",
        ),
        (
            "they are what the kept vehicles give",
            not outcome.unsound,
            "which ones are kept is for the stage's function to say"
            if outcome.unsound is None
            else f"{outcome.unsound} are not",
        ),
        (
            "all was corrected",
            outcome.wrong == 0,
            (
                f"{outcome.judged - outcome.wrong} of {outcome.judged} corrected results are those"
                f" of the oracle, {outcome.caught_up_s:.0f} s after the rush"
            ),
        ),
    ]
    table = Table(show_header=False)
    for what, is_right, figures in checks:
        table.add_row("[green]yes[/green]" if is_right else "[red]NO[/red]", what, figures)
    return table, all(is_right for _, is_right, _ in checks)


def main() -> int:
    """Run the demo. Return 0 only if all is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--shed",
        choices=list(SHED),
        default="rows",
        help="which rows the stage keeps; off: results come late",
    )
    parser.add_argument(
        "--fault",
        type=Fault,
        choices=list(Fault),
        help="what fails besides: the node in the rush or in the corrections, or the source",
    )
    options = parser.parse_args()
    shed, fault = options.shed, options.fault
    console = Console(soft_wrap=True)
    story = Story(console)
    with tempfile.TemporaryDirectory(prefix="anabranch-overload-") as name:
        folder = Path(name)
        try:
            (outcome,) = Rush(one_stage(folder, shed), folder, story.say).run(
                COURSE, story.follow, fault
            )
        except (DeploymentError, RuntimeError) as error:
            story.say(f"[red]{error}[/red]")
            return 1
    table, is_right = report(outcome, shed, fault)
    console.print(table)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
