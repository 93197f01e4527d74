"""Command line of the demo."""

from __future__ import annotations

import argparse
from pathlib import Path

from demo.job import Job

PIPELINE = Path(__file__).resolve().parents[1] / "examples" / "toll_road" / "pipeline.yaml"
AFTER_HEAL_S = 20.0
"""Duration of traffic after the cut is healed, in seconds, to show that all is as before."""


def _share(text: str) -> float:
    """Parse a share above 0."""
    if not 0 < (share := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share above 0 and up to 1")
    return share


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="demo", description="The toll road from end to end, compared with an oracle."
    )
    parser.add_argument(
        "--pipeline",
        type=Path,
        default=PIPELINE,
        help="pipeline.yaml (default) or with_notices.yaml",
    )
    parser.add_argument(
        "--rate", type=int, default=400, help="reports per second and expressway (default 400)"
    )
    parser.add_argument(
        "--duration",
        type=float,
        help=(
            f"seconds of traffic; goes on to the end of a window (default {AFTER_HEAL_S:g} after"
            " the heal; 40)"
        ),
    )
    parser.add_argument(
        "--cut",
        metavar="SERVICE/NAME",
        help="cut this off from Kafka (default: the last source, unless something is killed)",
    )
    parser.add_argument(
        "--cut-at",
        type=float,
        default=35.0,
        metavar="S",
        help="seconds after the start of the traffic (default 35)",
    )
    parser.add_argument(
        "--cut-for",
        type=float,
        default=20.0,
        metavar="S",
        help="for so many seconds; 0: no cut (default 20)",
    )
    parser.add_argument(
        "--replicas",
        type=int,
        help="replicas of the first stage (default: as the pipeline file says)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--bad-share",
        type=_share,
        default=0.005,
        help="share of records that are bad on purpose, above 0 (default 0.005)",
    )
    parser.add_argument(
        "--kill",
        action="append",
        default=[],
        metavar="SERVICE/NAME",
        help="SIGKILL this process during the run; repeatable",
    )
    parser.add_argument(
        "--kill-each", action="store_true", help="SIGKILL every service once during the run"
    )
    parser.add_argument(
        "--ready-deadline",
        type=float,
        default=600.0,
        metavar="S",
        help="how long to wait for the start; a process that ends early ends the wait",
    )
    parser.add_argument(
        "--drain-deadline",
        type=float,
        default=60.0,
        metavar="S",
        help="how long to wait for another of the last results",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome here as well")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the state, logs and truth of a run that went well, too",
    )
    return parser.parse_args(arguments)


def planned(options: argparse.Namespace, job: Job) -> tuple[str | None, float]:
    """Return the service that is cut off, or None, and the seconds of traffic.

    Without an explicit service, the last source is cut off if a live topic can show it and nothing
    is killed.
    """
    cut: str | None = options.cut or (
        None if options.kill or options.kill_each else f"ingestion/{job.sources[-1]}"
    )
    if not job.live or options.cut_for <= 0:
        cut = None
    return cut, float(
        options.duration
        or (40.0 if cut is None else options.cut_at + options.cut_for + AFTER_HEAL_S)
    )
