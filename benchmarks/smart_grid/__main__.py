"""Run of ``examples/smart_grid``: full speed without shedding, then an overload with shedding.

    make smart-grid                                    # ten houses, a few minutes
    make smart-grid ARGS="--houses 40 --minutes 60"    # an hour of the whole challenge
    make smart-grid ARGS="--houses 40 --minutes 15"    # all houses, within twelve minutes

Exit code: 0 every corrected result of both runs is right and there once; 1 not; 2 not judged, also
where the overload was none: no live result lacks a reading.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from confluent_kafka.admin import AdminClient
from ruamel.yaml import YAML

from benchmarks.machine import machine
from benchmarks.smart_grid import generator
from benchmarks.smart_grid.feeder import TOPIC, Fed, Feeder
from benchmarks.smart_grid.generator import FIRST_S, HOUSES, Plan, World, digest
from benchmarks.smart_grid.oracle import Expected, Prediction, expected
from benchmarks.smart_grid.parts import Spent, edges_us, overload_factor, part_times, per_reading
from benchmarks.smart_grid.receiver import Receiver, Shown
from benchmarks.smart_grid.validator import Verdict, judge
from demo.deployment import Deployment, DeploymentError, copy_pipeline
from demo.process_tree import TreeMeter, busy_s

_PIPELINE: Final = Path(__file__).parents[2] / "examples/smart_grid/pipeline.yaml"
_READY_S: Final = 300.0
_SETTLE_S: Final = 3.0
"""Time after the last expected result in which a further one would still be found, in seconds."""
_CHALLENGE_READINGS: Final = 4_055_000_000
"""Readings of the challenge's month."""
_STEADY_SHARE: Final = 0.4
"""Rate before the overload, as a share of the rate without shedding."""
_WARM_S: Final = 60
"""Time at the steady rate before anything is measured, in seconds of the wall clock: the first
batches of a process are slow, and a stage compares its load with what its batches have cost.
"""
_PANE_S: Final = 30
_BURSTS_S: Final = 5.0
"""Shortest second half of a run, in seconds, of which a rate is computed: it has several batches.
"""
_NOT_JUDGED: Final = 2
"""Exit code of a run that says nothing about what it was to show."""


@dataclass(frozen=True, slots=True)
class Options:
    """Parameters of both runs."""

    plan: Plan
    rush_s: int
    """Length of the overload and of the steady time that is measured before it, in seconds of the
    wall clock.
    """
    factor: float | None
    """Rate of the overload, as a multiple of the rate without shedding in the second half of its
    run; None: as large as the rest of the machine can take (``benchmarks.smart_grid.parts``).
    """
    drain_deadline_s: float
    """Time without any new result after which a run is over, in seconds."""
    folder: Path | None


class RunError(Exception):
    """Raised when a run cannot be judged; the text says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Verdict and figures of a run."""

    verdict: Verdict
    fed: Fed
    truth: Expected
    first: dict[Prediction, Shown]
    seconds: float
    """Time from the first reading to the last corrected result, in seconds."""
    cpu_s: float
    others_cpu_s: float
    """Processor seconds of everything else on the machine in that time."""
    spent: Spent = field(default_factory=dict)
    """Processor time of each part for a reading, in microseconds."""
    came_s: dict[int, float] = field(default_factory=dict)
    """Wall clock, in s, at which the last prediction came of those due at each second of the
    input.
    """

    @property
    def warm_readings_per_s(self) -> float:
        """Readings processed per second in the second half of the run. Its first batches are slow,
        and a rate that has them is less than what a warm node can process.
        """
        if not self.came_s:
            return self.readings_per_s
        # Results come in bursts, one for each batch: what came with the first burst of the second
        # half was in work before, and says nothing about the time since then.
        first_s, newest_s = min(self.came_s.values()), max(self.came_s.values())
        middle_s = first_s + (newest_s - first_s) / 2
        begins_s = max(each for each in self.came_s.values() if each <= middle_s)
        known = max(second for second, at_s in self.came_s.items() if at_s <= begins_s)
        left = sum(second >= known for second in self.fed.written_s)
        share = left / max(1, len(self.fed.written_s))
        took_s = newest_s - begins_s
        is_known = took_s >= _BURSTS_S
        return max(self.readings_per_s, self.fed.readings * share / took_s if is_known else 0.0)

    @property
    def readings_per_s(self) -> float:
        """Readings processed per second, from the first reading to the last result."""
        return self.fed.readings / self.seconds


