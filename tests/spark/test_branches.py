"""Branch and successor on real Spark: a stage goes on without an input, tentatively, and
corrects itself when the input is back.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import pytest

from anabranch.processing.replica import ReplicaRunner
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogEntry
from checkers import streams, tentative
from harness import two_inputs
from harness.live_feeds import LiveFeed, LiveFeeds, pace_batches
from harness.stage_processes import StageProcess
from harness.stages import (
    STARTS_WITHIN_S,
    Feed,
    Output,
    RunningStage,
    create_topics,
    write_pipeline,
)
from harness.two_inputs import rows_a, rows_b
from harness.waiting import given_s, is_busy, wait_until

_log = logging.getLogger(__name__)

pytestmark = pytest.mark.integration

PERIOD_MS = 100
MAX_DELAY_MS = 2_500
LONG_DELAY_MS = 6_000
"""Maximum delay, in ms, of tests that do not judge delays: on a slow machine a source may lag
behind the other.
"""
STEADY_BUCKETS = 30
"""Number of buckets before the failure whose longest delay is the usual one."""
CORRECTS_WITHIN_S = 300
"""Beside a branch, which a correction that does not come nearer suspends only after a while."""


@dataclass(frozen=True)
class Seen:
    """A boundary record of the stage and when the test saw it."""

    at_ms: int
    record: BoundaryRecord


class Watcher:
    """Follows a stage's boundary log."""

    def __init__(self, output: Output) -> None:
        self._reader = output.reader
        self.seen: list[Seen] = []
        """Results that count."""
        self.entries: list[tuple[int, LogEntry]] = []
        output.reader._listener = self._take

    def _take(self, offset: int, entry: LogEntry, outcome: Any) -> None:
        self.entries.append((offset, entry))
        if isinstance(entry, BoundaryRecord) and outcome.accepted:
            self.seen.append(Seen(round(given_s() * 1_000), entry))

    def poll(self) -> None:
        self._reader.poll(50)

    def tentative(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.record.kind is BoundaryKind.TENTATIVE]


def delays_ms(watcher: Watcher, feed: LiveFeeds, first: int) -> dict[int, int]:
    """From the time of each bucket, from ``first`` on, to the first record of any kind that closes
    it, where the machine had its processors.
    """
    found, closed = {}, first - 1
    for seen in watcher.seen:
        for bucket in range(closed + 1, seen.record.closed + 1):
            if bucket in feed.due_ms:
                found[bucket] = seen.at_ms - feed.due_ms[bucket]
        closed = max(closed, seen.record.closed)
    return found


