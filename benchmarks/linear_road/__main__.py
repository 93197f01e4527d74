"""Run of ``examples/linear_road``: border cases, then an input by the wall clock, both judged.

    make linear-road                                  # a hot quarter of an hour at L = 0.5
    make linear-road ARGS="--xways 2 --minutes 180"   # a full run: the only one that gives a rating
    make linear-road ARGS="--xways 0.5 --minutes 180 --last 15 --keep FOLDER"   # its peak: 30 min
    make linear-road ARGS="--fault cut --keep FOLDER"    # the source is cut off for 20 s meanwhile
    make linear-road ARGS="--form relational --no-borders"   # the same as windows and joins
    make linear-road ARGS="--nodes 2 --node-core 0.33 --no-borders"   # each a third of a core

With ``--keep`` the folder has the input, the answers, ``verdict.json`` and ``report.md``.

Exit code: 0 every answer of both runs is right, there once, and in time; 1 not; 2 not judged. With
a fault lateness is reported, not judged, and all that was tentative must have been corrected.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import polars as pl
from confluent_kafka.admin import AdminClient

from anabranch.local.deployment import PACE, spark_settings
from benchmarks.held_cores import HoldError, cores
from benchmarks.linear_road import generator
from benchmarks.linear_road.answers import KINDS, Answers, read
from benchmarks.linear_road.faults import LASTS_S, Fault, Injection, Kind, prepare
from benchmarks.linear_road.feeder import HISTORY_TOPIC, TRAFFIC_TOPIC, Fed, Feeder
from benchmarks.linear_road.generator import Mode, Plan, generate, half_xways
from benchmarks.linear_road.nodes import PLACEMENTS, Held, NodeHolder, Nodes
from benchmarks.linear_road.receiver import Receiver
from benchmarks.linear_road.recovery import Recovered, Window, recoveries
from benchmarks.linear_road.report import FAULT_TITLE, report
from benchmarks.linear_road.stream import Expected, World
from benchmarks.linear_road.validator import Judging, OraclesDifferError, Verdict, judge, truth
from benchmarks.machine import commit, machine
from demo.deployment import Deployment, DeploymentError, copy_pipeline
from demo.process_tree import TreeMeter, busy_s

_ROOT: Final = Path(__file__).parents[2]
_FULL_MINUTES: Final = 180
_READY_S: Final = 300.0
_SETTLE_S: Final = 3.0
"""Time after the last expected answer in which a further one would still be found, in seconds."""


@dataclass(frozen=True, slots=True)
class Form:
    """Pipeline that computes the answers."""

    pipeline: str
    """Path of its file, from the repository's root."""
    align_ms: int
    """Unit of the clock with which a run begins, in ms: the longest window of the pipeline whose
    bounds must be those of the run.
    """

    @property
    def path(self) -> Path:
        """Path of its file."""
        return _ROOT / self.pipeline


FORMS: Final = {
    "state": Form("examples/linear_road/pipeline.yaml", 1_000),
    "relational": Form("benchmarks/linear_road/relational/pipeline.yaml", 60_000),
}
"""Forms of the pipeline by the name that ``--form`` takes; the first one is the default."""


