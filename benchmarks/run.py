"""``make bench``: the project beside plain PySpark and Flink SQL, on one machine in one run,
alternating.

Each session has a fresh broker, one system and one job, and three phases:

cold    a backlog is in the topic before the system is started; seconds from the start of its first
        process to the append of the last result, everything included (virtual machines, imports,
        planning).
warm    the system has done the cold backlog and waits; a second backlog was written meanwhile in an
        open transaction. Seconds from just before the commit that makes it readable to the append
        of the last result: first byte read to last result appended.
steady  5 000 records/s; the append time of each result minus the scheduled time of its record
        (windowed: minus the window's end).

Every phase's results are compared with those that polars computes. Writes RESULTS.md beside this
file after every session.

What was measured is also kept in raw form. ``--merge`` takes such files into the report, so that it
can be made in several calls, each with some of the systems, jobs, phases or runs: ``--runs 0
--merge FILE ...`` measures nothing and only writes it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from anabranch.protocol.errors import AnabranchError, ConfigurationError
from benchmarks.processes import exit_on_signals
from benchmarks.report import write_report
from benchmarks.session import Outcome, Plan, run_session
from benchmarks.systems import JOBS_OF, SYSTEMS
from benchmarks.workload import JOBS


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument(
        "--phases",
        nargs="+",
        choices=("cold", "warm", "steady"),
        default=["cold", "warm", "steady"],
    )
    parser.add_argument("--records", type=int, default=2_000_000, help="of each backlog")
    parser.add_argument("--rate", type=int, default=5_000, help="records/s of the steady load")
    parser.add_argument("--runs", type=int, default=3, help="0: only merge")
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        default=[],
        help="raw figures of earlier calls, to stand in the same report",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes and one run: does it work at all?"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(__file__).parent / "RESULTS.md",
        help="the report; raw figures go beside the logs",
    )
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=Path(tempfile.gettempdir()) / "anabranch-bench",
        help="logs, state, raw figures",
    )
    return parser.parse_args()


def _earlier(path: Path, plan: Plan) -> list[Outcome]:
    """Read the outcomes in a file of raw figures.

    Raises:
        ConfigurationError: they were measured with other sizes.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if (line["records"], line["rate"]) != (plan.records, plan.rate):
            message = (
                f"{path} has sessions of {line['records']} records and {line['rate']} records/s:"
                " give the same --records and --rate"
            )
            raise ConfigurationError(message)
    return [Outcome.of(line["outcome"]) for line in lines]


def main() -> int:
    """Run the benchmark. 0: all sessions ran and all results were right."""
    arguments = _arguments()
    exit_on_signals()
    plan = Plan(
        records=arguments.records,
        rate=arguments.rate,
        phases=tuple(p for p in ("cold", "warm", "steady") if p in arguments.phases),
    )
    runs = arguments.runs
    if arguments.quick:
        plan = replace(plan, records=min(plan.records, 200_000), warm_up_s=12.0, measured_s=21.0)
        runs = 1
    arguments.work_dir.mkdir(parents=True, exist_ok=True)
    raw = arguments.work_dir / f"outcomes-{time.strftime('%Y%m%dT%H%M%S')}.jsonl"
    options = [
        Path(word).name if "/" in word else word for word in sys.argv[1:]
    ]  # a report names no places of a machine
    outcomes = [outcome for path in arguments.merge for outcome in _earlier(path, plan)]
    write_report(arguments.output, outcomes, plan, options)
    for run in range(1, runs + 1):
        for job in arguments.jobs:
            for system in arguments.systems:
                if job not in JOBS_OF.get(system, JOBS):
                    continue
                print(f"run {run} of {runs}: {system} {job}", flush=True)
                try:
                    outcome = run_session(
                        system,
                        job,
                        plan,
                        arguments.work_dir / f"{run}-{job}-{system}",
                        lambda line: print(line, flush=True),
                    )
                except AnabranchError as error:
                    outcome = Outcome(system, job, error=str(error))
                    print(f"{system} {job}: {error}", file=sys.stderr, flush=True)
                outcomes.append(outcome)
                with raw.open("a") as file:
                    file.write(
                        json.dumps(
                            {"records": plan.records, "rate": plan.rate, "outcome": asdict(outcome)}
                        )
                        + "\n"
                    )
                write_report(arguments.output, outcomes, plan, options)
    print(f"report: {arguments.output}; raw figures: {raw}")
    return (
        0
        if all(not o.error and all(phase.right for phase in o.phases.values()) for o in outcomes)
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
