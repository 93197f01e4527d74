"""One run: a deployment under load, a nemesis, then quiet, then judgement."""

from __future__ import annotations

import argparse
import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import polars as pl
from confluent_kafka import Message
from ruamel.yaml import YAML

from anabranch.codec import boundary_records
from anabranch.local import state_file
from anabranch.pipeline.file import load
from anabranch.protocol.log.records import LogEntry
from chaos import excuses, judgement
from chaos.allowed import ALLOWED
from chaos.complaints import Complaint, complaints
from chaos.excuses import EndsSeen
from chaos.judgement import Injected, Late, Recovery, Seen, Waits
from chaos.nemesis import Nemesis
from chaos.rate import NOT_JUDGED
from chaos.schedule import Fault, Kind, draw, kinds_of
from demo import consuming, oracle, tentative
from demo.comparing import (
    Answer,
    Comparison,
    Rejections,
    compare,
    compare_rejected,
    followed,
    percentile_ms,
)
from demo.consuming import received_ms
from demo.deployment import Deployment, DeploymentError, copy_pipeline, stopped
from demo.job import CLOSING_MS, Collected, Job, read_job
from demo.live import delays
from demo.machine_watch import MachineWatch
from demo.process_tree import TreeMeter
from demo.stalls import Apart, Stall, judged
from demo.traffic import Traffic, TrafficWriter, Truth, span
from experiments.overload.kept import kept_of
from harness.waiting import wait_until

T = TypeVar("T")
PIPELINE = Path(__file__).parents[2] / "examples" / "toll_road" / "pipeline.yaml"
SLOW_STAGES: Final = PIPELINE.parents[2] / "experiments" / "overload" / "slow_stages.py"
WINDOW_S = 2
"""Window of the statistics, in seconds: recovery cannot be seen any finer than results come."""
FREE_VEHICLES = 4
"""Number of vehicles in a segment without a toll: few, since little traffic comes in a short
window.
"""
WARM_S = 40.0
"""Traffic before anything is looked at: what just started is slow, the more so on few cores."""
CALM_S = 24.0
"""Traffic before the first fault, of which the later half says what is usual."""
END_S = 60.0
"""Traffic after the last fault: a replica that lost its disk with it starts, copies a peer's
checkpoint, and has to make buckets of its own before the traffic ends. Else it has nothing to
write, and whether it follows cannot be seen.
"""
STILL_S = 3.0
"""Nothing more comes when nothing came for so long."""
READY_S = 600.0
"""It starts without faults, however busy the machine; whether that may be judged is decided
later.
"""
_LOOK_S = 0.25


@dataclass(slots=True)
class Verdict:
    """All that a run found out. ``wrong``: what was promised and not kept, in words."""

    seed: int
    faults: list[Injected]
    left_out: int
    found: list[Recovery]
    usual_ms: list[int]
    records_in: int
    comparisons: dict[str, Comparison]
    rejections: Rejections
    repeats: dict[str, int]
    """Number of records that repeat another before a reader drops repetitions, by topic."""
    rejected_boundaries: dict[str, dict[str, int]]
    targets: list[str]
    too_slow: str
    """Why times could not be judged; empty: they were."""
    late: list[str]
    """Late results, in words, that are not judged: they overlap a stall of the machine, or it is
    ``too_slow``. Others are wrong.
    """
    stalled: Apart
    """Counts of late results: the number that stalls leave unjudged."""
    stalls: list[Stall]
    split: list[str] = field(default_factory=list)
    """Shards that were split, whose halves took over."""
    shed: int = 0
    """Number of tentative results that lack rows which an overloaded stage left out."""
    memory_peak_bytes: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """In short what came of it; empty: the run is clean."""
        if self.wrong:
            return f"{len(self.wrong)} wrong"
        if self.too_slow:
            return f"{NOT_JUDGED}, {len(self.late)} late: {self.too_slow}"
        if self.late:
            return f"{NOT_JUDGED}: {self.stalled}"
        return ""


