"""A process of a shard compares it with its halves by their logs, answers, and knows its end."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.adapters.memory.log import FailingOperation
from anabranch.codec.catalog import topic_settings
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import Pipeline, Scaling, Stage
from anabranch.ports import Disks, Engine, EventLog
from anabranch.process.frame import ServiceContext
from anabranch.processing.half_beginning import HalfBeginning
from anabranch.processing.own_split import OwnSplit, ShardSplit
from anabranch.processing.primary import Primary
from anabranch.processing.replica_identity import ReplicaIdentity
from anabranch.processing.stage_replica import StageReplica
from anabranch.protocol.control.records import ControlRecord, Heartbeat, SplitStep, Step
from anabranch.protocol.errors import ConfigurationError, Fenced, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part
from anabranch.protocol.stage.load_control import LoadDemand
from anabranch.protocol.stage.splitting import PROVEN_BUCKETS, Attempt, SplitPhase, end
from anabranch.streams.boundary_reader import BoundaryReader, StreamReader
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.heartbeats import ControlReader
from anabranch.streams.stream_life import life_of
from anabranch.streams.stream_logs import expected_stream, input_state, open_stream
from harness import outputs
from harness.manager_world import ManagerWorld
from harness.outputs import STAGE
from harness.waiting import wait_until

HALVES = f"{STAGE}.0", f"{STAGE}.1"


class World(ManagerWorld):
    """A shard and its halves, whose logs are written by hand."""

    def __init__(self) -> None:
        super().__init__()
        stages: dict[str, Stage] = dict(self.pipeline.stages)
        whole = stages[STAGE].model_copy(update={"replicas": 1, "state_horizon_ms": 200})
        stages[STAGE] = whole
        for half in HALVES:
            stages[half] = whole.model_copy(update={"name": half, "parent": STAGE})
        self.pipeline = self.pipeline.model_copy(update={"stages": stages, "bucket_ms": 100})
        names = self.pipeline.topic_names
        assert not self.log.admin().create(
            [topic_settings("boundaries", names.boundaries(half)) for half in HALVES]
        )
        self.writers = {stream: self.writer(stream) for stream in (STAGE, *HALVES)}
        self.attempt = Attempt()
        self.answers: list[SplitStep] = []
        self.split = ShardSplit(self.context(), STAGE)
        self.why = ""
        """Why answers cannot be written."""
        self.split.access = OwnSplit(lambda: self.attempt, self.answer)
        self.detail: dict[str, Any] = {}

    def answer(self, step: SplitStep) -> str:
        self.answers.append(step)
        return self.why

    def context(self) -> ServiceContext:
        return outputs.context(
            self.log, self.pipeline, self.clock, SeededEntropy(9), "processing", f"{STAGE}.0"
        )

    def writer(self, stream: str, attempt: int = 3) -> BoundaryWriter:
        """Begin an epoch of ``stream``; of a half, for that attempt."""
        topic = self.pipeline.topic_names.boundaries(stream)
        made = BoundaryWriter(
            self.log,
            topic,
            ["0"],
            EpochStarted(
                "0",
                "f",
                f"of {stream} {attempt}",
                bucket_ms=100,
                attempt=attempt if stream in HALVES else -1,
            ),
            self.clock,
        )
        made.start()
        return made

    def close(self, stream: str, bucket: int, rows: int = 0) -> None:
        """Let ``stream`` close a bucket with so many rows."""
        writer = self.writers[stream]
        parts = (Part(bucket, 0, "a", 1, 0, 1, rows, 7 * rows),) if rows else ()
        ident = BatchId("l", bucket)
        writer.append(BoundaryRecord("0", writer.epoch, ident, writer.tip(), bucket, parts))

    def close_all(self, first: int, last: int, upper: int = 3) -> None:
        for bucket in range(first, last + 1):
            for stream, rows in zip(self.writers, (4, 1, upper), strict=True):
                self.close(stream, bucket, rows)


@pytest.fixture
def world() -> World:
    return World()


def test_equal_buckets_are_confirmed_and_then_the_stream_must_end(world: World) -> None:
    assert not world.split.round(world.detail)
    world.attempt = Attempt(SplitPhase.WANTED, 3)
    world.close_all(1, 6)
    assert not world.split.round(world.detail)
    assert world.detail["split"] == {
        "phase": "wanted",
        "attempt": 3,
        "halves": list(HALVES),
        "compared": 6,
        "needed": 8,
        "behind_ms": [0, 0],
    }
    world.close(STAGE, 7, rows=4)
    world.close(HALVES[1], 7, rows=3)
    world.split.round(world.detail)
    assert world.detail["split"]["behind_ms"] == [100, 0]
    world.close(HALVES[0], 7, rows=1)
    assert world.answers == []
    world.close_all(8, 8)
    assert not world.split.round(world.detail)
    (answer,) = world.answers
    assert (answer.shard, answer.step, answer.attempt) == (STAGE, Step.CONFIRMED, 3)
    world.attempt = Attempt(SplitPhase.CONFIRMED, 3)
    assert not world.split.was_carried_out()
    assert world.split.round(world.detail)
    assert world.detail["split"] == {"phase": "confirmed", "attempt": 3, "halves": list(HALVES)}
    writer = world.writers[STAGE]
    writer.append(end("0", writer.epoch, BatchId("e", 0), writer.log_state, 1))
    assert world.split.was_carried_out()
    assert world.split.successors == f"{HALVES[0]} and {HALVES[1]}"


def test_who_waits_for_the_end_reads_the_log_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()

    def counted(log: EventLog, pipeline: Pipeline, stream: str) -> BoundaryReader:
        opened.append(stream)
        return open_stream(log, pipeline, stream)

    monkeypatch.setattr("anabranch.processing.own_split.open_stream", counted)
    world.attempt = Attempt(SplitPhase.CONFIRMED, 3)
    for bucket in range(1, 5):
        world.close(STAGE, bucket, rows=4)
        assert not world.split.was_carried_out()
    writer = world.writers[STAGE]
    writer.append(end("0", writer.epoch, BatchId("e", 0), writer.log_state, 1))
    assert world.split.was_carried_out()
    assert opened == [STAGE]


def test_a_bucket_that_differs_is_answered_and_shown(world: World) -> None:
    world.attempt = Attempt(SplitPhase.WANTED, 3)
    world.close_all(1, 3)
    world.close_all(4, 4, upper=2)
    world.split.round(world.detail)
    (answer,) = world.answers
    assert (answer.step, answer.bucket) == (Step.WITHDRAWN, 4)
    world.attempt = Attempt(SplitPhase.WITHDRAWN, 3, answer.reason, 4)
    world.split.round(world.detail)
    assert world.detail["split"] == {
        "phase": "withdrawn",
        "attempt": 3,
        "halves": list(HALVES),
        "reason": answer.reason,
    }
    world.attempt = Attempt(SplitPhase.WANTED, 5)
    world.split.round(world.detail)
    assert world.detail["split"]["behind_ms"] == [None, None]
    assert [each.attempt for each in world.answers] == [3], "no half has begun for this attempt"
    world.writers |= {half: world.writer(half, 5) for half in HALVES}
    for half in HALVES:
        writer = world.writers[half]
        late = BoundaryRecord("0", writer.epoch, BatchId("l", 4), None, 4, missing=("a",))
        writer.append(late)
    world.close_all(5, 7, upper=2)
    world.split.round(world.detail)
    assert [each.attempt for each in world.answers] == [3, 5]
    assert world.answers[-1].bucket == 7, "what was made for the attempt before is not compared"
    world.split.close()
    world.split.close()


def test_an_answer_that_cannot_be_written_is_shown_and_given_again(world: World) -> None:
    world.attempt, world.why = Attempt(SplitPhase.WANTED, 3), "not authorized"
    world.close_all(1, 8)
    with capture_logs() as logged:
        for _ in range(3):
            world.split.round(world.detail)
    assert world.detail["split"]["trouble"] == "the answer cannot be recorded: not authorized"
    assert len(world.answers) == 3
    events = [each["event"] for each in logged]
    assert events.count("split_not_answered") == 1, "once, and not every second"
    world.why = ""
    world.split.round(world.detail)
    assert "trouble" not in world.detail["split"]


def test_while_a_log_cannot_be_read_the_stage_goes_on_and_says_so(world: World) -> None:
    world.attempt = Attempt(SplitPhase.WANTED, 3)
    world.close_all(1, 4)
    world.split.round(world.detail)
    world.close_all(5, 8)
    world.log.fail_next(FailingOperation.OFFSETS, error=Unavailable)
    world.split.round(world.detail)
    assert world.detail["split"]["trouble"]
    assert world.answers == []
    world.split.round(world.detail)
    assert "trouble" not in world.detail["split"]
    assert [each.step for each in world.answers] == [Step.CONFIRMED]


def test_halves_that_are_further_wait_for_the_shard(world: World) -> None:
    """One that is overloaded would close no bucket that could be compared."""

    def is_awaited() -> bool:
        world.split.round(world.detail)
        return world.split.is_awaited

    assert not is_awaited()
    world.attempt = Attempt(SplitPhase.WANTED, 3)
    world.close_all(1, 2)
    world.close(STAGE, 3)
    assert not is_awaited()
    for bucket in (3, 4):
        for half in HALVES:
            world.close(half, bucket)
    assert is_awaited()
    world.attempt = Attempt(SplitPhase.WITHDRAWN, 3)
    assert not is_awaited()


def test_a_half_begins_again_for_each_attempt(world: World) -> None:
    newest = Attempt(SplitPhase.WANTED, 3)
    half = ShardSplit(world.context(), HALVES[0])
    half.access = OwnSplit(parent_attempt=lambda: newest)
    assert half.begin_for() == 3
    half.check_attempt()
    newest = Attempt(SplitPhase.WITHDRAWN, 3)
    half.check_attempt()
    newest = Attempt(SplitPhase.WANTED, 8)
    with pytest.raises(Unavailable, match="to be split anew"):
        half.check_attempt()
    assert half.begin_for() == 8
    half.check_attempt()


def test_hv11_a_half_of_a_shard_that_has_ended_continues_what_it_has(world: World) -> None:
    """The log of moves was made anew, and whoever misses the halves wants the split again."""
    world.close_all(1, 2)
    writer = world.writers[STAGE]
    writer.append(end("0", writer.epoch, BatchId("e", 0), writer.log_state, 1))
    half = ShardSplit(world.context(), HALVES[0])
    half.access = OwnSplit(parent_attempt=lambda: Attempt(SplitPhase.WANTED, 9))
    assert half.begin_for() == 3, "it would begin late, and lack what it has"
    half.check_attempt()


def test_hv11_a_shard_that_has_ended_confirms_a_split_that_is_wanted_again(world: World) -> None:
    engine, disks = cast("Engine", TwoCores()), cast("Disks", None)
    replica = StageReplica(world.context(), engine, disks, "north.0")
    replica.split.access = world.split.access
    replica.split.over(7, life_of(world.log, world.pipeline.topic_names.boundaries(STAGE)))
    replica.step()
    assert not world.answers
    assert f"give `anabranch split {STAGE}`" in (replica.status.waiting_for or "")
    world.attempt = Attempt(SplitPhase.WANTED, 9)
    replica.step()
    assert [(each.step, each.attempt) for each in world.answers] == [(Step.CONFIRMED, 9)]
    world.attempt = Attempt(SplitPhase.CONFIRMED, 9)
    replica.step()
    assert len(world.answers) == 1
    assert replica.status.waiting_for == f"nothing: {HALVES[0]} and {HALVES[1]} have taken over"


@pytest.mark.parametrize(
    ("name", "phase", "is_read"),
    [
        (STAGE, SplitPhase.WANTED, True),
        (HALVES[0], SplitPhase.WANTED, False),
        (HALVES[0], SplitPhase.CONFIRMED, True),
    ],
)
def test_a_half_is_read_once_its_split_is_confirmed(
    world: World, name: str, phase: SplitPhase, *, is_read: bool
) -> None:
    replica = StageReplica(
        outputs.context(
            world.log, world.pipeline, world.clock, SeededEntropy(9), "processing", f"{name}.0"
        ),
        cast("Engine", TwoCores()),
        cast("Disks", None),
        "north.0",
    )
    replica.split.access = OwnSplit(parent_attempt=lambda: Attempt(phase, 3))
    primary = replica._primary = Mock(has_begun=True, stream_has_ended=False)
    primary.check_epoch_if_due.return_value = False
    replica._neighbours = replica._checkpoint = replica._report = Mock()
    replica.step()
    primary.runner.note_split.assert_called_once_with(is_read=is_read, is_awaited=False)


def test_a_half_begins_one_horizon_and_the_proof_before_the_shard(world: World) -> None:
    for bucket in (1, 17):
        world.close(STAGE, bucket)
    beginning = HalfBeginning(world.log, world.pipeline, HALVES[1])
    assert beginning.after(world.writers[HALVES[1]].log_state) == 17 - 2 - PROVEN_BUCKETS
    beginning.close()
    assert HalfBeginning(world.log, world.pipeline, STAGE).after(LogState(["0"])) == 0


def test_a_half_that_waits_reads_each_record_of_the_shard_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks about once a second for as long as its input is missing."""
    read = Counter[str]()

    def counted(reader: BoundaryReader, wait_ms: int) -> int:
        count = poll(reader, wait_ms)
        read["records"] += count
        return count

    poll = BoundaryReader.poll
    own = world.writers[HALVES[0]].log_state
    for bucket in range(1, 100):
        world.close(STAGE, bucket, rows=4)
    monkeypatch.setattr(BoundaryReader, "poll", counted)
    with closing(HalfBeginning(world.log, world.pipeline, HALVES[0])) as beginning:
        assert beginning.after(own) == 97 - PROVEN_BUCKETS
        whole = read["records"]
        assert [beginning.after(own) for _ in range(5)] == [97 - PROVEN_BUCKETS] * 5
        assert read["records"] == whole > 99
        world.close(STAGE, 100, rows=4)
        read.clear()
        assert beginning.after(own) == 98 - PROVEN_BUCKETS
    assert read["records"] == 1


