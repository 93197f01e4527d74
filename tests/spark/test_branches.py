"""Branch and successor on real Spark: a stage goes on without an input, tentatively, and
corrects itself when the input is back.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from anabranch.adapters.system.clock import SystemClock
from anabranch.processing.replica import ReplicaRunner
from anabranch.protocol.control.replica_states import ReplicaState
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogEntry
from harness.live_feeds import LiveFeed, Rows
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, RunningStage, create_topics, write_pipeline
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

W = 100
PERIOD_MS = 100
MAX_DELAY_MS = 2_500

FUNCTIONS = """
from datetime import timedelta
from pyspark.sql import Row, functions as F
from anabranch.stateful import BatchSafeProcessor, transform

def both(a, b):
    return a.select("key", "value", "event_time").unionByName(b.select("key", "value", "event_time"))

def windowed(a, b):
    g = both(a, b).groupBy(F.window("event_time", "200 milliseconds"), "key").agg(F.sum("value").alias("total"))
    return g.select("key", "total", F.col("window.end").alias("event_time"))

def joined(a, b):
    left = a.select(F.col("key").alias("k"), F.col("value").alias("x"), F.col("event_time").alias("at"))
    right = b.select("key", F.col("value").alias("y"), F.col("event_time").alias("bt"))
    pairs = left.join(right, F.expr("k = key AND bt >= at - INTERVAL 100 MILLISECONDS AND bt <= at + INTERVAL 100 MILLISECONDS"))
    return pairs.select("key", "x", "y", F.greatest("at", "bt").alias("event_time"))

class Total(BatchSafeProcessor):
    state_schema = "total BIGINT"

    def row(self, key, row, state, timers):
        total = (state or (0,))[0] + row.value
        return (total,), [Row(key=key[0], total=total, event_time=row.event_time)]

    def timer(self, key, at, state, timers):
        return state, []

def counted(first):
    g = first.groupBy(F.window("event_time", "200 milliseconds"), "key").agg(F.sum("value").alias("total"))
    return g.select("key", "total", F.col("window.end").alias("event_time"))

def totals(a, b):
    return transform(both(a, b), ["key"], Total(), "key BIGINT, total BIGINT, event_time TIMESTAMP")
"""


def rows_a(bucket: int) -> Rows:
    return [((bucket - 1) * W + 10 + i * 7, i % 3, bucket + i) for i in range(6)]


def rows_b(bucket: int) -> Rows:
    return [((bucket - 1) * W + 13 + i * 11, i % 3, 1_000 + bucket * i) for i in range(5)]


def expect_both(upto: int) -> dict[int, Counter[tuple[Any, ...]]]:
    return {
        b: Counter((key, value, event_time) for event_time, key, value in rows_a(b) + rows_b(b))
        for b in range(1, upto + 1)
    }


def expect_windowed(upto: int) -> dict[int, Counter[tuple[Any, ...]]]:
    totals: dict[tuple[int, int], int] = defaultdict(int)
    for bucket in range(1, upto + 1):
        for event_time, key, value in rows_a(bucket) + rows_b(bucket):
            totals[event_time // 200 * 200 + 200, key] += value
    found: dict[int, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for (end, key), total in totals.items():
        found[end // W][key, total, end] += 1
    return found


def expect_joined(upto: int) -> dict[int, Counter[tuple[Any, ...]]]:
    left = [row for b in range(1, upto + 1) for row in rows_a(b)]
    right = [row for b in range(1, upto + 1) for row in rows_b(b)]
    found: dict[int, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for at, k, x in left:
        for bt, key, y in right:
            if k == key and at - 100 <= bt <= at + 100:
                event_time = max(at, bt)
                found[-(-event_time // W)][key, x, y, event_time] += 1
    return found


def expect_totals(upto: int) -> dict[int, Counter[tuple[Any, ...]]]:
    totals: Counter[int] = Counter()
    found: dict[int, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for bucket in range(1, upto + 1):
        for event_time, key, value in sorted(rows_a(bucket) + rows_b(bucket)):
            totals[key] += value
            found[bucket][key, totals[key], event_time] += 1
    return found


EXPECT: dict[str, Callable[[int], dict[int, Counter[tuple[Any, ...]]]]] = {
    "both": expect_both,
    "windowed": expect_windowed,
    "joined": expect_joined,
    "totals": expect_totals,
}


@dataclass(frozen=True)
class Seen:
    """A boundary record of the stage and when the test saw it."""

    at_ms: int
    record: BoundaryRecord


class Watcher:
    """Follows the stage's boundary log."""

    def __init__(self, output: Output) -> None:
        self._reader, self._clock = output.reader, SystemClock()
        self.seen: list[Seen] = []
        output.reader._listener = self._take

    def _take(self, _offset: int, entry: LogEntry, outcome: Any) -> None:
        if isinstance(entry, BoundaryRecord) and outcome.accepted:
            self.seen.append(Seen(self._clock.monotonic_ms(), entry))

    def poll(self) -> None:
        self._reader.poll(50)

    def tentative(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.record.kind is BoundaryKind.TENTATIVE]


