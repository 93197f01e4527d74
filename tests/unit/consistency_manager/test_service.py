"""The consistency manager on a log and an index in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.index import LocalIndex
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog, LocalLogAdmin
from anabranch.codec import boundary_records, control_records
from anabranch.consistency_manager.index_image import REWRITE_MS
from anabranch.consistency_manager.service import ConsistencyManager
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.model import Federation
from anabranch.ports import LogWriter, TopicPartition
from anabranch.protocol.control.records import Alarm, AskOutcome, AskReply, Fence, Heartbeat
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.streams.boundary_writer import BoundaryWriter
from harness import outputs
from harness.control_topics import alarms, all_control_records, say
from harness.lost_ends import lose_ends
from harness.manager_world import started_manager
from harness.outputs import Replica, create_topics, rows
from harness.plain_pipelines import stage

CONTROL = TopicPartition("p.control.processing.totals.0", 0)


class World:
    """A stage of two replicas, its manager and its index."""

    def __init__(self, replicas: int = 2, shards: int = 1) -> None:
        self.clock, self.entropy = VirtualClock(), SeededEntropy(1)
        self.log, self.index = LocalEventLog(self.clock), LocalIndex(self.clock)
        self.pipeline = outputs.pipeline("p", replicas=replicas, shards=shards)
        create_topics(self.log, self.pipeline)
        names = self.pipeline.stream_writers("totals")
        self.replicas = [
            Replica(self.log, self.pipeline, self.clock, self.entropy, name) for name in names
        ]

    def manager(self, *, index: bool = True) -> ConsistencyManager:
        kept = self.index if index else None
        return started_manager(self.log, self.pipeline, self.clock, self.entropy, kept)

    def alarms(self) -> list[Alarm]:
        return alarms(self.log, self.pipeline)

    def beat(self, state: str, *, value: bytes | None = None) -> None:
        writer = self.log.writer()
        beat = Heartbeat("processing", "totals", "0", 0, state, 1, self.clock.now_ms())
        writer.send(CONTROL, value or control_records.encode(beat))
        writer.flush()

    def delivery_says(self, rejected: int, process: str = "out") -> None:
        say(
            self.log,
            self.pipeline,
            Heartbeat(
                "delivery", process, "0", -1, "running", 1, self.clock.now_ms(), rejected=rejected
            ),
        )

    def content(self) -> dict[str, object]:
        """Return the content of the index, without the heartbeats."""
        keys = [k for k in self.index.keys("anabranch:p:") if ":process:" not in k]
        return {k: self.index.fields(k) for k in keys}


@pytest.fixture
def world() -> World:
    return World()


def test_it_writes_the_index(world: World) -> None:
    manager = world.manager()
    world.replicas[0].close_buckets(3, {2: rows(2, 6)})
    world.beat("stable")
    manager.step()
    assert world.index.fields("anabranch:p:stream:totals") == {"upto": "3"}
    assert world.index.fields("anabranch:p:boundary:totals:0")["bucket"] == "3"
    assert world.index.fields("anabranch:p:process:processing:totals:0")["state"] == "stable"
    assert manager.status.last_bucket_ms == 300
    manager.step()
    assert manager.status.detail["processes"] == {
        "processing:totals:0": "stable",
        "consistency_manager:p:0": "starting",
    }
    for _ in range(20):
        world.clock.advance(1_000)
        manager.step()
    assert world.index.fields("anabranch:p:process:processing:totals:0") == {}
    assert manager.status.detail["processes"] == {"consistency_manager:p:0": "starting"}


def test_alarms_that_a_broker_lost_are_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = world.manager()
    lose_ends(monkeypatch)
    with pytest.raises(Unavailable, match="no record arrived"):
        list(manager._old_alarms())


@pytest.mark.parametrize("looks_after_the_copy", [0, 1, 5])
def test_an_index_that_came_back_as_an_old_copy_is_written_anew(
    world: World, looks_after_the_copy: int
) -> None:
    """A Redis that was killed reads its last copy from its disk, which may be a moment old."""
    managers = [world.manager(), world.manager()]
    world.replicas[0].close_buckets(3, {2: rows(2, 6)})
    for manager in [*managers, *managers]:
        manager.step()
    old = world.index.saved()
    world.replicas[0].close_buckets(5, {5: rows(5, 6)})
    for manager in managers:
        manager.step()
    for _ in range(looks_after_the_copy):
        world.clock.advance(1_000)
        for manager in managers:
            manager.step()
    content = world.content()
    world.index.restore(old)
    assert world.content() != content
    for _ in range(REWRITE_MS // 500 + 1):
        world.clock.advance(500)
        for manager in managers:
            manager.step()
    assert world.content() == content


def test_a_replica_that_two_contradict_is_fenced_once_over_restarts() -> None:
    world = World(replicas=3)
    manager = world.manager()
    for replica, count in zip(world.replicas, (6, 6, 7), strict=True):
        replica.close_buckets(2, {2: rows(2, count)})
    manager.step()
    world.manager().step()
    manager.step()
    control = all_control_records(world.log, world.pipeline)
    (fence,) = [entry for entry in control if isinstance(entry, Fence)]
    assert (fence.stage, fence.replica, fence.epoch) == ("totals", "2", world.replicas[2].epoch)
    assert sorted(alarm.kind for alarm in world.alarms()) == [
        "digest_mismatch",
        "digest_mismatch",
        "replica_fenced",
    ]


def test_rows_that_came_out_differently_are_one_alarm_over_requests_and_restarts(
    world: World,
) -> None:
    """The reader asks until it gets its blocks, and the reply stays in its topic."""
    manager = world.manager()
    for number in (1, 2, 3):
        reason = "bucket 5 has other rows now"
        reply = AskReply("totals", "0", "delivery.out", number, AskOutcome.DIFFERENT, reason, 0)
        say(world.log, world.pipeline, reply)
        manager.step()
    world.manager().step()
    assert [alarm.kind for alarm in world.alarms()] == ["recomputed_rows_differ"]


def test_a_gap_is_an_alarm_once_over_restarts() -> None:
    world = World(replicas=1)
    stage = world.pipeline.stages["totals"].model_copy(
        update={"ha": "amnesia", "state_horizon_ms": 200}
    )
    world.pipeline = world.pipeline.model_copy(update={"stages": {"totals": stage}})
    manager = world.manager()
    world.replicas[0].close_buckets(3, {2: rows(2, 6)})
    manager.step()
    assert world.alarms() == []
    writer = BoundaryWriter(
        world.log,
        "p.totals.boundaries",
        ["0"],
        EpochStarted("0", "f1", world.entropy.token()),
        world.clock,
    )
    writer.append(BoundaryRecord("0", writer.start(), BatchId("l", 0), None, 7, missing=("a",)))
    manager.step()
    manager.step()
    again = world.manager()
    again.step()
    (alarm,) = world.alarms()
    assert (alarm.kind, alarm.stream, alarm.bucket) == ("gap", "totals", 4)
    assert "buckets 4..9" in alarm.text
    assert again._given_up.labels("p", "totals")._value.get() == 4


def test_a_partners_record_that_contradicts_the_file_is_one_alarm_over_restarts() -> None:
    world = World(replicas=1)
    federation = Federation(name="f", participant="own", partners={"other": ["totals"]})
    world.pipeline = world.pipeline.model_copy(update={"federation": federation})
    writer, at = world.log.writer(), TopicPartition("p.totals.boundaries", 0)
    wide = EpochStarted("0", "f1", "t", bucket_ms=7)
    for _ in range(2):
        writer.send(at, boundary_records.encode(wide)[0])
    writer.flush()
    manager = world.manager()
    manager.step()
    world.manager().step()
    (alarm,) = world.alarms()
    assert (alarm.kind, alarm.stream) == ("record_refused", "totals")
    assert "another width" in alarm.text


@pytest.mark.parametrize("claimed", [0, BUCKET_MAX])
@pytest.mark.parametrize("horizon_ms", [0, 200])
def test_the_input_of_a_stage_at_a_partner_is_kept_by_the_stages_log(
    claimed: int, horizon_ms: int
) -> None:
    """The partner's node writes the stage's heartbeats, and may claim what it likes."""
    world = World(replicas=1)
    after = stage("after", "totals", ha="upstream_backup", state_horizon_ms=horizon_ms)
    federation = Federation(name="f", participant="own", partners={"other": ["after"]})
    stages = {**world.pipeline.stages, "after": after}
    world.pipeline = world.pipeline.model_copy(
        update={"stages": stages, "federation": federation, "outputs": {}}
    )
    topics = [settings for _, settings in internal_topics(world.pipeline, 1)]
    world.log.admin().create([each for each in topics if each.name not in world.log.topics])
    world.replicas[0].close_buckets(19, {2: rows(2, 6)})
    at_partner = Replica(world.log, world.pipeline, world.clock, world.entropy, stage="after")
    at_partner.close_buckets(9, {2: rows(2, 6)})
    lie = Heartbeat("processing", "after", "0", 2**62, "running", 9, 0, checkpoint_bucket=claimed)
    say(world.log, world.pipeline, lie)
    manager = world.manager()
    manager.step()
    manager.step()
    assert manager._control.trim_point("totals") == 9 - 2 * (horizon_ms // 100)


def test_rubbish_in_the_control_topic_is_counted(world: World) -> None:
    manager = world.manager()
    world.beat("", value=b"rubbish")
    world.beat("", value=control_records.encode(Alarm("k", "s", 1, "t", 1)))
    manager.step()
    assert manager._control.rejected._value.get() == 2


def test_an_internal_topic_that_would_lose_records_is_reported_with_what_to_do() -> None:
    world = World()
    topic, partitions = world.log.topics["p.totals.blocks.0"]
    world.log.topics["p.totals.blocks.0"] = (
        replace(topic, config={**topic.config, "retention.ms": "604800000"}),
        partitions,
    )
    manager = world.manager()
    manager.step()
    (note,) = cast("list[str]", manager.status.detail["topics"])
    assert note.startswith(
        "topic p.totals.blocks.0 has retention.ms=604800000 instead of -1: records would be deleted"
        " before they are read"
    )
    assert note.endswith("--add-config retention.ms=-1")
    manager.stop()


def test_a_manager_that_may_not_ask_for_settings_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rejected(*_: object) -> dict[str, str]:
        raise Unavailable("not allowed")

    monkeypatch.setattr(LocalLogAdmin, "settings", rejected)
    manager = World().manager()
    manager.step()
    assert manager.status.detail["topics"] == [
        "the settings of internal topics could not be checked: not allowed"
    ]
    manager.stop()


def test_any_shard_of_an_output_raises_that_alarm() -> None:
    world = World(shards=2)
    manager = world.manager()
    for process in ("out.1", "out.0"):
        world.delivery_says(1, process)
        manager.step()
    (alarm,) = world.alarms()
    assert (alarm.kind, alarm.stream) == ("result_rejected", "totals")


def test_results_that_are_too_large_raise_one_alarm(world: World) -> None:
    manager = world.manager()
    for count in (1, 5):
        world.delivery_says(count)
        manager.step()
    again = world.manager()
    world.delivery_says(2)
    again.step()
    (alarm,) = world.alarms()
    assert (alarm.kind, alarm.stream, alarm.bucket) == ("result_rejected", "totals", -1)
    assert "p.out.rejected" in alarm.text


def test_alarms_that_cannot_be_written_are_tried_again_now_and_then(world: World) -> None:
    """A topic that may not be written is refused at once, twenty times a second."""
    manager = world.manager()
    for _ in range(10):
        world.log.fail_next(
            FailingOperation.FLUSH, applied=0, error=Unavailable, topic="p.control.alarms"
        )
    opened, writer = list[object](), world.log.writer

    def counted(*arguments: object) -> LogWriter:
        opened.append(arguments)
        return writer(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(world.log, "writer", counted)
        world.delivery_says(3)
        manager.step()
        before = len(opened)
        for _ in range(10):
            manager.step()
        assert len(opened) == before
    for _ in range(20):
        world.clock.advance(5_000)
        manager.step()
    assert [alarm.kind for alarm in world.alarms()] == ["result_rejected"]


def test_rows_that_are_too_large_for_a_stream_raise_one_alarm(world: World) -> None:
    manager = world.manager()
    for replica, count in (("0", 1), ("1", 1), ("0", 5)):
        beat = Heartbeat(
            "processing", "totals", replica, 0, "running", 1, world.clock.now_ms(), rejected=count
        )
        say(world.log, world.pipeline, beat)
        manager.step()
    (alarm,) = world.alarms()
    assert (alarm.kind, alarm.stream, alarm.bucket) == ("rows_rejected", "totals", -1)
    assert "stage totals" in alarm.text
    assert "64 MiB" in alarm.text