def test_a_file_that_names_the_halves_no_more_is_an_error_and_no_silence(world: World) -> None:
    """Whoever reads the shard would wait for its next bucket for ever, and so would the shard."""
    world.close_all(1, 2)
    writer = world.writers[STAGE]
    writer.append(end("0", writer.epoch, BatchId("e", 0), writer.log_state, 1))
    halved = world.pipeline
    open_stream(world.log, halved, STAGE).read_to_end()
    whole = {name: stage for name, stage in halved.stages.items() if not stage.parent}
    world.pipeline = halved.model_copy(update={"stages": whole})
    with pytest.raises(ConfigurationError, match=r"totals\.boundaries: .*`halvings`. Put"):
        open_stream(world.log, world.pipeline, STAGE).read_to_end()
    started = EpochStarted("0", "f", "t", bucket_ms=world.pipeline.bucket_ms)
    topic = world.pipeline.topic_names.boundaries(STAGE)
    expected = expected_stream(world.pipeline, STAGE)
    own = BoundaryReader(world.log, topic, ["0"], expected=expected)
    with pytest.raises(ConfigurationError, match="halvings"):
        BoundaryWriter(world.log, topic, own, started, world.clock).start()


class Overloaded:
    """In place of ``Primary``: one whose branch leaves out rows and holds up corrections."""

    epoch, has_begun = 7, True

    def __init__(self) -> None:
        self.runner, self.boundary = self, None

    def demand(self) -> LoadDemand:
        return LoadDemand(1, is_late=True, backlog=5)

    def heartbeat(self, beat: Heartbeat) -> Heartbeat:
        return replace(beat, branch=1, room_left_ms=1)