class Bench:
    """One stage over two live sources, what it writes, and the answer."""

    def __init__(
        self,
        kafka: str,
        folder: Path,
        function: str,
        *,
        max_delay_ms: int = MAX_DELAY_MS,
        replicas: int = 1,
        chain: bool = False,
    ) -> None:
        self.function = function
        self.kafka = kafka
        self.state = folder / "state"
        stages = (
            f"merged:\n  participant: north\n  reads: [a, b]\n  transform: MODULE:{function}\n "
            f" replicas: {replicas}\n"
        )
        if chain:
            first = "first:\n  participant: north\n  reads: [a, b]\n  transform: MODULE:both\n"
            stages = (
                f"{first}merged:\n  participant: south\n  reads: [first]\n  transform:"
                " MODULE:counted\n"
            )
        name = f"branch_{function}_{uuid.uuid4().hex[:8]}"
        self.pipeline = write_pipeline(
            folder,
            name,
            two_inputs.FUNCTIONS,
            sources=("a", "b"),
            live=True,
            max_delay_ms=max_delay_ms,
            stages=stages,
        )
        create_topics(kafka, self.pipeline)
        self._feeds = [Feed(kafka, self.pipeline, source) for source in ("a", "b")]
        self.a, self.b = LiveFeed(self._feeds[0], rows_a), LiveFeed(self._feeds[1], rows_b)
        self.live = LiveFeeds([self.a, self.b], PERIOD_MS)
        self.outputs = {
            stage: Output(kafka, self.pipeline, stage) for stage in self.pipeline.stages
        }
        self.watchers = {stage: Watcher(output) for stage, output in self.outputs.items()}
        self.output, self.watcher = self.outputs["merged"], self.watchers["merged"]
        self._alive: list[Callable[[], None]] = []
        self._steady = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.live.__exit__()
        for feed in self._feeds:
            feed.close()
        for output in self.outputs.values():
            output.close()

    @property
    def log_state(self) -> LogState:
        return self.output.reader.log_state

    def watch(self, *alive: Callable[[], None]) -> None:
        """Each of ``alive`` raises what ended a stage."""
        self._alive = list(alive)

    def until(self, condition: Callable[[], bool], deadline_s: float, what: str) -> None:
        """Follow the stage's log until ``condition``."""

        def check() -> bool:
            if self.live.error is not None:
                raise self.live.error
            for alive in self._alive:
                alive()
            for watcher in self.watchers.values():
                watcher.poll()
            return condition()

        wait_until(check, deadline_s, what)

    def begin(self, *, is_timed: bool = False) -> None:
        """Start the sources; until the stage has gone on with them for a while. ``is_timed``: and
        has kept up with them before, so that its delays in that while are the usual ones.
        """
        self.live.__enter__()
        self.until(lambda: self.log_state.upto >= 20, STARTS_WITHIN_S, "twenty stable buckets")
        if is_timed:
            self.until(lambda: self.log_state.upto >= self.live.bucket - 20, 90, "it keeps up")
        self._steady = self.live.bucket
        self.until(
            lambda: self.log_state.upto >= self._steady + STEADY_BUCKETS,
            STARTS_WITHIN_S,
            "it goes on",
        )

    def go_on_without_b(self, buckets: int, deadline_s: float) -> int:
        """Cut b off, until replica 0 has closed so many buckets tentatively; b's last bucket."""
        self.b.cut()
        cut_at = self.b.sent
        self.until(
            lambda: self.log_state.tentative_upto("0") >= cut_at + buckets,
            deadline_s,
            "tentative buckets without b",
        )
        return cut_at

    def directories(self) -> list[str]:
        """Return the checkpoint directories of replica 0."""
        return sorted(
            path.name
            for path in (self.state / "processing" / "merged.0").glob("life-*/checkpoints/*")
        )

    def check(self, *missing: str) -> None:
        """Every stable bucket is the answer's. Every tentative one lies between the answer without
        the streams that it names and the whole one, and names only ``missing``.
        """
        last = self.log_state.upto
        expected = two_inputs.answer(self.function, last)
        found = self.output.buckets(1, last)
        for bucket in range(1, last + 1):
            assert sorted(map(_row, found.get(bucket, []))) == sorted(expected.get(bucket, [])), (
                f"bucket {bucket}"
            )
        upto = max([last, *(seen.record.closed for seen in self.watcher.seen)])

        @cache
        def without(streams_missing: frozenset[str], since: int) -> two_inputs.Answer:
            return two_inputs.answer(self.function, upto, streams_missing, since)

        shown = self.shown()
        wrong = tentative.check(shown, without, missing, partial(two_inputs.split, self.function))
        assert wrong == []
        assert bool(shown) == bool(missing), "it went on without what was missing"

    def shown(self) -> list[tentative.Shown]:
        """Return what the last stage's branches showed. A branch over another's results lacks what
        that one lacked.
        """
        readings = {
            stage: streams.read(watcher.entries, self.pipeline.stream_writers(stage))
            for stage, watcher in self.watchers.items()
        }
        bases = [
            made.base
            for stage, reading in readings.items()
            for writer in reading.writers.values()
            for made in writer.tentative
            if stage != "merged"
        ]
        return [
            tentative.Shown(
                f"bucket {bucket} of branch {made.branch} of replica {replica}",
                bucket,
                made.missing,
                [] if table is None else [_row(row) for row in table.to_pylist()],
                min([made.base, *bases]),
            )
            for replica, writer in readings["merged"].writers.items()
            for made in writer.tentative
            for bucket in range(made.first, made.last + 1)
            for table in [self.output.rows(replica, made.parts.get(bucket, ()))]
        ]

    def check_delays(self, cut_at: int) -> None:
        """No result came more than ``max_delay`` later than is usual, if the test had the machine
        for itself.
        """
        delays = delays_ms(self.watcher, self.live, self._steady)
        usual_ms = max(delays[bucket] for bucket in range(self._steady, cut_at - 5))
        bucket = max((bucket for bucket in delays if bucket >= cut_at - 5), key=delays.__getitem__)
        late = (
            f"bucket {bucket} came after {delays[bucket]} ms: usual are {usual_ms}, the input is"
            f" cut after {cut_at}"
        )
        if is_busy():
            _log.warning("others had the machine, delays are not judged: %s", late)
        else:
            assert delays[bucket] <= usual_ms + MAX_DELAY_MS, late