def longest_delay_ms(watcher: Watcher, feed: LiveFeed, first: int) -> tuple[int, int]:
    """(longest, its bucket) of the times from a bucket's due time to the first record, of any
    kind, that closes it, from ``first`` on.
    """
    longest, where, closed = 0, 0, first - 1
    for seen in watcher.seen:
        for bucket in range(closed + 1, seen.record.closed + 1):
            if bucket in feed.due_ms and seen.at_ms - feed.due_ms[bucket] > longest:
                longest, where = seen.at_ms - feed.due_ms[bucket], bucket
        closed = max(closed, seen.record.closed)
    return longest, where


class Bench:
    """One stage over two live sources, what it writes, and the answer."""

    def __init__(
        self, kafka: str, folder: Path, function: str, *, replicas: int = 1, chain: bool = False
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
            FUNCTIONS,
            sources=("a", "b"),
            live=True,
            max_delay_ms=MAX_DELAY_MS,
            stages=stages,
        )
        create_topics(kafka, self.pipeline)
        self._feeds = [Feed(kafka, self.pipeline, source) for source in ("a", "b")]
        self.a, self.b = (
            LiveFeed(self._feeds[0], rows_a, PERIOD_MS),
            LiveFeed(self._feeds[1], rows_b, PERIOD_MS),
        )
        self.output = Output(kafka, self.pipeline, "merged")
        self.watcher = Watcher(self.output)
        self._alive: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for live in (self.a, self.b):
            live.__exit__()
        for feed in self._feeds:
            feed.close()
        self.output.close()

    @property
    def log_state(self) -> LogState:
        return self.output.reader.log_state

    def watch(self, *alive: Callable[[], None]) -> None:
        """Each of ``alive`` raises what ended a stage."""
        self._alive = list(alive)

    def until(self, condition: Callable[[], bool], deadline_s: float, what: str) -> None:
        """Follow the stage's log until ``condition``."""

        def check() -> bool:
            for error in (self.a.error, self.b.error):
                if error is not None:
                    raise error
            for alive in self._alive:
                alive()
            self.watcher.poll()
            return condition()

        wait_until(check, deadline_s, what)

    def begin(self) -> None:
        """Start the sources; until the stage keeps up with them."""
        self.a.__enter__()
        self.b.__enter__()
        self.until(lambda: self.log_state.upto >= 20, 90, "twenty stable buckets")
        self.until(lambda: self.log_state.upto >= self.a.bucket - 20, 90, "the stage to keep up")

    def directories(self) -> list[str]:
        """The checkpoint directories of replica 0."""
        return sorted(
            path.name for path in (self.state / "processing" / "merged.0" / "checkpoints").iterdir()
        )

    def check(self) -> None:
        """Every stable bucket is the oracle's."""
        last = self.log_state.upto
        expected = EXPECT[self.function](last)
        found = self.output.buckets(1, last)
        for bucket in range(1, last + 1):
            rows = Counter(
                (*(v for k, v in row.items() if k != "event_time"), row["event_time"])
                for row in found.get(bucket, [])
            )
            assert rows == expected.get(bucket, Counter()), f"bucket {bucket}"


def in_process(bench: Bench, stage: RunningStage) -> ReplicaRunner:
    """Wait until the stage in this process is ready."""

    def alive() -> None:
        if stage.error is not None:
            raise stage.error

    bench.watch(alive)
    bench.until(
        lambda: stage.service.status.state in ("running", "waiting"), 90, "the stage to be ready"
    )
    runner = stage.service._runner
    assert runner is not None
    return runner


def state_of(runner: ReplicaRunner) -> ReplicaState:
    return runner.state