class Happened(NamedTuple):
    """A run before it is judged."""

    records_in: int
    truth: Truth
    traffic: Traffic
    nemesis: Nemesis
    planned: int
    targets: list[str]
    wrong: list[str]


POOL: Final = "north.7"
"""Node without replicas of its own, in an elastic run."""
SHARD_KEY: Final = ["xway", "dir", "seg"]
SHED: Final = ("rows", "keys")
"""Choices of the rows that the first stage leaves out in an overloaded run, by the seed."""
OVERLOAD_MAX_DELAY: Final = "6s"
"""Bound in an overloaded run. A batch takes half a second whatever it holds where all queries share
two cores: within the usual bound two batches would leave no time for reports.
"""
RUSH_REPORTS: Final = 16
"""Number of reports in a rush for each one otherwise: at the usual rate twice as many as the slow
stage can process.
"""


def prepare(options: argparse.Namespace, folder: Path) -> Path:
    """Copy the pipeline with ``replicas`` of every stage and short windows; for an elastic run with
    a pool, and halves of its first stage; for an overloaded one with a slow first stage that leaves
    out rows.
    """
    copied = copy_pipeline(PIPELINE, folder / "pipeline", None)
    yaml = YAML()
    document = yaml.load(copied)
    for stage in document["stages"].values():
        stage["replicas"] = options.replicas
        if "window" in stage.get("parameters", {}):
            stage["parameters"]["window"] = f"{WINDOW_S} seconds"
        if "free_vehicles" in stage.get("parameters", {}):
            stage["parameters"]["free_vehicles"] = FREE_VEHICLES
    if options.elastic:
        document["nodes"] = {POOL: []}
        halved = {"shard_by": SHARD_KEY, "halvings": 1, "state_horizon": f"{WINDOW_S}s"}
        document["stages"][tentative.STAGE].update(halved)
    if options.overload:
        shutil.copy(SLOW_STAGES, copied.parent)
        document["stages"][tentative.STAGE].update(
            transform=f"slow_stages:{tentative.STAGE}",
            shard_by=SHARD_KEY,
            state_horizon=f"{WINDOW_S}s",
            shed=SHED[options.seed % len(SHED)],
        )
        document["max_delay"] = OVERLOAD_MAX_DELAY
    yaml.dump(document, copied)
    return copied