def _row(row: dict[str, Any]) -> tentative.Row:
    return (*(value for name, value in row.items() if name != "event_time"), row["event_time"])


def in_process(bench: Bench, stage: RunningStage) -> ReplicaRunner:
    """Wait until the stage in this process is ready."""
    bench.watch(stage.check)
    bench.until(
        lambda: stage.service.status.state in ("running", "waiting"),
        STARTS_WITHIN_S,
        "the stage to be ready",
    )
    runner = stage.service._runner
    assert runner is not None
    return runner


def state_of(runner: ReplicaRunner) -> ReplicaState:
    return runner.state


def goes_on_and_corrects_itself(bench: Bench, *, is_timed: bool = False) -> int:
    """After which bucket the input is missing.

    A stage may be slower than its sources: they end ten seconds after the input is back, and then
    it gets there at any speed. ``is_timed``: it must correct itself while they go on.
    """
    with bench:
        with RunningStage(bench.pipeline, "merged.0", bench.kafka, bench.state) as stage:
            runner = in_process(bench, stage)
            bench.begin(is_timed=is_timed)
            assert bench.watcher.tentative() == [], "nothing is missing"
            cut_at = bench.go_on_without_b(40, CORRECTS_WITHIN_S)
            assert state_of(runner) is ReplicaState.UP_FAILURE
            assert bench.log_state.upto <= cut_at
            assert all(
                seen.record.missing == ("b",)
                for seen in bench.watcher.tentative()
                if seen.record.closed > cut_at + 1
            )
            bench.b.heal()
            healed_at = bench.live.bucket

            def is_corrected() -> bool:
                return bench.log_state.upto > healed_at and runner.branch is None

            bench.until(
                lambda: is_corrected() or (not is_timed and bench.live.bucket > healed_at + 100),
                CORRECTS_WITHIN_S,
                "the corrections",
            )
            last = bench.live.end_after(20)
            bench.until(
                lambda: bench.log_state.upto >= last and state_of(runner) is ReplicaState.STABLE,
                CORRECTS_WITHIN_S,
                "all is stable, and it is up to date again",
            )
            assert is_corrected()
            assert len({seen.record.branch for seen in bench.watcher.tentative()}) == 1, (
                "one failure, one branch"
            )
            bench.until(
                lambda: bench.directories() == [runner.stable_query],
                CORRECTS_WITHIN_S,
                "the branch's directory is gone",
            )  # Spark may write there once more
        bench.check("b")
        return cut_at


