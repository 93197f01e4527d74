"""Run of Nexmark's queries by several systems on one machine, one after the other.

    make nexmark
    make nexmark ARGS="--queries q5,q7 --events 1000000"

Each session has topics of its own with the same records. The system is warm: it has answered the
first events when the rest becomes readable in one instant. Exit code: 0 all answers are right, 1
some are not or a system failed, 2 the command line is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.protocol.errors import AnabranchError
from benchmarks.machine import commit, machine
from benchmarks.nexmark import generator, report
from benchmarks.nexmark.generator import Plan, generate
from benchmarks.nexmark.oracle import ORACLES
from benchmarks.nexmark.session import Figures, Input, run_session
from benchmarks.nexmark.systems import SYSTEMS, System
from benchmarks.processes import exit_on_signals

_START_MS: Final = 1_700_000_040_000
_PAGE: Final = Path(__file__).parents[2] / "docs/experiments/nexmark.md"
_BROKER_MIB: Final = 768
_WARM_UP_MIN: Final = 150_000
"""Number of events in which every query has an answer: its first window, or what joins, is over."""


@dataclass(frozen=True, slots=True)
class Options:
    """Parameters of a run."""

    queries: tuple[str, ...]
    systems: tuple[System, ...]
    events: int
    warm_up: int
    runs: int
    seed: int
    deadline_s: float
    page: Path | None


def _chosen(text: str, of: Sequence[str], parser: argparse.ArgumentParser) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in of]:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(of)}")
    return names


def parse(arguments: Sequence[str] | None) -> Options:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="make nexmark", description="Runs Nexmark's queries.")
    parser.add_argument("--queries", default=",".join(ORACLES), help="such as q5,q7 (default all)")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="such as anabranch,pyspark")
    parser.add_argument("--events", type=int, default=1_000_000, help="measured events")
    parser.add_argument("--warm-up", type=int, default=200_000, help="events before these")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--deadline", type=float, default=180.0, help="seconds without any answer (default 180)"
    )
    parser.add_argument("--no-page", action="store_true", help="leave docs/experiments as it is")
    given = parser.parse_args(arguments)
    if given.events < 1 or given.runs < 1 or given.warm_up < _WARM_UP_MIN:
        parser.error(f"--events and --runs are at least 1, --warm-up {_WARM_UP_MIN}")
    return Options(
        _chosen(given.queries, tuple(ORACLES), parser),
        tuple(each for each in SYSTEMS if each in _chosen(given.systems, SYSTEMS, parser)),
        given.events,
        given.warm_up,
        given.runs,
        given.seed,
        given.deadline,
        None if given.no_page else _PAGE,
    )


def heading(options: Options, figures: Sequence[Figures]) -> list[str]:
    """Return the lines that say what the table is of."""
    loads = [each.load for each in figures]
    least, most = min(loads, default=0), max(loads, default=0)
    at = f"{datetime.now(UTC):%Y-%m-%d}, `{commit()}`"
    sizes = f"{options.events} events behind {options.warm_up} of the warm-up"
    stream = f"generator {generator.VERSION}, seed {options.seed}"
    return [
        f"{at}, {machine()}; load average {least:.0f} to {most:.0f}.",
        f"{sizes}, {stream}; sessions of each system: {options.runs}.",
        "",
    ]


def run(options: Options, folder: Path) -> int:
    """Run all sessions. Return the exit code."""
    plan = Plan(options.warm_up + options.events, _START_MS, seed=options.seed)
    given = Input.of(plan, options.warm_up, generate(plan))
    expected = {query: ORACLES[query](given.events) for query in options.queries}
    figures: list[Figures] = []
    failed = 0
    kafka = EmbeddedKafka(folder / "kafka", heap_mib=_BROKER_MIB)
    kafka.start()
    try:
        for number in range(options.runs):
            for query in options.queries:
                for system in options.systems:
                    name = f"nexmark-{query}-{system}-{number}"
                    try:
                        figure = run_session(
                            system,
                            query,
                            name,
                            given,
                            expected[query],
                            kafka,
                            folder / name,
                            options.deadline_s,
                        )
                    except AnabranchError as error:
                        failed += 1
                        print(f"{query} {system}: {error}", file=sys.stderr, flush=True)
                        continue
                    figures.append(figure)
                    verdict = figure.verdict
                    print(
                        f"{query} {system}: {figure.seconds:.1f} s, {figure.cpu_s:.1f} CPU s,"
                        f" {figure.per_core:.0f} events/s per core, {verdict.expected} answers,"
                        f" {verdict.missing} missing, {verdict.extra} extra {verdict.example}",
                        flush=True,
                    )
                    if options.page is not None:
                        text = [*heading(options, figures), *report.table(figures)]
                        report.write(options.page, text)
    finally:
        kafka.stop()
    print("\n".join([*heading(options, figures), *report.table(figures)]))
    return 1 if failed or any(not each.verdict.is_right for each in figures) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for. Return the exit code."""
    options = parse(arguments)
    exit_on_signals()
    folder = Path(tempfile.mkdtemp(prefix="nexmark-"))
    code = run(options, folder)
    print(f"logs: {folder}")
    return code


if __name__ == "__main__":
    sys.exit(main())
