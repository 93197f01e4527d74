"""A stream whose boundary log cannot be read, beside one whose log can be, on a log in memory."""

from __future__ import annotations

import copy

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.index import LocalIndex
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.consistency_manager.service import ConsistencyManager
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.model import Federation
from anabranch.ports import TopicPartition
from anabranch.protocol import limits
from anabranch.protocol.control.consistency import LOG_UNREAD
from anabranch.protocol.control.records import Alarm, Heartbeat
from anabranch.protocol.errors import DataMissing, Unavailable
from anabranch.protocol.limits import TRIM_EVERY_MS
from anabranch.protocol.log.unread_logs import OPEN_AGAIN_MS
from harness import outputs
from harness.control_topics import alarms, say
from harness.manager_world import started_manager
from harness.outputs import Replica, rows

AT = TopicPartition("p.first.boundaries", 0)
STAGES = ("first", "totals")
EVERY = 20


class World:
    """Two stages, each with an output, and their manager."""

    def __init__(self, *, is_traded: bool = False) -> None:
        """``is_traded``: whether a partner may run the first stage, and write its stream."""
        self.clock, self.entropy = VirtualClock(), SeededEntropy(1)
        self.log, self.index = LocalEventLog(self.clock), LocalIndex(self.clock)
        one = outputs.pipeline("p")
        stage, out = one.stages["totals"], one.outputs["out"]
        corrected = out.corrected.model_copy(update={"topic": "p.first.out"})
        other = out.model_copy(update={"name": "o", "stage": "first", "corrected": corrected})
        self.pipeline = one.model_copy(
            update={
                "stages": {name: stage.model_copy(update={"name": name}) for name in STAGES},
                "outputs": {"out": out, "o": other},
            }
        )
        if is_traded:
            federation = Federation(name="f", participant="own", partners={"other": ["first"]})
            self.pipeline = self.pipeline.model_copy(update={"federation": federation})
        self.log.admin().create([topic for _, topic in internal_topics(self.pipeline)])
        self.replicas = [
            Replica(self.log, self.pipeline, self.clock, self.entropy, stage=name)
            for name in STAGES
        ]
        self.bucket = 0

    def manager(self) -> ConsistencyManager:
        return started_manager(self.log, self.pipeline, self.clock, self.entropy, self.index)

    def close(self, buckets: int, *managers: ConsistencyManager) -> None:
        """Let both stages close buckets, of which both outputs have delivered the last but two."""
        for _ in range(buckets):
            self.bucket += 1
            for replica in self.replicas:
                replica.close_buckets(self.bucket, {self.bucket: rows(self.bucket, 2)})
            self.clock.advance(TRIM_EVERY_MS)
            upto = max(0, self.bucket - 2)
            for output in self.pipeline.outputs:
                said = Heartbeat(
                    "delivery", output, "0", -1, "running", upto, 0, checkpoint_bucket=upto
                )
                say(self.log, self.pipeline, said)
            for manager in managers:
                manager.step()

    def lose(self) -> None:
        """Delete all records of the first stage's log."""
        self.log.admin().delete_before({AT: self.log.partition(AT).end})

    def starts(self) -> list[int]:
        """Return how many blocks of each stage are deleted."""
        reader = self.log.reader()
        topics = [self.pipeline.topic_names.blocks(name, "0") for name in STAGES]
        return [
            sum(reader.offsets(TopicPartition(topic, number))[0] for number in (0, 1))
            for topic in topics
        ]

    def indexed(self) -> list[str]:
        """Return the stages of which the index has something."""
        return [name for name in STAGES if self.index.fields(f"anabranch:p:stream:{name}")]

    def unread(self) -> list[Alarm]:
        return [each for each in alarms(self.log, self.pipeline) if each.kind == LOG_UNREAD]


@pytest.fixture
def world() -> World:
    return World()