def test_a_stage_goes_on_without_an_input_and_corrects_itself(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace_batches(monkeypatch)
    bench = Bench(kafka, tmp_path, "windowed", max_delay_ms=LONG_DELAY_MS)
    goes_on_and_corrects_itself(bench)


@pytest.mark.nightly
@pytest.mark.parametrize("function", ["windowed", "both", "joined", "totals"])
def test_no_result_is_later_than_the_delay_allows(
    kafka: str, tmp_path: Path, function: str
) -> None:
    """Tries each kind of stage, at night, when nothing runs beside it."""
    bench = Bench(kafka, tmp_path, function)
    cut_at = goes_on_and_corrects_itself(bench, is_timed=True)
    bench.check_delays(cut_at)


@pytest.mark.nightly
def test_a_failure_shorter_than_the_wait_leaves_no_trace(kafka: str, tmp_path: Path) -> None:
    with Bench(kafka, tmp_path, "windowed") as bench:
        with RunningStage(bench.pipeline, "merged.0", kafka, bench.state) as stage:
            in_process(bench, stage)
            bench.begin()
            bench.b.cut()
            cut_at = bench.b.sent
            bench.until(lambda: bench.live.bucket >= cut_at + 7, 30, "0.7 s")
            bench.b.heal()
            bench.until(lambda: bench.log_state.upto > cut_at + 40, 90, "stable buckets after it")
        assert bench.watcher.tentative() == []
        bench.check()


@pytest.mark.nightly
def test_a_second_failure_while_correcting_makes_the_successor_the_next_branch(
    kafka: str, tmp_path: Path
) -> None:
    with Bench(kafka, tmp_path, "windowed") as bench:
        with RunningStage(bench.pipeline, "merged.0", kafka, bench.state) as stage:
            runner = in_process(bench, stage)
            bench.begin(is_timed=True)
            cut_at = bench.go_on_without_b(15, 90)
            bench.a.cut()
            bench.b.heal()
            bench.until(
                lambda: bench.log_state.branch("0") == (runner.epoch, 2), 120, "the second branch"
            )
            second = bench.log_state.tentative_upto("0")
            bench.until(
                lambda: bench.log_state.tentative_upto("0") > second + 10,
                90,
                "tentative buckets without a",
            )
            assert bench.watcher.tentative()[-1].record.missing == ("a",), (
                "what b had missed is corrected in the second branch's state"
            )
            bench.a.heal()
            healed_at = bench.live.bucket
            bench.until(
                lambda: bench.log_state.upto > healed_at and runner.branch is None,
                120,
                "the corrections",
            )
            bench.until(
                lambda: bench.directories() == [runner.stable_query],
                30,
                "both branches' directories are gone",
            )
        bench.check("a", "b")
        bench.check_delays(cut_at)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "crash_point",
    ["processing.fork_decided", "processing.fork_written", "processing.tentative_appended:3"],
)
def test_killed_while_it_branches_a_replica_goes_on_from_its_stable_timeline(
    kafka: str, tmp_path: Path, crash_point: str
) -> None:
    with Bench(kafka, tmp_path, "windowed") as bench:
        with StageProcess(
            bench.pipeline, "merged.0", kafka, bench.state, crash_point=crash_point
        ) as first:
            bench.watch(first.check)
            bench.begin()
            bench.b.cut()
            cut_at = bench.b.sent
            assert first.wait(90) == -9
        bench.watch()
        with StageProcess(bench.pipeline, "merged.0", kafka, bench.state) as second:
            bench.watch(second.check)
            bench.until(
                lambda: bench.log_state.tentative_upto("0") >= cut_at + 20,
                120,
                "tentative buckets of the second process",
            )
            bench.b.heal()
            healed_at = bench.live.bucket
            bench.until(lambda: bench.log_state.upto > healed_at + 10, 120, "the corrections")
        bench.check("b")


@pytest.mark.nightly
def test_killed_before_it_says_that_its_branch_has_ended(kafka: str, tmp_path: Path) -> None:
    """The next process ends it, and goes on from the corrections."""
    with Bench(kafka, tmp_path, "windowed") as bench:
        with StageProcess(
            bench.pipeline,
            "merged.0",
            kafka,
            bench.state,
            crash_point="processing.branch_dropped",
        ) as first:
            bench.watch(first.check)
            bench.begin()
            bench.go_on_without_b(15, 120)
            bench.b.heal()
            healed_at = bench.live.bucket
            assert first.wait(120) == -9
        bench.watch()
        bench.until(lambda: bench.log_state.has_branch("0"), 30, "what it said last")
        with StageProcess(bench.pipeline, "merged.0", kafka, bench.state) as second:
            bench.watch(second.check)
            bench.until(lambda: not bench.log_state.has_branch("0"), 120, "the next epoch")
            bench.until(lambda: bench.log_state.upto > healed_at + 10, 120, "new results")
        bench.check("b")