@dataclass(frozen=True, slots=True)
class Options:
    """Parameters of the run by the clock."""

    plan: Plan
    last: int
    """Minutes at the end that are fed by the clock; the others are a backlog."""
    lead_s: int
    """Time for the backlog to be drained before the first paced second, in seconds."""
    drain_deadline_s: float
    """Time without any new answer after which a run is over, in seconds."""
    borders: bool
    folder: Path | None
    fault: Fault | None = None
    form: Form = FORMS["state"]
    nodes: Nodes | None = None
    """Nodes on which the stages are placed; None: as the example's file places them."""

    @property
    def judged_s(self) -> int:
        """First second of the run whose answers have a deadline."""
        return self.backlog_s + (0 if self.nodes is None else self.nodes.free_s)

    @property
    def backlog_s(self) -> int:
        """Length of the backlog, in seconds of the run."""
        return (self.plan.minutes - self.last) * 60

    def label(self, verdict: Verdict) -> str:
        """Say what a run with this verdict may be called."""
        on = "" if self.nodes is None else f" on {self.nodes.in_words()}"
        what = f"{self.plan.minutes} {self.plan.mode.value} minutes at L = {self._xways:g}"
        judged = f"{(self.plan.minutes * 60 - self.judged_s) / 60:g}"
        paced = f", the last {judged} of them by the clock{on}" if self.judged_s else on
        if self.fault is not None:
            right = "each answer right and there once" if verdict.is_right else "not right"
            return (
                f"{right}, {self.fault.in_words()} ({what}{paced}): lateness not judged, no rating"
            )
        if not verdict.is_valid:
            return "not valid: no rating"
        xways = self._xways
        if self.plan.mode is not Mode.PLAIN or self.plan.minutes != _FULL_MINUTES:
            return f"valid for {what}{paced}: not an L-rating"
        if self.judged_s:
            return (
                f"valid for the last {judged} of {_FULL_MINUTES} minutes at L = {xways:g}{on},"
                " the first of which were drained as a backlog: not an L-rating"
            )
        return f"L-rating: at least {xways:g}{on}"

    @property
    def _xways(self) -> float:
        return self.plan.half_xways / 2


class RunError(Exception):
    """Raised when a run cannot be judged; the text says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Verdict of a run, and the figures of its feeder and of the processors."""

    verdict: Verdict
    fed: Fed
    unanswered_s: int | None
    """Seconds at the end of the backlog without an answer when the paced part began."""
    drained_s: float | None
    """Seconds from the first line to the last answer to the backlog; None without a backlog or an
    answer to it.
    """
    cpu_s: float
    """Processor seconds of the system and its broker, from the first line to the last answer."""
    others_cpu_s: float
    """Processor seconds of everything else on the machine in that time, feeder and receiver
    included.
    """
    seconds: float
    recovered: Recovered | None = None
    """Figures of the fault; None without one."""
    held: Held | None = None
    """Processor time of nodes that were held; None if none was."""

    @property
    def is_good(self) -> bool:
        """Whether all that was judged is as it must be."""
        if self.recovered is None:
            return self.verdict.is_valid
        return self.verdict.is_right and self.recovered.is_corrected