def write_pipeline(folder: Path, *, shed: bool) -> Path:
    """Copy the example. Without ``shed`` no stage may leave out rows, and there are no live topics
    for which it would.
    """
    copied = copy_pipeline(_PIPELINE, folder, None)
    if not shed:
        yaml = YAML()
        document = yaml.load(copied)
        del document["stages"]["panes"]["shed"]
        for output in document["outputs"].values():
            del output["live"]
        yaml.dump(document, copied)
    return copied


def _run(
    folder: Path,
    plan: Plan,
    options: Options,
    *,
    shed: bool,
    rate_of: Callable[[int], float] | None = None,
) -> Outcome:
    """Feed, receive and judge one input through a deployment of its own."""
    truth = expected(row for block in World(plan).blocks() for row in block.iter_rows())
    _say(
        f"  {len(truth.predictions)} predictions and {len(truth.shares)} shares of outliers are"
        " expected"
    )
    folder.mkdir(parents=True, exist_ok=True)
    pipeline = write_pipeline(folder / "pipeline", shed=shed)
    deployment = Deployment(pipeline, folder / "state", folder / "up.log")
    meter = TreeMeter(deployment.pid, sees_memory=False)
    try:
        # Samples must exist when the first reading is fed: without one, all that the start took
        # would count as the run's.
        meter.start()
        deployment.wait_ready(_READY_S)
        kafka = deployment.kafka()
        receiver = Receiver(kafka, live=shed)
        receiver.start()
        before = part_times(deployment.status())
        begun_s, machine_s, tree_s = time.time(), busy_s(with_low=True), meter.processor_s

        def watch(second: int) -> None:
            if second % 300 == 0:
                deployment.check_running()
                _say(f"  fed up to second {second - FIRST_S}, {receiver.received()[0]} predictions")

        fed = Feeder(kafka, _partitions(kafka)).feed(World(plan).blocks(), rate_of, watch)
        _say(f"  all fed after {fed.seconds:.0f} s")
        _drain(receiver, deployment, truth, options.drain_deadline_s)
        cpu_s = meter.processor_s - tree_s
        others_s = busy_s(with_low=True) - machine_s - cpu_s
        spent = per_reading(before, part_times(deployment.status()), fed.readings)
        receiver.stop()
    finally:
        if meter.is_alive():
            meter.stop()
        deployment.stop(meter.seen)
    verdict = judge(truth, receiver.predictions(), receiver.shares())
    seconds = receiver.newest_s - begun_s
    return Outcome(
        verdict, fed, truth, receiver.first, seconds, cpu_s, others_s, spent, receiver.came_s
    )


def _drain(receiver: Receiver, deployment: Deployment, truth: Expected, deadline_s: float) -> None:
    """Wait until as many results are there as are expected, or no more come."""
    seen, end_s = (-1, -1), 0.0
    while True:
        found = receiver.received()
        if found[0] >= len(truth.predictions) and found[1] >= len(truth.shares):
            time.sleep(_SETTLE_S)
            return
        if found != seen:
            seen, end_s = found, time.monotonic() + deadline_s
        if time.monotonic() > end_s:
            return
        deployment.check_running()
        time.sleep(0.1)


def _partitions(kafka: str) -> int:
    topics = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=30).topics
    if TOPIC not in topics:
        raise RunError(f"the broker has no topic {TOPIC}")
    return len(topics[TOPIC].partitions)


@dataclass(frozen=True, slots=True)
class Overload:
    """Latencies and errors of the first results on the live topic."""

    latencies_s: tuple[float, ...]
    """Time from the last reading of a prediction to the prediction, per prediction, in seconds."""
    errors: tuple[float, ...]
    """Relative errors of predictions that were made without some rows."""
    errors_mw: tuple[float, ...]
    shed_permille: int
    """Largest share that was left out."""
    unshown: int
    """Predictions that the live topic never showed."""


