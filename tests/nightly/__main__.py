"""``make nightly``: every step to its end, whatever came of those before; its section of the
report is written after each.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.examples import VARIABLE
from nightly.report import Facts, Outcome, text

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "tests" / "nightly" / "evidence.md"
LOGS = ROOT / "artifacts" / "nightly"
MUTANT_SEEDS = 1_000


@dataclass(frozen=True)
class Step:
    """A command of the project, told as a person would give it, and what is run."""

    name: str
    title: str
    command: str
    arguments: tuple[str, ...]
    needs_path: bool = False
    """It finds its modules by the path, as ``make`` gives it."""
    alone: bool = False
    examples: int = 1
    """Times as many for each property."""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="nightly", description="What takes too long for `make test`, and a report of it."
    )
    parser.add_argument("--seeds", type=int, default=5_000, help="of the simulation (default 5000)")
    parser.add_argument("--runs", type=int, default=10, help="of chaos (default 10)")
    parser.add_argument("--moves", type=int, default=10, help="between two owners (default 10)")
    parser.add_argument("--minutes", type=float, default=3.0, help="of faults in each (default 3)")
    parser.add_argument(
        "--chaos-seed",
        type=int,
        default=int(time.time()) // 86_400,
        help="of the first of them, and of moves (default: another one each day)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2,
        help="processes at once, where nothing needs the machine for itself (default 2)",
    )
    parser.add_argument(
        "--only", help="steps by name, with commas; the report keeps what it has of the others"
    )
    parser.add_argument(
        "--append",
        action="store_true",
        help="keep what the report has of the steps that are run, too: they are added up",
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=REPORT,
        help="where to write it (default: tests/nightly/evidence.md)",
    )
    return parser.parse_args(arguments)


def steps(given: argparse.Namespace) -> list[Step]:
    """In the order of what fails first."""
    seeds, jobs = min(given.seeds, MUTANT_SEEDS), str(given.jobs)
    tests = ("pytest", "--quiet", "-m", "nightly and not cluster")
    every = [
        Step(
            "seeds",
            "Fresh seeds of the simulation",
            f"make simulation SEEDS={given.seeds} ARGS=--all",
            ("simulation.explore", "--seeds", str(given.seeds), "--jobs", jobs, "--all"),
            needs_path=True,
        ),
        Step(
            "participants",
            "Fresh seeds of several participants",
            f'make simulation SEEDS={given.seeds // 5} ARGS="--federation --all"',
            (
                "simulation.explore",
                *("--seeds", str(given.seeds // 5), "--jobs", jobs),
                *("--federation", "--all"),
            ),
            needs_path=True,
        ),
        Step(
            "properties",
            "Unit tests and properties, these with ten times the examples of `make test`; what a"
            " pipeline that stands still holds",
            f"{VARIABLE}=4 pytest tests/unit tests/properties tests/security/test_hostile_input.py"
            " tests/simulation/test_standstill.py",
            (
                "pytest",
                "--quiet",
                "tests/unit",
                "tests/properties",
                "tests/security/test_hostile_input.py",
                "tests/simulation/test_standstill.py",
                "--numprocesses",
                jobs,
                "--dist",
                "worksteal",
            ),
            examples=4,
        ),
        Step(
            "integration",
            "Every crash point, cut and zombie on a real broker",
            "pytest tests/integration -m 'nightly and not cluster'",
            (*tests, "tests/integration", "--numprocesses", jobs, "--dist", "loadfile"),
        ),
        Step(
            "spark",
            "Every operator, branch, crash and lost disk on real Spark; a whole pipeline on a"
            " secured broker",
            "pytest tests/spark tests/security -m 'nightly and not cluster'",
            (*tests, "tests/spark", "tests/security"),
        ),
        Step(
            "cluster",
            "The loss of one of three brokers; of a worker, the node and the master of a Spark"
            " cluster, with and without security on Kafka",
            "make cluster-test",
            ("pytest", "-qm", "cluster", "tests/integration", "tests/spark", "tests/security"),
        ),
        Step(
            "federation",
            "Three participants, of whom one goes away and comes back",
            "make demo-outage",
            ("examples.federation.demo",),
            needs_path=True,
            alone=True,
        ),
        Step(
            "market",
            "A stage that a partner runs during a rush, and that comes home",
            "make demo-federation",
            ("examples.market.demo",),
            needs_path=True,
            alone=True,
        ),
        Step(
            "overload",
            "A stage with twice the load that it can process, which sheds and corrects itself",
            "make demo-overload",
            ("experiments.overload.demo",),
            needs_path=True,
            alone=True,
        ),
        _moves(given),
        Step(
            "mutants",
            "Bugs planted on purpose, found",
            f"make mutants SEEDS={seeds}",
            ("simulation.mutants", "--seeds", str(seeds), "--jobs", jobs),
            needs_path=True,
        ),
        _chaos(given),
    ]
    names = given.only.split(",") if given.only else [step.name for step in every]
    if unknown := set(names) - {step.name for step in every}:
        raise SystemExit(
            f"there is no step {', '.join(sorted(unknown))}; there are"
            f" {', '.join(step.name for step in every)}"
        )
    return [step for step in every if step.name in names]


def _moves(given: argparse.Namespace) -> Step:
    return Step(
        "moves",
        "A stage moves between two owners, and in each movement a random party is killed",
        f'make moves ARGS="--moves {given.moves} --seed {given.chaos_seed}"',
        ("moves", "--moves", str(given.moves), "--seed", str(given.chaos_seed)),
        needs_path=True,
    )


def _chaos(given: argparse.Namespace) -> Step:
    return Step(
        "chaos",
        "Runs of real processes under faults, clean",
        f"make chaos MINUTES={given.minutes:g} RUNS={given.runs} SEED={given.chaos_seed}",
        (
            "chaos",
            "--minutes",
            f"{given.minutes:g}",
            "--runs",
            str(given.runs),
            "--seed",
            str(given.chaos_seed),
        ),
        needs_path=True,
    )


def run(step: Step) -> Outcome:
    """Its output is shown as it comes, and kept."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment[VARIABLE] = str(step.examples)
    if step.needs_path:
        environment["PYTHONPATH"] = os.pathsep.join(
            str(ROOT / folder) for folder in ("tests", "services")
        )
    print(f"\n==== {step.title}: {step.command}", flush=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    begun, lines = time.monotonic(), []
    with (LOGS / f"{step.name}.txt").open("w", encoding="utf-8") as kept:
        process = subprocess.Popen(
            [sys.executable, "-m", *step.arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            kept.write(line)
            print(line, end="", flush=True)
    return Outcome(
        step.title,
        step.command,
        process.wait(),
        "".join(lines),
        time.monotonic() - begun,
        facts(),
        step.alone,
    )


def facts() -> Facts:
    """Now and here."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", f":!{REPORT.relative_to(ROOT)}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return Facts(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        f"`{git('rev-parse', '--short=10', 'HEAD')}`{', changed' if changed else ''}",
        f"{os.cpu_count()} x {_processor()}, {memory:.0f} GiB, {platform.system()}, Python"
        f" {platform.python_version()}",
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all of all was good."""
    given = parse(arguments)
    outcomes: list[Outcome] = []
    titles = [step.title for step in steps(parse([]))]
    before = given.report.read_text(encoding="utf-8") if given.report.exists() else ""
    for step in steps(given):
        outcomes.append(run(step))
        page = text(before, outcomes, titles, append=given.append)
        given.report.write_text(page, encoding="utf-8")
    print()
    for outcome in outcomes:
        print(f"{outcome.title}: {outcome.row()}")
    print(f"{given.report}; what each step said: {LOGS}")
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