class Run:
    """Run of one input through a deployment of its own."""

    def __init__(
        self,
        folder: Path,
        form: Form,
        world: World,
        expected: Expected,
        nodes: Nodes | None = None,
    ) -> None:
        self._folder = folder
        self._form = form
        self._world = world
        self._expected = expected
        self._nodes = nodes

    def judged(
        self,
        *,
        backlog_s: int,
        lead_s: int,
        drain_deadline_s: float,
        judging: Judging,
        fault: Fault | None = None,
    ) -> Outcome:
        """Feed, receive and judge. ``fault`` happens in the part by the clock.

        Raises:
            DeploymentError: the deployment failed.
            HoldError: nodes cannot be held.
            KafkaException: the broker did.
        """
        pipeline = self._pipeline(fault)
        holder = NodeHolder(self._nodes)
        state_dir = self._folder / "state"
        deployment = Deployment(
            pipeline,
            state_dir,
            self._folder / "up.log",
            drills=fault is not None and fault.needs_links,
        )
        injection: Injection | None = None
        meter = TreeMeter(deployment.pid, sees_memory=False)
        try:
            # Samples must exist when the first line is fed: without one, all that the start took
            # would count as the run's.
            meter.start()
            deployment.wait_ready(_READY_S)
            holder.find(deployment.status)
            kafka = deployment.kafka()
            receiver = Receiver(kafka, self._folder / "received", reads_live=fault is not None)
            receiver.start()
            begun_s, machine_s, tree_s = time.monotonic(), busy_s(with_low=True), meter.processor_s
            begun_ms = now_ms = time.time_ns() // 1_000_000
            align_ms = self._form.align_ms
            earliest_ms = now_ms + (lead_s - backlog_s) * 1_000
            start_ms = (earliest_ms // align_ms + 1) * align_ms
            answered: list[int] = []

            def watch(second: int) -> None:
                if second >= backlog_s > 0 and not answered:
                    answered.append(min(receiver.newest_s, backlog_s - 1))
                if judging.deadlines_from_s is not None and second >= judging.deadlines_from_s:
                    holder.hold()
                if second % 60 == 0:
                    deployment.check_running()
                    _say(f"  minute {second // 60} fed, answers up to second {receiver.newest_s}")

            if fault is not None:
                due_ms = start_ms + (backlog_s + fault.after_s) * 1_000
                injection = Injection(fault, state_dir, due_ms)
                injection.start()
            feeder = Feeder(kafka, _partitions(kafka))
            fed = feeder.feed(self._world, start_ms, backlog_s, watch)
            holder.measure()
            self._drain(receiver, deployment, drain_deadline_s)
            seconds = time.monotonic() - begun_s
            cpu_s = meter.processor_s - tree_s
            others_s = busy_s(with_low=True) - machine_s - cpu_s
            receiver.stop()
        finally:
            if injection is not None:
                injection.stop()
            if meter.is_alive():
                meter.stop()
            holder.release()
            deployment.stop(meter.seen)
            holder.remove()
        output = self._folder / "output.csv"
        receiver.write(output, start_ms)
        answers = read(output)
        drained_ms = _last_answer_ms(answers, backlog_s)
        return Outcome(
            judge(self._expected, answers, judging),
            fed,
            backlog_s - 1 - answered[0] if answered else None,
            None if drained_ms is None else (start_ms + drained_ms - begun_ms) / 1_000,
            cpu_s,
            others_s,
            seconds,
            None
            if fault is None or injection is None
            else self._recovered(fault, injection, receiver, answers, start_ms, backlog_s),
            holder.held,
        )

    def _pipeline(self, fault: Fault | None) -> Path:
        """Return a copy of the form's file, with what a fault and the nodes need."""
        pipeline = copy_pipeline(self._form.path, self._folder / "pipeline", None)
        if fault is not None:
            prepare(pipeline, fault)
        if self._nodes is not None:
            self._nodes.prepare(pipeline)
        return pipeline

    def _recovered(
        self,
        fault: Fault,
        injection: Injection,
        receiver: Receiver,
        answers: Answers,
        start_ms: int,
        backlog_s: int,
    ) -> Recovered:
        """Return the figures of a fault that has happened in a run that began at ``start_ms``."""
        struck = injection.struck()
        window = Window(struck.begun_ms - start_ms, struck.ended_ms - start_ms)
        live = receiver.live.tables(start_ms)
        kinds = recoveries(self._expected, answers, live, backlog_s, window)
        return Recovered(fault.in_words(), struck.processes, window, kinds)

    def _drain(self, receiver: Receiver, deployment: Deployment, deadline_s: float) -> None:
        """Wait until as many answers are there as are expected and nothing is tentative, or no more
        come.
        """
        expected = self._expected
        wanted = [
            (0, expected.tolls.height),
            (1, expected.accidents.height),
            (2, expected.balances.height),
            (3, expected.expenditures.height),
        ]
        seen, end_s = -1, 0.0
        while not (receiver.has_answered(wanted) and receiver.live.is_corrected):
            total = sum(receiver.counts.values())
            if total != seen:
                seen, end_s = total, time.monotonic() + deadline_s
            if time.monotonic() > end_s:
                return
            deployment.check_running()
            time.sleep(0.1)
        time.sleep(_SETTLE_S)


def _last_answer_ms(answers: Answers, backlog_s: int) -> int | None:
    """Return the emit time of the last answer to the first ``backlog_s`` seconds, in ms since the
    run's beginning; None if there is none.
    """
    tables = [answers.table(kind).filter(pl.col("time") < backlog_s) for kind in KINDS]
    return max((int(each["emit_ms"].sort()[-1]) for each in tables if each.height), default=None)


def _partitions(kafka: str) -> dict[str, int]:
    topics = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=30).topics
    missing = {TRAFFIC_TOPIC, HISTORY_TOPIC} - set(topics)
    if missing:
        raise RunError(f"the broker has no topic {', '.join(sorted(missing))}")
    return {name: len(topics[name].partitions) for name in (TRAFFIC_TOPIC, HISTORY_TOPIC)}