@pytest.mark.parametrize(
    "function",
    [
        "windowed",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("both", "joined", "totals")),
    ],
)
def test_a_stage_goes_on_without_an_input_and_corrects_itself(
    kafka: str, tmp_path: Path, function: str
) -> None:
    with Bench(kafka, tmp_path, function) as bench:
        with RunningStage(bench.pipeline, "merged.0", kafka, bench.state) as stage:
            runner = in_process(bench, stage)
            bench.begin()
            assert bench.watcher.tentative() == [], "nothing is missing"
            bench.b.cut()
            cut_at = bench.b.sent
            bench.until(
                lambda: bench.log_state.tentative_upto("0") >= cut_at + 40, 90, "tentative buckets"
            )
            assert state_of(runner) is ReplicaState.UP_FAILURE
            assert bench.log_state.upto <= cut_at
            assert all(
                seen.record.missing == ("b",)
                for seen in bench.watcher.tentative()
                if seen.record.closed > cut_at + 1
            )
            bench.b.heal()
            healed_at = bench.b.bucket
            bench.until(
                lambda: bench.log_state.upto > healed_at and runner.branch is None,
                90,
                "the corrections",
            )
            bench.until(
                lambda: bench.log_state.upto > healed_at + 20, 90, "twenty more stable buckets"
            )
            assert state_of(runner) is ReplicaState.STABLE
            assert len({seen.record.branch for seen in bench.watcher.tentative()}) == 1, (
                "one failure, one branch"
            )
            longest, where = longest_delay_ms(bench.watcher, bench.a, cut_at - 5)
            bench.until(
                lambda: bench.directories() == [runner.stable_query],
                90,
                "the branch's directory is gone",
            )  # Spark may write there once more
        bench.check()
        print(
            f"{function}: longest delay of a new result {longest} ms at bucket {where},"
            f" {len(bench.watcher.tentative())} tentative records"
        )


@pytest.mark.nightly
def test_a_failure_shorter_than_the_wait_leaves_no_trace(kafka: str, tmp_path: Path) -> None:
    with Bench(kafka, tmp_path, "windowed") as bench:
        with RunningStage(bench.pipeline, "merged.0", kafka, bench.state) as stage:
            in_process(bench, stage)
            bench.begin()
            bench.b.cut()
            cut_at = bench.b.sent
            bench.until(lambda: bench.a.bucket >= cut_at + 7, 30, "0.7 s")
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
            bench.begin()
            bench.b.cut()
            cut_at = bench.b.sent
            bench.until(
                lambda: bench.log_state.tentative_upto("0") >= cut_at + 15,
                90,
                "tentative buckets without b",
            )
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
            healed_at = bench.a.bucket
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
        bench.check()


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
            healed_at = bench.b.bucket
            bench.until(lambda: bench.log_state.upto > healed_at + 10, 120, "the corrections")
        bench.check()


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
            bench.begin()
            bench.until(
                lambda: bench.log_state.closed("1") >= bench.a.bucket - 30, 90, "the second replica"
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
            healed_at = bench.b.bucket
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
        bench.check()


@pytest.mark.nightly
def test_a_chain_waits_once_and_corrects_itself(kafka: str, tmp_path: Path) -> None:
    with Bench(kafka, tmp_path, "windowed", chain=True) as bench:
        with (
            StageProcess(bench.pipeline, "first.0", kafka, bench.state) as one,
            StageProcess(bench.pipeline, "merged.0", kafka, bench.state) as two,
        ):
            bench.watch(one.check, two.check)
            bench.begin()
            bench.b.cut()
            cut_at = bench.b.sent
            bench.until(
                lambda: bench.log_state.tentative_upto("0") >= cut_at + 40,
                120,
                "tentative buckets at the end of the chain",
            )
            late = [
                seen.record for seen in bench.watcher.tentative() if seen.record.closed > cut_at + 1
            ]
            assert {record.missing for record in late} == {("b",)}, (
                "the source that is missing, not the stage before"
            )
            bench.b.heal()
            healed_at = bench.b.bucket
            bench.until(lambda: bench.log_state.upto > healed_at + 20, 120, "the corrections")
            longest, where = longest_delay_ms(bench.watcher, bench.a, cut_at - 5)
        bench.check()
        print(f"chain: longest delay of a new result {longest} ms at bucket {where}")
