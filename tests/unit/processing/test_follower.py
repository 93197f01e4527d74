"""Threads that follow boundary logs, and a stage's questions meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec import boundary_records
from anabranch.codec.blocks import schema_text
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.plan_offsets import INITIAL, Offset, position_fields, position_of, taken_of
from anabranch.ports import TopicPartition
from anabranch.processing.follower import InputFollower
from anabranch.processing.input_followers import usable_columns
from anabranch.processing.replica import ReplicaRunner
from anabranch.processing.replica_environment import HostProcess
from anabranch.protocol.control.failure_detector import STUCK_MS
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part
from anabranch.protocol.stage.availability import Availability, Policy, Waits
from anabranch.protocol.stage.planner import PlanTraits
from anabranch.protocol.stage.replica import StageRules
from anabranch.protocol.stage.scheduling import BatchRules
from anabranch.streams import boundary_reader
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from harness.replica_bench import STATELESS, part
from harness.waiting import wait_until
from simulation.disk import Machine, SimulatedDisk

LONG = Waits(600_000, 600_000)


class Stage:
    """Streams in memory, a runner over them and its followers, asked as Spark asks."""

    def __init__(self, names: str, traits: PlanTraits = STATELESS, waits: Waits = LONG) -> None:
        clock = SystemClock()
        self.log, self.changed = LocalEventLog(clock), threading.Condition()
        self.log.admin().create([TopicSettings(name, 1) for name in (*names, "out")])
        self.writers = {
            n: BoundaryWriter(
                self.log, n, ["0"], EpochStarted("0", "f", SeededEntropy(i).token()), clock
            )
            for i, n in enumerate(names)
        }
        self.batches = dict.fromkeys(names, 0)
        for writer in self.writers.values():
            writer.start()
        self.followers = {
            name: InputFollower(
                name, BoundaryReader(self.log, name, ["0"], lock=self.changed), self.changed
            )
            for name in names
        }
        self.runner = ReplicaRunner(
            {name: follower.reader for name, follower in self.followers.items()},
            BoundaryWriter(
                self.log, "out", ["0"], EpochStarted("0", "f", SeededEntropy(9).token()), clock
            ),
            SimulatedDisk(Machine()),
            StageRules(
                traits, Availability(names, waits, Policy.PROCESS), BatchRules(1_000, rows_max=1)
            ),
            HostProcess(clock, lock=self.changed),
        )
        self.offsets: dict[str, Offset] = {name: dict(INITIAL) for name in names}
        for follower in self.followers.values():
            follower.start()

    def fail_over(self) -> None:
        self.stable_query = self.runner.fail_over()
        for follower in self.followers.values():
            follower.runner = self.runner

    def close_upto(self, name: str, bucket: int, *parts: Part) -> None:
        writer, self.batches[name] = self.writers[name], self.batches[name] + 1
        writer.append(
            BoundaryRecord(
                "0", writer.epoch, BatchId("l", self.batches[name]), writer.tip(), bucket, parts
            )
        )

    def seen(self, name: str, bucket: int) -> None:
        wait_until(
            lambda: self.followers[name].reader.log_state.upto >= bucket,
            10,
            f"{name} up to {bucket}",
        )

    def trigger(self, order: str) -> bool:
        """One trigger of Spark: every input is asked once, in ``order``. Whether a batch came
        of it.
        """
        before = dict(self.offsets)
        for name in order:
            answer = self.runner.advance(self.stable_query, name, position_fields(before[name]))
            self.offsets[name] = before[name] if answer is None else answer
        assert len({position_of(offset) for offset in self.offsets.values()}) == 1, (
            "the inputs of a batch advance together"
        )
        return self.offsets != before

    def close(self) -> None:
        for follower in self.followers.values():
            follower.close()
        for follower in self.followers.values():
            follower.join(10)
            assert not follower.is_alive()


@pytest.fixture
def stages() -> Iterator[list[Stage]]:
    made: list[Stage] = []
    yield made
    for stage in made:
        stage.close()


def test_before_the_failover_the_log_is_followed_already(stages: list[Stage]) -> None:
    """A stage waits so for the columns of its input."""
    stages.append(stage := Stage("a"))
    with stage.changed:
        stage.close_upto("a", 3, part(2))
        assert stage.changed.wait(10), "whoever waits for a change is told"
    stage.seen("a", 3)


@pytest.mark.parametrize("is_stateful", [False, True])
def test_several_inputs_asked_in_turn_always_advance_together(
    stages: list[Stage], is_stateful: bool
) -> None:
    """Boundaries move at any time; ``trigger`` checks that all inputs stand at one position."""
    stages.append(stage := Stage("abc", PlanTraits(is_stateful=is_stateful, is_batch_safe=True)))
    stage.fail_over()
    g = random.Random(7)

    def move() -> None:
        left = {name: list(range(1, 61)) for name in "abc"}
        while any(left.values()):
            name = g.choice([n for n in "abc" if left[n]])
            bucket = left[name].pop(0)
            stage.close_upto(name, bucket, part(bucket))

    mover = threading.Thread(target=move)
    mover.start()
    taken: dict[str, list[int]] = {name: [] for name in "abc"}

    def ran() -> bool:
        if stage.trigger("bca"):
            for name, offset in stage.offsets.items():
                taken[name] += [bucket for bucket, _, _ in taken_of(offset)]
        return position_of(stage.offsets["a"]).bucket >= 60

    wait_until(ran, 60, "60 buckets", every_s=0)
    mover.join(10)
    assert taken == {name: list(range(1, 61)) for name in "abc"}


def test_an_idle_leader_is_answered_when_its_input_moves(stages: list[Stage]) -> None:
    stages.append(stage := Stage("a"))
    stage.fail_over()
    assert stage.trigger("a"), "the empty batch that warms the engine up"
    assert not stage.trigger("a")
    stage.close_upto("a", 1, part(1))
    wait_until(lambda: stage.trigger("a"), 10, "a plan")
    assert position_of(stage.offsets["a"]).bucket == 1


def test_a_missing_input_is_noticed_by_the_followers(stages: list[Stage]) -> None:
    stages.append(stage := Stage("ab", waits=Waits(150, 50)))
    stage.fail_over()
    stage.trigger("ab")
    stage.close_upto("a", 1, part(1))
    wait_until(lambda: stage.trigger("ab"), 20, "a tentative plan")
    assert stage.runner.state is ReplicaState.UP_FAILURE


def test_a_call_that_never_returns_ends_the_stage_and_is_named() -> None:
    """A call of librdkafka whose answer was lost may block so."""
    returns = threading.Event()

    class Stuck:
        offset_next = 7

        def poll(self, _: int) -> int:
            returns.wait()
            return 0

        def close(self) -> None:
            pass

    follower = InputFollower("a", Stuck(), threading.Condition())  # type: ignore[arg-type]
    follower.start()
    wait_until(lambda: follower._rounds, 10, "its first round")
    now_ms = 5_000
    follower.check(now_ms)
    follower.check(now_ms := now_ms + 10 * STUCK_MS)  # this process slept, too
    for _ in range(STUCK_MS // 1_000 - 2):
        follower.check(now_ms := now_ms + 1_000)
    follower.reader.offset_next = 8  # type: ignore[misc]
    follower.check(now_ms := now_ms + 1_000)
    for _ in range(STUCK_MS // 1_000 - 1):
        follower.check(now_ms := now_ms + 1_000)
    with pytest.raises(Unavailable, match=r"the log of a is not read: .* does not return"):
        follower.check(now_ms + 1_000)
    returns.set()
    follower.close()


def test_what_ends_a_follower_is_raised_in_the_stage(stages: list[Stage]) -> None:
    stages.append(stage := Stage("a"))
    stage.followers["a"].raise_error()
    stage.log.fail_next(FailingOperation.FETCH, error=Unavailable, topic="a")
    wait_until(lambda: not stage.followers["a"].is_alive(), 10, "the thread's end")
    with pytest.raises(Unavailable):
        stage.followers["a"].raise_error()


def test_columns_are_those_at_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few records a fetch brings: what precedes them is of versions that were replaced."""
    monkeypatch.setattr(boundary_reader, "_FETCH_RECORDS", 1)
    log, changed = LocalEventLog(SystemClock()), threading.Condition()
    log.admin().create([TopicSettings("a", 1)])
    writer = log.writer()
    for version, columns in enumerate(("key", "key, note"), 1):
        value, headers = boundary_records.encode(
            EpochStarted("0", "f", f"t{version}", schema=columns, version=version)
        )
        writer.send(TopicPartition("a", 0), value, headers=headers)
    writer.flush()
    writer.close()
    follower = InputFollower("a", BoundaryReader(log, "a", ["0"], lock=changed), changed)
    found = [follower.columns()]
    while follower.reader.poll(0):
        found.append(follower.columns())
    assert found == ["", "", "key, note"]
    follower.reader.close()


def test_columns_that_cannot_be_used_are_waited_for() -> None:
    """Whoever runs the stage may have written them: a replica that ends at them would end for
    ever.
    """
    good = pa.schema([("key", pa.string()), ("event_time", pa.int64())])
    assert usable_columns(schema_text(good)) == (good, "")
    assert usable_columns("") == (None, "start")
    bad = schema_text(pa.schema([("key", pa.float16())]))
    for text in ("key, note", bad):
        schema, wanted = usable_columns(text)
        assert schema is None
        assert wanted.startswith("name columns that can be used: ")