def _say(text: str) -> None:
    print(text, flush=True)


def _prepared(plan: Plan) -> tuple[World, Expected]:
    begun_s = time.monotonic()
    world = generate(plan)
    expected = truth(world.stream, world.history)
    _say(
        f"{plan.mode.value}: {world.stream.height} lines, both oracles agree on"
        f" {expected.tolls.height} tolls, {expected.accidents.height} accident notifications,"
        f" {expected.balances.height} balances, {expected.expenditures.height} expenditures"
        f" ({time.monotonic() - begun_s:.0f} s)"
    )
    return world, expected


def _run_borders(options: Options, folder: Path) -> Outcome:
    world, expected = _prepared(Plan(mode=Mode.BORDER))
    run = Run(folder / "border", options.form, world, expected, options.nodes)
    return run.judged(
        backlog_s=int(world.stream["time"][-1]) + 1,
        lead_s=0,
        drain_deadline_s=options.drain_deadline_s,
        judging=Judging(None, is_strict=True),
    )


def claim(options: Options, world: World, outcome: Outcome) -> dict[str, object]:
    """Return what an honest claim names, besides the verdict."""
    plan = options.plan
    by_second = _by_second(world, options.judged_s)
    return {
        "claim": options.label(outcome.verdict),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "pipeline": options.form.pipeline,
        "generator": {
            "version": generator.VERSION,
            "seed": plan.seed,
            "mode": plan.mode.value,
            "sha256": world.digest(),
        },
        "L": plan.half_xways / 2,
        "minutes": plan.minutes,
        "minutes_by_the_clock": options.last,
        **_nodes_of(options, outcome),
        "lines": outcome.fed.lines,
        "lines_per_s_judged": {
            "mean": round(sum(by_second) / len(by_second), 1),
            "most": max(by_second),
        },
        "feeder_behind_max_ms": outcome.fed.behind_max_ms,
        "feeder_seconds_over_100_ms_behind": outcome.fed.seconds_behind,
        "backlog_s_unanswered_when_paced_part_began": outcome.unanswered_s,
        "backlog_drained_s": None if outcome.drained_s is None else round(outcome.drained_s, 1),
        "cpu_s": round(outcome.cpu_s, 1),
        "cpu_s_per_million_lines": round(outcome.cpu_s / outcome.fed.lines * 1e6, 1),
        "others_cpu_s": round(outcome.others_cpu_s, 1),
        "seconds": round(outcome.seconds, 1),
        "machine": machine(),
        "python": platform.python_version(),
        "cold_start": "processes were ready before the first line, nothing had run through them",
        "types": [0, 1, 2, 3],
        "faults": [] if options.fault is None else [options.fault.in_words()],
        **({} if options.fault is None else {"changed_for_the_fault": options.fault.changes()}),
        "repeats": 1,
    }


def _by_second(world: World, from_s: int) -> list[int]:
    """Return the number of lines in each second of the input from ``from_s`` on."""
    times = world.stream.filter(pl.col("time") >= from_s)["time"]
    counts = dict(times.value_counts().iter_rows())
    return [counts.get(second, 0) for second in range(from_s, int(world.stream["time"][-1]) + 1)]