def overload(outcome: Outcome, since_s: int, until_s: int) -> Overload:
    """Judge what was shown first of the predictions due after ``since_s``, up to ``until_s``
    (seconds of the input).
    """
    latencies, errors, errors_mw, shed, unshown = [], [], [], 0, 0
    written_s = outcome.fed.written_s
    for name, load_mw in outcome.truth.predictions.items():
        if not since_s < name.due <= until_s:
            continue
        shown = outcome.first.get(name)
        if shown is None:
            unshown += 1
            continue
        last = name.due - 1  # a plug may have said nothing in the pane's last seconds
        while last not in written_s:
            last -= 1
        latencies.append(shown.received_s - written_s[last])
        if shown.shed_permille:
            shed = max(shed, shown.shed_permille)
            errors_mw.append(float(abs(shown.load_mw - load_mw)))
            if load_mw:
                errors.append(abs(shown.load_mw - load_mw) / load_mw)
    return Overload(tuple(latencies), tuple(errors), tuple(errors_mw), shed, unshown)


def quantiles(values: Sequence[float]) -> dict[str, float | None]:
    """Return median, 90th percentile and maximum; None if there are no values."""
    shares = {"p50": 0.5, "p90": 0.9, "max": 1.0}
    if not values:
        return dict.fromkeys(shares)
    return {name: round(float(np.quantile(values, share)), 4) for name, share in shares.items()}


def _exact(options: Options, folder: Path) -> tuple[Outcome, dict[str, Any]]:
    _say("full speed, without shedding")
    outcome = _run(folder / "exact", options.plan, options, shed=False)
    per_s = outcome.readings_per_s
    facts = {
        "readings": outcome.fed.readings,
        "seconds": round(outcome.seconds, 1),
        "readings_per_s": round(per_s),
        "readings_per_s_of_the_second_half": round(outcome.warm_readings_per_s),
        "cpu_s_per_million_readings": round(outcome.cpu_s / outcome.fed.readings * 1e6, 1),
        "cpu_us_per_reading": outcome.spent,
        "others_cpu_s": round(outcome.others_cpu_s, 1),
        "extrapolated_hours_for_the_month": round(_CHALLENGE_READINGS / per_s / 3_600, 1),
    }
    return outcome, facts