class Run:
    """One run in ``folder``; ``say`` gets a line per event."""

    def __init__(
        self, options: argparse.Namespace, folder: Path, say: Callable[[str], None]
    ) -> None:
        self._options = options
        self._folder = folder
        self._state = folder / "state"
        self._say = say
        self._file = prepare(options, folder)
        self._pipeline = load(self._file)
        self._job: Job = read_job(self._file)
        self._seen = Collected.nothing(self._job)
        self._again = Collected.nothing(self._job)
        self._logs: dict[str, list[tuple[int, LogEntry]]] = {
            stage: [] for stage in self._pipeline.stages
        }
        self._readers: list[consuming.TopicReader] = []
        self._truth: Truth | None = None
        self._problem: Exception | None = None
        self._give_up = threading.Event()
        self._pause = threading.Event()
        self._ends = EndsSeen()
        self._stalls: list[Stall] = []
        self._ready_ms = 0

    def run(self) -> Verdict:
        """From start to stop.

        Raises:
            DeploymentError: the deployment did not start, or the supervisor ended.
        """
        begun = time.monotonic()
        left = list[int]()
        deployment = Deployment(self._file, self._state, self._folder / "up.log", drills=True)
        meter = TreeMeter(deployment.pid)
        watch = MachineWatch(meter)
        # Each is ended only if it was begun, and the deployment last, whatever fails before: one
        # that is left running takes the machine from all runs that follow.
        with ExitStack() as ending:
            ending.callback(lambda: left.extend(deployment.stop(meter.seen)))
            meter.start()
            ending.callback(meter.stop)
            watch.start()
            ending.callback(watch.stop)
            deployment.wait_ready(READY_S)
            self._ready_ms = received_ms()
            self._say(f"ready after {time.monotonic() - begun:.0f} s")
            happened = self._break_it(deployment, ending)
        self._stalls = watch.stalls()
        struck = [*happened.nemesis.injected, *happened.nemesis.half_done]
        unexplained = [
            *self._complaints(struck),
            *excuses.needless_ends(self._ends.ended, struck),
        ]  # before the broker is started once more
        with stopped(self._file, self._state, self._folder / "again.log") as kafka:
            for topic, take in self._again.takers(self._job).items():
                consuming.read_whole(kafka, topic, take)
            verdict = self._judge(happened, kafka)
        if left:
            verdict.wrong.append(f"{len(left)} processes were left: {left}")
        verdict.wrong += unexplained
        verdict.memory_peak_bytes, verdict.seconds = meter.peak_bytes, time.monotonic() - begun
        return verdict

    def _break_it(self, deployment: Deployment, ending: ExitStack) -> Happened:
        """Run the traffic and the faults. ``ending`` ends whatever begins here."""
        options, job = self._options, self._job
        known = state_file.read(self._state)
        assert known is not None
        kafka = known.kafka
        targets = [f"{row.service}/{row.name}" for row in known.processes]
        writer = TrafficWriter(kafka, job.topics)
        self._read_all(kafka, ending)
        seconds = options.minutes * 60
        start_ms, end_ms = span(
            time.time_ns() // 1_000_000,
            WARM_S + CALM_S + seconds + END_S,
            job.window_ms,
            is_paced=True,
        )
        traffic = Traffic(
            start_ms, end_ms, options.rate, len(job.topics), options.seed, options.bad_share
        )
        generator = threading.Thread(
            target=self._generate, args=(writer, traffic), name="traffic", daemon=True
        )
        ending.callback(self._give_up.set)
        generator.start()
        self._look(deployment, WARM_S + CALM_S, lambda: False)
        faults = draw(options.seed, seconds, targets, kinds(options), options.rest)
        (self._folder / "schedule.txt").write_text(
            "".join(f"{fault}\n" for fault in faults), encoding="utf-8"
        )
        nemesis = Nemesis(
            self._state,
            faults,
            self._folder / "faults.jsonl",
            self._say,
            seconds + CALM_S / 2,
            partial(self._rush, writer),
        )
        nemesis.start()
        ending.callback(nemesis.stop)
        self._look(
            deployment,
            3 * seconds + 600,
            lambda: not nemesis.is_alive() and not generator.is_alive(),
        )
        if nemesis.error is not None:
            raise nemesis.error
        truth = self._truth
        if truth is None:
            raise DeploymentError("the traffic was not written")
        truth.write(self._folder / "truth")
        self._say("all is healed; waiting for quiet")
        wrong = self._await_quiet(deployment, truth)
        nemesis.await_copies()
        return Happened(
            writer.written, truth, traffic, nemesis, len(faults), targets, [*nemesis.broken, *wrong]
        )

    def _rush(self, writer: TrafficWriter, target: str, begins: bool) -> None:
        """Begin or end a rush at the source that the process ``target`` reads."""
        source = self._job.sources.index(target.partition("/")[2])
        writer.per_turn[source] = RUSH_REPORTS if begins else 1

    def _read_all(self, kafka: str, ending: ExitStack) -> None:
        takers = self._seen.takers(self._job) | {
            self._pipeline.topic_names.boundaries(stage): partial(_take, entries.append, _entry)
            for stage, entries in self._logs.items()
        }
        for topic, take in takers.items():
            reader = consuming.TopicReader(kafka, topic, take)
            reader.start()
            ending.callback(reader.stop)
            self._readers.append(reader)

    def _generate(self, writer: TrafficWriter, traffic: Traffic) -> None:
        try:
            self._truth = writer.run(
                traffic, is_paced=True, closing_ms=CLOSING_MS, stop=self._give_up.is_set
            )
        except Exception as error:  # noqa: BLE001 - the main thread raises it again
            self._problem = error

    def _look(self, deployment: Deployment, seconds: float, is_over: Callable[[], bool]) -> None:
        """Until ``is_over`` or the time is; raises what went wrong in the background."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not is_over():
            deployment.check_running()
            self._note_ends()
            for problem in (self._problem, *(reader.error for reader in self._readers)):
                if problem is not None:
                    raise problem
            self._pause.wait(_LOOK_S)

    def _note_ends(self) -> None:
        known = state_file.read(self._state)
        self._ends.look(known.processes if known is not None else (), received_ms())

    def _answers(self, truth: Truth) -> dict[str, pl.DataFrame]:
        job = self._job
        return oracle.answers(
            truth.reports(), list(job.outputs), job.window_ms, job.free_vehicles, job.free_speed
        )

    def _await_quiet(self, deployment: Deployment, truth: Truth) -> list[str]:
        """All results are there, every replica has closed the last bucket, every process
        runs, nothing comes any more. What is not so.
        """
        expected = sum(len(frame) for frame in self._answers(truth).values())
        changed, counts = time.monotonic(), (-1, -1)

        def quiet() -> str:
            nonlocal changed, counts
            deployment.check_running()
            self._note_ends()
            now = (self._seen.results_total(), len(set(self._seen.rejected)))
            if now != counts:
                changed, counts = time.monotonic(), now
            if now[0] < expected or now[1] < len(truth.rejected):
                return (
                    f"{now[0]} of {expected} results, {now[1]} of {len(truth.rejected)} dead"
                    " letters are there"
                )
            known = state_file.read(self._state)
            down = [
                f"{row.service}/{row.name} is {row.state}"
                for row in (known.processes if known else ())
                if row.state != "running"
            ]
            return ", ".join([*down, *self._replicas_behind()]) or (
                "" if time.monotonic() - changed > STILL_S else "still changing"
            )

        try:
            wait_until(
                lambda: not quiet(),
                self._options.quiet_deadline,
                "quiet",
                every_s=_LOOK_S,
                stretch=1,
            )
        except AssertionError:
            return [f"not quiet {self._options.quiet_deadline:g} s after the heal: {quiet()}"]
        return []

    def _replicas_behind(self) -> list[str]:
        behind = []
        judged = self._continuing()
        for stage, entries in self._logs.items():
            if stage not in judged:
                continue
            made, _ = judgement.made_by(list(entries), self._pipeline.stream_writers(stage))
            lasts = {name: max(replica.digests, default=0) for name, replica in made.items()}
            behind += [
                f"{stage}.{name} is behind"
                for name, last in lasts.items()
                if last < max(lasts.values())
            ]
        return behind

    def _continuing(self) -> set[str]:
        """Return the stages whose streams readers read to the end: a shard that was not split, and
        the halves of one that was. Replicas of others stop where they are.
        """
        parents = {name: stage.parent for name, stage in self._pipeline.stages.items()}
        return judgement.continuing(parents, self._ended_shards())

    def _ended_shards(self) -> dict[str, int]:
        """Return the last bucket of each shard whose stream has ended."""
        ends = {
            name: judgement.ended_at(entry for _, entry in list(entries))
            for name, entries in self._logs.items()
        }
        return {name: bucket for name, bucket in ends.items() if bucket is not None}

    def _judge(self, happened: Happened, kafka: str) -> Verdict:
        job = self._job
        truth = happened.truth
        traffic = happened.traffic
        nemesis = happened.nemesis
        answers = {
            name: oracle.results(name, frame, job.bucket_ms, job.partitions)
            for name, frame in self._answers(truth).items()
        }
        comparisons = {
            name: compare(answer, self._again.results[name]) for name, answer in answers.items()
        }
        rejections = compare_rejected(truth.rejected, self._again.rejected)
        wrong = [*happened.wrong, *self._too_little(happened)]
        for name, compared in comparisons.items():
            wrong += followed(name, self._seen.results[name], self._again.results[name])
            if not compared.is_equal():
                counts = (
                    f"missing {compared.missing}, duplicated {compared.duplicated}, wrong"
                    f" {compared.wrong}"
                )
                wrong += [
                    f"{name}: {counts}, out of order {compared.out_of_order}",
                    *compared.examples,
                ]
        wrong += self._live_promises(truth, traffic.end_ms)
        wrong += judgement.nothing_shed(nemesis.injected, self._again.live.records())
        if not rejections.is_equal():
            wrong.append(
                f"dead letters: {rejections.missing} missing, {rejections.unexpected} unexpected,"
                f" {rejections.altered} altered"
            )
            wrong += rejections.examples
        rejected_boundaries = {}
        continuing, ended = self._continuing(), self._ended_shards()
        for stage, entries in self._logs.items():
            parent = self._pipeline.stages[stage].parent
            made, rejected_boundaries[stage] = judgement.made_by(
                list(entries), self._pipeline.stream_writers(stage)
            )
            wrong += judgement.compare_digests(
                stage,
                made,
                continues=stage in continuing,
                whole_after=ended.get(parent, inf) if parent else 0,
            )
        repeats = {
            f"{topic}, read uncommitted": judgement.repeated(_identifiers(kafka, topic))
            for topic in job.outputs.values()
        }
        repeats["dead letters"] = judgement.repeated(self._again.rejected)
        results = [
            Seen(record.result.event_time_ms, record.received_ms)
            for records in self._seen.results.values()
            for record in records
        ]
        first_ms = min((fault.begun_ms for fault in nemesis.injected), default=traffic.end_ms)
        calm = (
            traffic.start_ms + int(WARM_S * 1_000 + CALM_S * 500),
            first_ms - 2 * WINDOW_S * 1_000,
        )
        faults, usual_ms = sorted(nemesis.injected), Waits(results).usual(*calm, self._stalls)
        found = judgement.recoveries(faults, results, nemesis.half_done)
        late = judgement.late_recoveries(
            found, happened.targets, percentile_ms(usual_ms, 0.99) or 0
        )
        late += self._late_on_live(traffic.end_ms, found, happened.targets, calm, answers)
        too_slow = judgement.too_slow(usual_ms)
        to_judge, not_judged, stalled = judged(late, self._stalls, lambda each: each.span_ms)
        if too_slow:
            to_judge, not_judged = [], late
        wrong += judgement.in_words(to_judge)
        wrong += judgement.too_few(len(faults), happened.planned)
        return Verdict(
            seed=self._options.seed,
            faults=faults,
            left_out=happened.planned - len(faults),
            found=found,
            usual_ms=usual_ms,
            records_in=happened.records_in,
            comparisons=comparisons,
            rejections=rejections,
            repeats=repeats,
            rejected_boundaries=rejected_boundaries,
            targets=happened.targets,
            too_slow=too_slow,
            late=judgement.in_words(not_judged),
            stalled=stalled,
            stalls=self._stalls,
            split=list(self._ended_shards()),
            shed=sum(record.shed > 0 for record in self._again.live.records()),
            wrong=wrong,
        )

    def _late_on_live(
        self,
        end_ms: int,
        found: Sequence[Recovery],
        targets: Sequence[str],
        calm: tuple[int, int],
        answers: Mapping[str, Answer],
    ) -> list[Late]:
        ordered = self._seen.live.transactions(end_ms)
        event_times = {
            bucket: rows[0].event_time_ms
            for name in self._job.live
            for bucket, rows in answers[name].items()
        }
        return judgement.late_on_live(
            delays(ordered, event_times), found, targets, calm, self._job.max_delay_ms, self._stalls
        )

    def _too_little(self, happened: Happened) -> list[str]:
        """Return what there is not enough of to show anything."""
        least = happened.traffic.reports_total()
        tolls = sum(
            int((frame["toll"] > 0).sum()) for frame in self._answers(happened.truth).values()
        )
        return judgement.too_little(happened.records_in, least, tolls)

    def _live_promises(self, truth: Truth, end_ms: int) -> list[str]:
        job = self._job
        seen = self._seen.live
        again = self._again.live
        columns = [*truth.columns.values(), truth.columns["time"]]
        # The sources have the same columns, so any of them says which reports are kept.
        kept = kept_of(self._pipeline, tentative.STAGE, job.sources[0], columns)
        road = job.road(truth.reports(), kept)
        wrong = []
        for name in job.live:
            entries = [entry for _, entry in self._logs[self._pipeline.outputs[name].stage]]
            wrong += judgement.live_promises(
                name,
                again,
                end_ms,
                road,
                judgement.missing_by_bucket(entries),
                judgement.shed_by_bucket(entries),
            )
            wrong += followed(f"{name}, live", seen.records(), again.records())
        return wrong

    def _complaints(self, faults: Sequence[Injected]) -> list[str]:
        files = [
            *sorted((self._state / "logs").glob("*.log*")),
            self._state / "kafka" / "kafka.log",
            self._folder / "up.log",
        ]
        found: list[Complaint] = []
        for file in files:
            if file.exists():
                with file.open(encoding="utf-8", errors="replace") as lines:
                    found += complaints(file.name, lines)
        return excuses.unexplained(found, ALLOWED, faults, self._ready_ms)


def run(options: argparse.Namespace, folder: Path, say: Callable[[str], None]) -> Verdict:
    """One run; the folder is kept only when it is not clean, or ``options.keep``."""
    verdict = Run(options, folder, say).run()
    if not verdict.outcome and not options.keep:
        shutil.rmtree(folder)
    return verdict


def kinds(options: argparse.Namespace) -> tuple[Kind, ...]:
    """Return the kinds of faults of a run: those that it was asked for, or all that it may have."""
    asked: tuple[Kind, ...] | None = options.faults
    if asked is not None:
        return asked
    return kinds_of(is_elastic=options.elastic, is_overload=options.overload)


def schedule_text(faults: Sequence[Fault]) -> str:
    """Return the plan as text for people."""
    return "\n".join(
        f"{fault.at_ms / 1_000:7.1f} s  {fault.kind:<13} {fault.target}  {fault.for_ms / 1_000:g} s"
        for fault in faults
    )


def _take(add: Callable[[T], None], decoded: Callable[[Message], T], message: Message) -> None:
    add(decoded(message))


def _entry(message: Message) -> tuple[int, LogEntry]:
    headers = tuple(
        (name, content) for name, content in message.headers() or [] if isinstance(content, bytes)
    )
    value = message.value()
    return message.offset() or 0, boundary_records.decode(
        value if isinstance(value, bytes) else None, headers
    )


def _identifiers(kafka: str, topic: str) -> list[str]:
    """Return the id of every record that a topic holds, those of aborted transactions included."""
    found: list[str] = []
    consuming.read_whole(
        kafka,
        topic,
        lambda message: found.append(consuming.header(message, "anabranch-id")),
        committed=False,
    )
    return found


def as_json(verdict: Verdict) -> str:
    """Everything, for other programs."""
    rows = [
        {
            "kind": each.fault.kind,
            "target": each.fault.target,
            "begun_ms": each.fault.begun_ms,
            "ended_ms": each.fault.ended_ms,
            "during_ms": each.during_ms,
            "after_ms": each.after_ms,
            "is_disturbed": each.is_disturbed,
        }
        for each in verdict.found
    ]
    return json.dumps(
        {
            "seed": verdict.seed,
            "outcome": verdict.outcome,
            "wrong": verdict.wrong,
            "late": verdict.late,
            "stalls": verdict.stalls,
            "left_out": verdict.left_out,
            "faults": rows,
            "usual_ms": verdict.usual_ms,
            "repeats": verdict.repeats,
            "split": verdict.split,
            "shed": verdict.shed,
        }
    )