def _nodes_of(options: Options, outcome: Outcome) -> dict[str, object]:
    """Return the facts about the nodes that the command line asked for; empty without any."""
    nodes = options.nodes
    if nodes is None:
        return {}
    placed = nodes.placement.nodes
    replicas = sum(len(each) for each in placed.values())
    return {
        "nodes": nodes.number,
        "node_cores": nodes.cores,
        "replicas_of_nodes": {node: " ".join(each) for node, each in placed.items()},
        "ms_between_batches": int(spark_settings(replicas)[PACE]),
        **({} if outcome.held is None else outcome.held.facts()),
    }


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="make linear-road", description="Runs Linear Road by the wall clock and judges it."
    )
    parser.add_argument(
        "--xways", type=half_xways, default=1, metavar="L", help="expressways (default 0.5)"
    )
    parser.add_argument("--minutes", type=int, help="length of the run (default 15)")
    parser.add_argument(
        "--last",
        type=int,
        metavar="MINUTES",
        help="feed only these minutes at the end by the clock, and what is before as a backlog"
        " (default: 3, with --minutes: all)",
    )
    parser.add_argument(
        "--mode",
        type=Mode,
        choices=[Mode.PLAIN, Mode.HOT, Mode.DIRTY],
        help="kind of traffic (default: plain from an hour on, else hot)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--lead",
        type=int,
        metavar="SECONDS",
        help="time to drain the backlog before the clock begins (default: 30, and 2 for each of"
        " its minutes and half expressways); the report says how long it took",
    )
    parser.add_argument(
        "--drain-deadline", type=float, default=60.0, help="seconds without any answer (default 60)"
    )
    parser.add_argument("--no-borders", action="store_true", help="leave out the border cases")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep input, output and logs")
    parser.add_argument(
        "--fault",
        type=Kind,
        choices=list(Kind),
        help="break something in the part by the clock: kill a node, cut the source or half of it"
        " off from the broker, pause the broker. Lateness is reported then, not judged",
    )
    parser.add_argument(
        "--at",
        type=int,
        metavar="SECOND",
        help="second of the part by the clock in which the fault begins (default 60)",
    )
    parser.add_argument(
        "--for",
        dest="lasts_s",
        type=int,
        metavar="SECONDS",
        help="length of the fault (default: 20 of a cut, 10 of a pause; a kill has none)",
    )
    parser.add_argument(
        "--standby", action="store_true", help="with --fault: each stage has a warm standby"
    )
    parser.add_argument(
        "--form",
        choices=list(FORMS),
        default="state",
        help="pipeline: with state of its own, or an experiment of windows and joins that is right"
        " only for plain and hot traffic",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        choices=list(PLACEMENTS),
        help="place the stages, or two shards of each, on so many nodes",
    )
    parser.add_argument(
        "--node-core",
        type=cores,
        metavar="CORES",
        help="with --nodes: hold each node to so much of a core, by a cgroup, from its second"
        " minute by the clock on; answers to these seconds have deadlines",
    )
    given = parser.parse_args(arguments)
    minutes = 15 if given.minutes is None else given.minutes
    last = given.last
    if last is None:
        last = 3 if given.minutes is None else minutes
    if not 0 < last <= minutes:
        parser.error(f"--last is from 1 to the {minutes} minutes of the run")
    lead_s = given.lead
    if lead_s is None:
        lead_s = 30 + 2 * (minutes - last) * given.xways if last < minutes else 2
    mode = given.mode or (Mode.PLAIN if minutes >= 60 else Mode.HOT)
    return Options(
        Plan(given.xways, minutes, given.seed, mode),
        last,
        lead_s,
        given.drain_deadline,
        not given.no_borders,
        given.keep,
        _fault(parser, given, last * 60),
        FORMS[given.form],
        _nodes(parser, given, last * 60),
    )