def test_a_log_that_lost_records_holds_up_no_other_and_nothing_of_it_is_trimmed(
    world: World,
) -> None:
    manager = world.manager()
    world.close(6, manager)
    before = world.starts()
    assert (min(before) > 0, world.indexed()) == (True, ["first", "totals"])
    world.close(1)
    whole = copy.deepcopy(world.log.topics[AT.topic][1][0])
    world.lose()
    world.close(4, manager)
    assert "first: p.first.boundaries: its first records are deleted" in str(
        manager.status.waiting_for
    )
    after = world.starts()
    assert after[0] == before[0]
    assert after[1] > before[1]
    assert world.indexed() == ["totals"]
    assert list(manager.status.detail["stable_bucket_ms"]) == ["totals"]  # type: ignore[call-overload]
    (alarm,) = world.unread()
    assert alarm.stream == "first"
    assert "Restore the topic from a copy" in alarm.text

    world.log.topics[AT.topic][1][0] = whole
    world.clock.advance(OPEN_AGAIN_MS)
    manager.step()
    world.clock.advance(TRIM_EVERY_MS)
    manager.step()
    assert (manager.status.waiting_for, world.indexed()) == (None, ["first", "totals"])
    assert world.starts()[0] > before[0]
    assert len(world.unread()) == 1


def test_a_manager_starts_though_one_log_cannot_be_read(world: World) -> None:
    world.close(6)
    world.lose()
    manager = world.manager()
    world.close(2, manager)
    assert world.starts()[0] == 0
    assert world.starts()[1] > 0
    assert [each.stream for each in world.unread()] == ["first"]
    manager.stop()


@pytest.mark.parametrize("is_traded", [False, True])
def test_a_log_that_is_empty_now_is_alarmed_about_and_never_counts_as_read(
    is_traded: bool,
) -> None:
    """Retention has deleted all records of a stream that stands still."""
    world = World(is_traded=is_traded)
    manager = world.manager()
    world.close(6, manager)
    manager.stop()
    whole = copy.deepcopy(world.log.topics[AT.topic][1][0])
    world.lose()
    again = world.manager()
    for _ in range(3):
        again.step()
        assert [each.stream for each in world.unread()] == ["first"]
        assert "first: p.first.boundaries: its first" in str(again.status.waiting_for)
        assert list(again.status.detail["stable_bucket_ms"]) == ["totals"]  # type: ignore[call-overload]
        world.clock.advance(OPEN_AGAIN_MS)
    world.log.topics[AT.topic][1][0] = whole
    again.step()
    assert again.status.waiting_for is None
    assert list(again.status.detail["stable_bucket_ms"]) == list(STAGES)  # type: ignore[call-overload]
    again.stop()


def test_a_manager_that_was_overtaken_continues_at_a_snapshot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY_RECORDS", EVERY)
    paused, other = world.manager(), world.manager()
    world.close(3 * EVERY, other)
    assert world.log.partition(AT).start > EVERY
    world.close(2, paused)
    assert paused.status.waiting_for is None
    other.step()
    assert paused.status.detail["stable_bucket_ms"] == other.status.detail["stable_bucket_ms"]
    assert world.unread() == []
    world.close(3 * EVERY, paused)
    assert paused.status.detail["no_log_snapshot"] == {}


def test_in_another_life_of_a_stream_the_manager_begins_anew(world: World) -> None:
    """Its trim points are those of the former life."""
    manager = world.manager()
    world.close(6, manager)
    admin = world.log.admin()
    admin.delete_topics([AT.topic])
    admin.create([TopicSettings(AT.topic, 1)])
    manager.step()
    with pytest.raises(DataMissing, match="deleted and created again"):
        manager.step()
    assert world.starts()[0] > 0
    manager.stop()


def test_a_client_that_has_given_up_ends_the_manager(world: World) -> None:
    manager = world.manager()
    world.close(1, manager)
    world.log.fail_next(FailingOperation.FETCH, error=Unavailable, topic=AT.topic)
    with pytest.raises(Unavailable):
        manager.step()


def test_a_topic_that_is_missing_at_the_start_is_waited_for(world: World) -> None:
    world.log.admin().delete_topics([AT.topic])
    with pytest.raises(Unavailable, match=r"first: .*does not exist"):
        world.manager()
