"""``python -m experiments.dpc``: the published experiments of DPC, in virtual time and on real
processes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.protocol.limits import BATCH_ROWS_MAX
from benchmarks.processes import exit_on_signals
from experiments.dpc.figures import in_words
from experiments.dpc.plan import EXPERIMENTS, Session, sessions, virtual_sessions
from experiments.dpc.report import rows, text, write_report
from experiments.dpc.results import SessionResult
from experiments.dpc.sessions import RunningSession
from experiments.dpc.sources import Withhold
from experiments.dpc.virtual import Costs, VirtualSession


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.dpc", description=__doc__)
    parser.add_argument(
        "--experiments", nargs="+", type=int, choices=list(EXPERIMENTS), default=list(EXPERIMENTS)
    )
    parser.add_argument("--sessions", nargs="+", help="only these of them, by name")
    parser.add_argument("--runs", type=int, default=1, help="of every session on real processes")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one failure of each kind and no chains: about four minutes instead of fifteen",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="the whole published grid of chains on real processes too: more than an hour",
    )
    parser.add_argument(
        "--simulate", action="store_true", help="virtual time alone: less than a minute"
    )
    parser.add_argument(
        "--load",
        type=float,
        default=0.5,
        help="experiment 5: part of the stage's measured capacity",
    )
    parser.add_argument(
        "--withhold",
        type=Withhold,
        choices=list(Withhold),
        default=Withhold.BOUNDARY,
        help="what a failure holds back",
    )
    parser.add_argument(
        "--batch-ms", type=float, help="virtual time: what a batch takes; as measured, or 150"
    )
    parser.add_argument(
        "--shared-cores",
        action="store_true",
        help="virtual time: all nodes on one machine of two cores",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="the report; RESULTS.md beside this module, with --simulate none",
    )
    parser.add_argument(
        "--add",
        nargs="+",
        type=Path,
        default=[],
        metavar="DIR",
        help="raw figures of earlier runs that go into the report too",
    )
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=Path(tempfile.gettempdir()) / "anabranch-dpc",
        help="logs, state, raw figures",
    )
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, flush=True)


def run_real(
    chosen: list[Session], runs: int, withhold: Withhold, folder: Path
) -> list[SessionResult]:
    """Every session ``runs`` times, one after the other, with one broker."""
    kafka, results = EmbeddedKafka(folder / "kafka"), list[SessionResult]()
    kafka.start()
    try:
        for run in range(1, runs + 1):
            for session in chosen:
                _say(
                    f"{session.name}, run {run} of {runs}: {session.nodes} node(s), max_delay"
                    f" {session.max_delay_ms} ms, {session.policy}"
                )
                place = folder / f"{session.name}-{run}"
                running = RunningSession(
                    session, kafka.address, kafka.pid or 0, place, withhold=withhold, say=_say
                )
                results.append(running.run())
                (place / "result.json").write_text(results[-1].to_json())
                _say(
                    f"  {results[-1].seconds:.0f} s; {results[-1].wrong} of {results[-1].compared}"
                    f" buckets wrong {results[-1].error}"
                )
    finally:
        kafka.stop()
        shutil.rmtree(folder / "kafka", ignore_errors=True)
    return results


def run_virtual(
    chosen: list[Session], costs: Costs, withhold: Withhold, folder: Path
) -> list[SessionResult]:
    """Every session in virtual time."""
    results = []
    for session in chosen:
        results.append(
            VirtualSession(
                session, folder / "virtual" / session.name, costs, withhold=withhold
            ).run()
        )
        _say(f"virtual time: {session.name} ({results[-1].seconds:.0f} s) {results[-1].error}")
        for figures in results[-1].failures:
            _say(f"  {in_words(figures)}")
    return results


def costs_of(results: list[SessionResult], batch_ms: float | None, *, is_shared: bool) -> Costs:
    """Return the costs of the engine in virtual time, as measured in sessions of one node on real
    processes.
    """
    costs = Costs(is_shared=is_shared)
    measured = [
        r.batch_ms for r in results if r.session.nodes == 1 and not r.session.load and r.batch_ms
    ]
    batch = batch_ms or (min(measured) if measured else costs.batch_ms)
    capacity = max((r.capacity for r in results), default=0)
    rows_ms = (
        max(0.0005, (1000 * BATCH_ROWS_MAX / capacity - batch) / BATCH_ROWS_MAX)
        if capacity
        else costs.rows_ms
    )
    return Costs(batch_ms=batch, rows_ms=rows_ms, is_shared=is_shared)


def without_places(arguments: list[str]) -> list[str]:
    """Return the arguments that say what was measured, without those that name places on this
    machine.
    """
    places = ("--work-dir", "--output", "--add")
    return [
        a
        for i, a in enumerate(arguments)
        if not a.startswith(places) and (i == 0 or arguments[i - 1] not in places)
    ]


def main() -> int:
    """Run. 0: all sessions ran and every stable result was right."""
    arguments = _arguments()
    exit_on_signals()
    wanted = set(arguments.experiments)
    folder = arguments.work_dir / time.strftime("%Y%m%dT%H%M%S")
    real: list[SessionResult] = []
    chosen = sessions(wanted, quick=arguments.quick, full=arguments.full, load=arguments.load)
    if not arguments.simulate:
        real = run_real(
            [s for s in chosen if s.name in (arguments.sessions or [s.name])],
            arguments.runs,
            arguments.withhold,
            folder,
        )
    earlier = [
        SessionResult.from_json(path.read_text())
        for place in arguments.add
        for path in sorted(place.glob("*/result.json"))
    ]
    real = [*(result for result in earlier if wanted & set(result.session.experiments)), *real]
    costs = costs_of(real, arguments.batch_ms, is_shared=arguments.shared_cores)
    simulated = [
        s
        for s in (chosen if arguments.quick else virtual_sessions(wanted, arguments.load))
        if s.name in (arguments.sessions or [s.name])
    ]
    virtual = run_virtual(simulated, costs, arguments.withhold, folder)
    print(text(rows(real, virtual)))
    output = arguments.output or (
        None if arguments.simulate else Path(__file__).parent / "RESULTS.md"
    )
    if output is not None:
        write_report(output, real, virtual, costs, without_places(sys.argv[1:]))
        print(f"report: {output}; raw figures: {folder}")
    return 0 if all(not r.error and not r.wrong for r in (*real, *virtual)) else 1


if __name__ == "__main__":
    sys.exit(main())