def _nodes(
    parser: argparse.ArgumentParser, given: argparse.Namespace, paced_s: int
) -> Nodes | None:
    """Return the nodes that the command line asks for."""
    if given.nodes is None:
        if given.node_core is not None:
            parser.error("--node-core goes with --nodes")
        return None
    if given.fault is not None or FORMS[given.form] is not FORMS["state"]:
        parser.error("--nodes goes neither with --fault nor with another --form")
    nodes = Nodes(given.nodes, given.node_core)
    if nodes.free_s >= paced_s:
        parser.error(f"nodes are held after {nodes.free_s} s by the clock: give --last more")
    return nodes


def _fault(
    parser: argparse.ArgumentParser, given: argparse.Namespace, paced_s: int
) -> Fault | None:
    """Return the fault that the command line asks for."""
    kind: Kind | None = given.fault
    if kind is None:
        if given.standby or given.at is not None or given.lasts_s is not None:
            parser.error("--at, --for and --standby go with --fault")
        return None
    after_s = 60 if given.at is None else given.at
    lasts_s = LASTS_S[kind] if given.lasts_s is None else given.lasts_s
    if (kind is Kind.KILL) is not (lasts_s == 0) or lasts_s < 0:
        parser.error("--for is the length of a cut or a pause, from 1 second on; a kill has none")
    if after_s < 0 or after_s + lasts_s >= paced_s:
        parser.error(f"the fault must be over within the {paced_s} seconds by the clock")
    return Fault(kind, after_s, lasts_s, given.standby)


def _run(options: Options, folder: Path) -> int:
    borders: Verdict | None = None
    if options.borders:
        borders = _run_borders(options, folder).verdict
        _say("\n".join(["", *borders.lines(), "(border cases)", ""]))
    world, expected = _prepared(options.plan)
    outcome = Run(folder / "clock", options.form, world, expected, options.nodes).judged(
        backlog_s=options.backlog_s,
        lead_s=options.lead_s,
        drain_deadline_s=options.drain_deadline_s,
        judging=Judging(options.judged_s, is_strict=True, judges_lateness=options.fault is None),
        fault=options.fault,
    )
    facts = claim(options, world, outcome)
    _say("\n".join(["", *outcome.verdict.lines(), ""]))
    _say("\n".join(f"{name}: {value}" for name, value in facts.items()))
    recovered = outcome.recovered
    write_verdict(folder, facts, outcome, borders)
    if recovered is not None:
        text = (folder / "report.md").read_text()
        _say(text[text.index(FAULT_TITLE) :])
    if options.folder is not None:
        world.write(options.folder)
        expected.write(options.folder / "expected")
    return 0 if outcome.is_good and (borders is None or borders.is_valid) else 1


def write_verdict(
    folder: Path, facts: dict[str, object], outcome: Outcome, borders: Verdict | None
) -> None:
    """Write ``verdict.json`` and ``report.md``: all that a run found, with what it rests on."""
    recovered = outcome.recovered
    found = {
        **facts,
        **({} if recovered is None else {"fault": recovered.as_dict()}),
        **({} if borders is None else {"borders": borders.as_dict()}),
        "verdict": outcome.verdict.as_dict(),
    }
    (folder / "verdict.json").write_text(json.dumps(found, indent=2) + "\n")
    (folder / "report.md").write_text(report(facts, outcome.verdict, recovered, borders))


def main(arguments: Sequence[str] | None = None, run: Callable[[Options, Path], int] = _run) -> int:
    """Run what the command line asks for. Return the exit code."""
    options = _parse(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="linear-road-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        code = run(options, folder)
    except (DeploymentError, HoldError, OraclesDifferError, RunError) as error:
        print(f"linear-road: not judged: {error}", file=sys.stderr)
        code = 2
    if code or options.folder is not None:
        _say(f"logs and answers: {folder}")
    else:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