class TwoCores:
    """In place of Spark."""

    cores = 2


def test_a_shard_that_was_split_needs_nothing_of_its_node_and_of_its_inputs(world: World) -> None:
    """Otherwise corrections of other stages wait for its own, which it never makes."""
    engine, disks = cast("Engine", TwoCores()), cast("Disks", None)
    replica = StageReplica(world.context(), engine, disks, "north.0")
    replica._primary, replica._neighbours = cast("Any", Overloaded()), cast("Any", object())
    assert replica.demand() is not None
    replica.status.detail |= {"overload": {"backlog_rows": 5}, "missing": ["readings"]}
    replica.node_load.began(STAGE, "branch")
    replica.split.over(7, "")
    replica._rest_after_split()
    assert replica.demand() is None
    assert not replica.load("running").leads
    beat = replica._heartbeat()
    assert beat is not None
    assert (beat.epoch, beat.branch, beat.room_left_ms) == (7, None, None)
    assert beat.checkpoint_bucket == BUCKET_MAX
    assert "overload" not in replica.status.detail
    assert replica.status.detail["missing"] == []
    world.clock.advance(1_000)
    assert replica.node_load.ended(STAGE, "branch") == 0.0


@pytest.mark.parametrize("name", [STAGE, HALVES[0]])
def test_the_void_buckets_of_a_half_are_no_results_that_are_given_up(
    world: World, name: str
) -> None:
    """They are read from its shard, and an error in the log would frighten whoever splits one."""
    own = ReplicaIdentity.of(
        world.pipeline, f"{name}.0", "north.0", may_run_elsewhere=False, has_place=True
    )
    runner = Mock(boundary=world.writers[name], given_up=5)
    report = StageReplica(
        world.context(), cast("Engine", TwoCores()), cast("Disks", None), "north.0"
    )._report
    Primary(world.context(), own, Mock(), Mock(), runner, report).begin(Mock())
    assert ("given_up_ms" in report.status.detail) == (name == STAGE)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_replica_rests_when_another_one_has_ended_the_stream(
    world: World, *, is_replaced: bool
) -> None:
    """Its next batch is rejected, like one of a process that was replaced, which ends its node."""
    writers, topic = [], world.pipeline.topic_names.boundaries(STAGE)
    for name in "01":
        started = EpochStarted(name, "f", f"again {name}", bucket_ms=100)
        writers.append(BoundaryWriter(world.log, topic, ["0", "1"], started, world.clock))
        writers[-1].start()
    first, second = writers
    own = ReplicaIdentity.of(
        world.pipeline, f"{STAGE}.0", "north.0", may_run_elsewhere=False, has_place=True
    )
    own = replace(own, replica="1")
    engine, disks = cast("Engine", TwoCores()), cast("Disks", None)
    replica = StageReplica(world.context(), engine, disks, "north.0")
    runner = Mock(boundary=second, stable_query="t")
    primary = Primary(world.context(), own, Mock(), Mock(), runner, replica._report)
    primary.has_begun = True
    replica._primary, replica._neighbours = primary, Mock()
    first.append(end("0", first.epoch, BatchId("e", 0), first.log_state, 1))
    if is_replaced:
        again = EpochStarted("1", "f", "a newer process", bucket_ms=100)
        BoundaryWriter(world.log, topic, ["0", "1"], again, world.clock).start()

    def ended(_wait_ms: int) -> bool:
        second.append(BoundaryRecord("1", second.epoch, BatchId("l", 1), second.tip(), 1))
        return False

    query = primary._running["t"] = Mock(ended=ended)
    runner.orders.return_value = []
    if is_replaced:
        with pytest.raises(Fenced):
            replica.step()
        return
    replica.step()
    assert replica.split.is_over
    query.stop.assert_called()
    assert replica.status.state == "standby"
    replica.step()