@pytest.mark.nightly
def test_inputs_used_twice_outlive_a_crash_with_a_plan_logged_and_a_failure(
    kafka: str, tmp_path: Path
) -> None:
    """A self-join and two views of one input: Spark has two sources for each input."""
    with Bench(kafka, tmp_path, "twice", max_delay_ms=LONG_DELAY_MS) as bench:
        crash_point = "processing.batch_logged:6"
        with StageProcess(
            bench.pipeline, "merged.0", kafka, bench.state, crash_point=crash_point
        ) as first:
            bench.live.__enter__()
            assert first.wait(CORRECTS_WITHIN_S) == -9
        with StageProcess(bench.pipeline, "merged.0", kafka, bench.state) as second:
            bench.watch(second.check)
            goes_on_at = bench.log_state.upto + 20
            bench.until(
                lambda: bench.log_state.upto >= goes_on_at,
                CORRECTS_WITHIN_S,
                "the restarted process continues",
            )
            bench.go_on_without_b(15, CORRECTS_WITHIN_S)
            bench.b.heal()
            last = bench.live.end_after(40)
            bench.until(lambda: bench.log_state.upto >= last, CORRECTS_WITHIN_S, "the corrections")
        bench.check("b")


@pytest.mark.nightly
def test_two_replicas_agree_after_a_failure_and_mask_the_death_of_one(
    kafka: str, tmp_path: Path
) -> None:
    with Bench(kafka, tmp_path, "windowed", replicas=2) as bench:
        with (
            StageProcess(bench.pipeline, "merged.0", kafka, bench.state) as one,
            StageProcess(bench.pipeline, "merged.1", kafka, bench.state) as two,
        ):
            bench.watch(one.check)
            bench.begin(is_timed=True)
            bench.until(
                lambda: bench.log_state.closed("1") >= bench.live.bucket - 30,
                90,
                "the second replica",
            )
            bench.b.cut()
            cut_at = bench.b.sent
            bench.until(
                lambda: min(bench.log_state.tentative_upto(r) for r in "01") >= cut_at + 15,
                120,
                "tentative buckets of both",
            )
            two.kill()
            bench.b.heal()
            healed_at = bench.live.bucket
            bench.until(lambda: bench.log_state.upto > healed_at + 10, 120, "the corrections")
            tentative = len(bench.watcher.tentative())
            with StageProcess(bench.pipeline, "merged.1", kafka, bench.state) as again:
                bench.watch(again.check)
                bench.until(
                    lambda: bench.log_state.closed("1") > healed_at + 20,
                    120,
                    "the restarted replica",
                )
                bench.until(
                    lambda: bench.log_state.upto > healed_at + 30, 120, "more stable buckets"
                )
            assert len(bench.watcher.tentative()) == tentative, (
                "the death and the restart of a replica leave no trace"
            )
            rows = [
                bench.output.replica_rows(replica, healed_at, healed_at + 20) for replica in "01"
            ]
            assert rows[0] == rows[1]
        bench.check("b")
        bench.check_delays(cut_at)


@pytest.mark.nightly
def test_a_chain_waits_once_and_corrects_itself(kafka: str, tmp_path: Path) -> None:
    with Bench(kafka, tmp_path, "windowed", chain=True) as bench:
        with (
            StageProcess(bench.pipeline, "first.0", kafka, bench.state) as one,
            StageProcess(bench.pipeline, "merged.0", kafka, bench.state) as two,
        ):
            bench.watch(one.check, two.check)
            bench.begin(is_timed=True)
            cut_at = bench.go_on_without_b(40, 120)
            late = [
                seen.record for seen in bench.watcher.tentative() if seen.record.closed > cut_at + 1
            ]
            assert {record.missing for record in late} == {("b",)}, (
                "the source that is missing, not the stage before"
            )
            bench.b.heal()
            healed_at = bench.live.bucket
            bench.until(lambda: bench.log_state.upto > healed_at + 20, 120, "the corrections")
        bench.check("b")
        bench.check_delays(cut_at)