def _shed(
    options: Options, folder: Path, rate: float, rush_rate: float
) -> tuple[Outcome, dict[str, Any]]:
    """Run a steady time, whose first ``_WARM_S`` are not measured, then an overload of
    ``rush_rate`` readings per second. ``rate``: readings per second without shedding, in a whole
    run.
    """
    plan = options.plan
    per_s = World(Plan(plan.houses, 1, 1, plan.seed)).readings().height / 60
    warm_s = max(60, round(rate * _STEADY_SHARE * _WARM_S / per_s))
    steady_s = warm_s + max(60, round(rate * _STEADY_SHARE * options.rush_s / per_s))
    rush_s = max(60, round(rush_rate * options.rush_s / per_s))
    minutes = -(-(steady_s + rush_s) // 60)
    _say(
        f"overload: {rate * _STEADY_SHARE:.0f} readings/s for {_WARM_S + options.rush_s} s, then"
        f" {rush_rate:.0f} ({minutes} minutes of the input)"
    )
    end_of_steady = FIRST_S + steady_s

    def rate_of(second: int) -> float:
        return rate * _STEADY_SHARE if second < end_of_steady else rush_rate

    whole = Plan(plan.houses, 1, minutes, plan.seed)
    outcome = _run(folder / "overload", whole, options, shed=True, rate_of=rate_of)
    steady = overload(outcome, FIRST_S + warm_s, end_of_steady)
    rush = overload(outcome, end_of_steady + _PANE_S, FIRST_S + minutes * 60)
    facts = {
        "readings": outcome.fed.readings,
        "readings_per_s_steady": round(rate * _STEADY_SHARE),
        "readings_per_s_overload": round(rush_rate),
        "feeder_behind_max_s": round(outcome.fed.behind_max_s, 3),
        "latency_s_steady": quantiles(steady.latencies_s),
        "latency_s_overload": quantiles(rush.latencies_s),
        "shed_permille_max": max(steady.shed_permille, rush.shed_permille),
        "predictions_in_overload": len(rush.latencies_s) + rush.unshown,
        "never_on_the_live_topic": rush.unshown,
        "made_without_some_readings": len(rush.errors_mw),
        "relative_error": quantiles(rush.errors),
        "error_w": quantiles([mw / 1_000 for mw in rush.errors_mw]),
        "all_corrected_after_s": round(outcome.seconds - outcome.fed.seconds, 1),
        "cpu_us_per_reading": outcome.spent,
        "others_cpu_s": round(outcome.others_cpu_s, 1),
    }
    return outcome, facts


def _say(text: str) -> None:
    print(text, flush=True)


def _tell(title: str, verdict: Verdict, facts: dict[str, Any]) -> None:
    _say("\n".join(["", title, *verdict.lines()]))
    _say("\n".join([*(f"{name}: {value}" for name, value in facts.items()), ""]))


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="make smart-grid", description="Runs the smart grid's queries and judges each result."
    )
    parser.add_argument("--houses", type=int, default=10, help=f"1 to {HOUSES} (default 10)")
    parser.add_argument("--days", type=int, default=2, help="days with the same minutes (2)")
    parser.add_argument("--minutes", type=int, default=10, help="minutes of each day (10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--rush", type=int, default=60, metavar="SECONDS", help="length of the overload (60)"
    )
    parser.add_argument(
        "--factor",
        type=float,
        help="overload, in rates without shedding (as large as what is no stage can take)",
    )
    parser.add_argument(
        "--drain-deadline", type=float, default=90.0, help="seconds without any result (90)"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep verdict and logs")
    given = parser.parse_args(arguments)
    try:
        plan = Plan(given.houses, given.days, given.minutes, given.seed)
    except ValueError as error:
        parser.error(str(error))
    return Options(plan, given.rush, given.factor, given.drain_deadline, given.keep)


def run_both(options: Options, folder: Path) -> int:
    """Run and judge what ``options`` ask for. Return the exit code."""
    exact, exact_facts = _exact(options, folder)
    _tell("full speed, without shedding", exact.verdict, exact_facts)
    warm, cores = exact.warm_readings_per_s, os.cpu_count() or 1
    factor = options.factor or overload_factor(exact.spent, warm, cores)
    needed = edges_us(exact.spent) * warm * factor / 1e6
    _say(
        f"overload: {factor:.2f} times {warm:.0f} readings/s, for which what is no stage needs"
        f" {needed:.1f} of {cores} cores"
    )
    shed, shed_facts = _shed(options, folder, exact.readings_per_s, warm * factor)
    shed_facts["factor"] = round(factor, 2)
    shed_facts["cores_outside_of_the_stages"] = round(needed, 2)
    _tell("overload, with shedding", shed.verdict, shed_facts)
    plan = options.plan
    report = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "generator": {
            "version": generator.VERSION,
            "houses": plan.houses,
            "days": plan.days,
            "minutes": plan.minutes,
            "seed": plan.seed,
            "sha256": digest(World(plan).blocks()),
        },
        "machine": machine(),
        "full_speed": exact_facts,
        "overload": shed_facts,
        "valid": exact.verdict.is_valid and shed.verdict.is_valid,
    }
    text = json.dumps(report, indent=2)
    (folder / "verdict.json").write_text(text + "\n")
    _say(text)
    code = exit_code(is_valid=bool(report["valid"]), shed_permille=shed_facts["shed_permille_max"])
    if code == _NOT_JUDGED:
        _say("smart-grid: not judged: no live result lacks a reading, so nothing was overloaded")
    return code


def exit_code(*, is_valid: bool, shed_permille: int) -> int:
    """Return the exit code of both runs. ``shed_permille``: largest share that was left out."""
    if not is_valid:
        return 1
    return 0 if shed_permille else _NOT_JUDGED


def main(
    arguments: Sequence[str] | None = None, run: Callable[[Options, Path], int] = run_both
) -> int:
    """Run what the command line asks for. Return the exit code."""
    options = _parse(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="smart-grid-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        code = run(options, folder)
    except (DeploymentError, RunError) as error:
        print(f"smart-grid: not judged: {error}", file=sys.stderr)
        code = _NOT_JUDGED
    if code or options.folder is not None:
        _say(f"logs and verdict: {folder}")
    else:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