def test_a_shard_that_starts_after_its_end_lets_go_of_its_inputs(world: World) -> None:
    """The process before was killed between the end and its next heartbeat."""
    writer = world.writers[STAGE]
    world.close_all(1, 2)
    writer.append(end("0", writer.epoch, BatchId("e", 0), writer.log_state, 1))
    world.attempt = Attempt(SplitPhase.CONFIRMED, 3)
    engine, disks = cast("Engine", TwoCores()), cast("Disks", None)
    replica = StageReplica(world.context(), engine, disks, "north.0")
    replica.split.access = world.split.access
    replica.start()
    try:
        topic = world.pipeline.topic_names.control("processing", f"{STAGE}.0")
        speakers = {topic: control_topics(world.pipeline)[topic]}
        reader = ControlReader(world.log, speakers, from_beginning=True)
        heard = list[ControlRecord]()

        def is_heard() -> bool:
            heard.extend(reader.poll())
            return bool(heard)

        wait_until(is_heard, 10, "a heartbeat")
        (beat, *_) = heard
        assert isinstance(beat, Heartbeat)
        assert (beat.epoch, beat.checkpoint_bucket) == (writer.epoch, BUCKET_MAX)
        assert replica.status.state == "standby"
        replica.step()
        topic = world.pipeline.topic_names.boundaries(STAGE)
        with closing(world.log.admin()) as admin:
            admin.delete_topics([topic])
            assert not admin.create([topic_settings("boundaries", topic)])
        replica.step()
        world.clock.advance(60_000)
        with pytest.raises(Unavailable, match="was made anew"):
            replica.step()
    finally:
        replica.stop()


def test_a_process_that_stands_by_rests_when_the_shard_was_split(world: World) -> None:
    """It was moved meanwhile: nobody makes the newer checkpoint that it would wait for."""
    engine, disks = cast("Engine", TwoCores()), cast("Disks", None)
    replica = StageReplica(world.context(), engine, disks, "north.0")
    replica.split.access = world.split.access
    standby = replica._warm_standby = Mock()
    replica._prepared = Mock()
    standby.round.return_value = False
    standby.standby.fetched = {}
    replica._inputs = Mock()
    world.attempt = Attempt(SplitPhase.CONFIRMED, 3)
    replica.step()
    standby.cool_down.assert_not_called()
    writer = world.writers[STAGE]
    writer.append(end("0", writer.epoch, BatchId("e", 0), writer.log_state, 1))
    replica.step()
    assert replica.split.is_over
    assert replica.status.waiting_for == f"nothing: {HALVES[0]} and {HALVES[1]} have taken over"
    standby.cool_down.assert_called()


def test_hv13_a_process_that_begins_when_the_split_is_confirmed_restores_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node of the one before was lost, and the halves were faster."""
    monkeypatch.setattr("anabranch.processing.stage_replica.stage_rules", Mock())
    world.close_all(1, 9)
    world.attempt = Attempt(SplitPhase.CONFIRMED, 3)
    engine, disks = cast("Engine", TwoCores()), cast("Disks", None)
    replica = StageReplica(world.context(), engine, disks, "north.0")
    replica.split.access = world.split.access
    disk = replica._checkpoint = Mock(life="")
    disk.disk.newest.return_value = None
    replica._open_neighbours = neighbours = Mock()  # type: ignore[method-assign]
    neighbours.return_value.fences.fenced.return_value = {}
    replica._fail_over(Mock(fingerprint="f", schema=pa.schema([])))
    assert replica.split.is_over
    state = world.writers[STAGE].log_state
    with closing(open_stream(world.log, world.pipeline, STAGE)) as reader:
        reader.read_to_end()
        state = reader.log_state
        assert state.heirs == len(HALVES)
        assert state.closed_upto == 9
        assert (state.epoch("0") or 0) > world.writers[STAGE].epoch
    disk.disk.copy.assert_not_called()
    assert replica.status.state == "standby"


def test_an_answer_needs_no_epoch(world: World) -> None:
    """A process that stands by on a node of the pool compares what the lost one has left."""
    engine, disks = cast("Engine", TwoCores()), cast("Disks", None)
    replica = StageReplica(world.context(), engine, disks, "north.0")
    replica.split.access = world.split.access
    standby = replica._warm_standby = Mock()
    replica._prepared, replica._inputs = Mock(), Mock()
    standby.round.return_value, standby.standby.fetched = False, {}
    world.attempt = Attempt(SplitPhase.WANTED, 3)
    world.close_all(1, 6)
    world.clock.advance(1_000)
    replica.step()
    shown = replica.status.detail["split"]
    assert isinstance(shown, dict)
    assert shown["compared"] == 6
    world.close_all(7, 8)
    replica.step()
    assert world.answers == [], "it compares once a second"
    world.clock.advance(1_000)
    replica.step()
    assert [each.step for each in world.answers] == [Step.CONFIRMED]


@pytest.mark.parametrize(("parallel", "kept"), [(1, 20), (2, 20 - 2 - PROVEN_BUCKETS)])
def test_input_is_kept_for_halves_of_a_shard_that_may_be_lost(
    world: World, parallel: int, kept: int
) -> None:
    section = Scaling(
        pool=["a", "b"], above_permille=700, for_ms=5_000, rest_ms=5_000, parallel=parallel
    )
    world.pipeline = world.pipeline.model_copy(update={"scaling": section})
    world.close_all(1, 20)
    own = ReplicaIdentity.of(
        world.pipeline, f"{STAGE}.0", "north.0", may_run_elsewhere=False, has_place=True
    )
    runner = Mock(boundary=world.writers[STAGE], synced_bucket=20)
    primary = Primary(world.context(), own, Mock(), Mock(), runner, Mock(bucket=20))
    primary.has_begun = True
    runner.load_figures.return_value = None
    beat = primary.heartbeat(Heartbeat("processing", STAGE, "0", 0, "running", 0, 0))
    assert beat.checkpoint_bucket == kept


def test_who_reads_the_shard_takes_its_halves_after_its_end(world: World) -> None:
    """It follows all three from the beginning."""
    world.close_all(1, 4)
    opened: dict[str, StreamReader] = {}
    for stream in (STAGE, *HALVES):
        state = input_state(world.pipeline, stream, opened)
        opened[stream] = open_stream(world.log, world.pipeline, stream, new_state=state)
        opened[stream].read_to_end()
    states = [reader.log_state for reader in opened.values()]
    assert [state.upto for state in states] == [4, BUCKET_MAX, BUCKET_MAX]
    world.close(HALVES[0], 6, rows=1)
    writer = world.writers[STAGE]
    writer.append(end("0", writer.epoch, BatchId("e", 0), writer.log_state, 1))
    for reader in opened.values():
        reader.read_to_end()
    assert [state.upto for state in states] == [BUCKET_MAX, 6, 4]
    assert [[b for b, _, _ in state.stable(4, 4)] for state in states] == [[4], [], []]
    assert [b for b, _, _ in states[1].stable(5, 6)] == [6]
