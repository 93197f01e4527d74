"""Control records of the manager (fences, trim points, heartbeats), on a log in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.codec import control_records
from anabranch.codec.catalog import TopicSettings
from anabranch.consistency_manager.control import ManagerControl, readers_of
from anabranch.consistency_manager.index_image import IndexImage
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.control.alarm_conditions import (
    OUTPUT_AWAY,
    OVERLOAD_LASTS,
    ROOM_WARNED_MS,
)
from anabranch.protocol.control.failure_detector import Peer
from anabranch.protocol.control.records import (
    INPUT_MISSING,
    INPUT_REFUSED,
    Alarm,
    Ask,
    AskOutcome,
    AskReply,
    ControlRecord,
    Fence,
    Heartbeat,
    TrimPoint,
    Vote,
)
from anabranch.protocol.limits import HEARTBEAT_SEND_MS, TRIM_EVERY_MS
from anabranch.protocol.log.boundary_log import LogState
from anabranch.streams.stream_life import life_of
from harness import outputs
from harness.boundary_logs import part, record, started
from harness.control_topics import all_control_records, say
from harness.outputs import create_topics
from harness.plain_pipelines import stage

BEAT = Heartbeat("processing", "totals", "0", 7, "running", 9, 0)
DELIVERY = Heartbeat("delivery", "out", "0", -1, "running", 9, 0, checkpoint_bucket=5)


class World:
    """Stage of three replicas with an output, and the manager's control topics."""

    def __init__(self, *, live: bool = False) -> None:
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        self.pipeline = outputs.pipeline("p", replicas=3, live=live)
        create_topics(self.log, self.pipeline)
        self.image = IndexImage("p")

    def life(self, stream: str) -> str:
        return life_of(self.log, self.pipeline.topic_names.boundaries(stream))

    def make_anew(self, stream: str) -> None:
        """Delete and create the boundary log of ``stream``; control topics stay."""
        topic = self.pipeline.topic_names.boundaries(stream)
        self.log.admin().delete_topics([topic])
        self.log.admin().create([TopicSettings(topic, 1)])

    def room(self) -> ManagerControl:
        room = ManagerControl(
            outputs.context(
                self.log, self.pipeline, self.clock, SeededEntropy(1), "consistency_manager", "p"
            ),
            self.image,
        )
        room.start()
        return room

    def hears(self, *entries: ControlRecord) -> None:
        say(
            self.log,
            self.pipeline,
            *(replace(entry, written_ms=self.clock.now_ms()) for entry in entries),
        )

    def records_of(self, kind: type[ControlRecord]) -> list[ControlRecord]:
        return [
            entry
            for entry in all_control_records(self.log, self.pipeline)
            if isinstance(entry, kind)
            and getattr(entry, "service", "") in ("", "consistency_manager")
        ]

    def content(self) -> dict[str, object]:
        found: dict[str, object] = {}
        while (write := self.image.next_write(self.clock.now_ms())) is not None:
            found[write.key.removeprefix("anabranch:p:")] = write.fields
            self.image.written(write, self.clock.now_ms())
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_it_lives_and_says_so(world: World) -> None:
    room = world.room()
    assert room.round({"totals": 8}, "running") == 0
    assert room.round({"totals": 8}, "running") == 1
    (beat,) = world.records_of(Heartbeat)
    assert isinstance(beat, Heartbeat)
    assert (beat.service, beat.name, beat.bucket) == ("consistency_manager", "p", 8)


def contradicted(epoch: int, *, newest: int = 30) -> tuple[Fence, LogState]:
    """Return the fence of replica 2 for the bucket 2 that its process of ``epoch`` made, and its
    stage's log, in which the replica's newest epoch is ``newest``.
    """
    log_state = LogState("012")
    for writer, begun in (("0", 0), ("1", 1), ("2", epoch)):
        log_state.apply(begun, started(writer, token=f"{writer} {begun}"))
        made = (part(2, rows=3 if writer == "2" else 2),)
        log_state.apply(begun + 1, record(begun, 0, 2, made, replica=writer))
    log_state.apply(newest, started("2", token="newest"))
    votes = (Vote("0", 0, 2, 7), Vote("1", 1, 2, 7), Vote("2", epoch, 3, 7))
    return Fence("totals", "2", epoch, 2, votes, 0), log_state


def test_a_fence_is_written_once_and_until_it_is_there(world: World) -> None:
    room = world.room()
    fence, log_state = contradicted(9)
    assert room.fence(fence, log_state)
    assert not room.fence(replace(fence, written_ms=5), log_state)
    world.log.fail_next(FailingOperation.FLUSH, applied=0, topic="p.fences")
    room.round({}, "running")
    assert world.records_of(Fence) == []
    world.clock.advance(HEARTBEAT_SEND_MS)
    room.round({}, "running")
    room.round({}, "running")
    assert world.records_of(Fence) == [replace(fence, life=world.life("totals"))]
    assert not world.room().fence(fence, log_state)
    room.close()
    room.close()


def test_every_fence_there_ever_was_is_known_after_a_restart(world: World) -> None:
    """One replica may have several, whether the topic is compacted or not: each has a key of its
    own.
    """
    room = world.room()
    made = [contradicted(9), contradicted(20)]
    assert all(room.fence(*each) for each in made)
    room.round({}, "running")
    life = world.life("totals")
    assert world.records_of(Fence) == [replace(fence, life=life) for fence, _ in made]
    assert len({control_records.key_of(fence) for fence, _ in made}) == 2
    assert not any(world.room().fence(*each) for each in made)


def test_a_forged_fence_does_not_keep_the_manager_from_writing_its_own(world: World) -> None:
    fence, log_state = contradicted(9)
    world.hears(replace(fence, votes=()), replace(fence, epoch=31))
    assert world.room().fence(fence, log_state)


def test_who_was_there_before_it_began_is_there_when_it_is_heard_again(world: World) -> None:
    world.hears(BEAT)
    room = world.room()
    assert world.content() == {}
    world.hears(BEAT)
    room.round({}, "running")
    assert list(world.content()) == ["process:processing:totals:0"]


def test_what_is_of_no_use_is_counted(world: World) -> None:
    room = world.room()
    writer = world.log.writer()
    for entry in (
        Alarm("k", "s", 1, "t", 0),
        Ask("unknown", "0", 1, 1, 1, 0),
        TrimPoint("unknown", 1, 0),
    ):
        writer.send(TopicPartition("p.manager", 0), control_records.encode(entry))
    writer.flush()
    room.round({}, "running")
    assert room.rejected._value.get() == 3
    assert world.content() == {}


def test_what_others_say_in_its_name_is_counted_and_changes_nothing(world: World) -> None:
    """Each process may write anything to its own topic; records in it about trimming, fencing or
    other processes do not count.
    """
    room = world.room()
    writer = world.log.writer()
    forged = (
        TrimPoint("totals", 9, 1),
        Fence("totals", "2", 9, 2, contradicted(9)[0].votes, 1),
        replace(DELIVERY, checkpoint_bucket=9),
        replace(BEAT, replica="1"),
    )
    for entry in forged:
        writer.send(
            TopicPartition("p.control.processing.totals.0", 0), control_records.encode(entry)
        )
    writer.flush()
    for _ in range(3):
        room.round({"totals": 9}, "running")
    assert room.rejected._value.get() == len(forged)
    assert room.trim_point("totals") == 0
    assert list(world.content()) == ["process:consistency_manager:p:0"], "only what it says itself"
    assert room.fence(*contradicted(9)), "no fence of it is known"


def followed(**after: object) -> Pipeline:
    """Return a pipeline where stage ``after`` reads ``totals``."""
    pipeline = outputs.pipeline("p", replicas=2)
    stages = {**pipeline.stages, "after": stage("after", "totals", replicas=2, **after)}
    return pipeline.model_copy(update={"stages": stages})


def test_every_reader_of_a_stream_holds_its_trimming_back() -> None:
    assert readers_of(followed()) == {
        "totals": [*(Peer("processing", "after", r) for r in "01"), Peer("delivery", "out", "0")],
        "after": [],
    }


def test_each_process_that_stands_by_holds_it_back_too() -> None:
    standbys = [Peer("standby", "after", process) for process in "01"]
    assert readers_of(followed(ha="passive"))["totals"] == [
        Peer("processing", "after", "0"),
        *standbys,
        Peer("delivery", "out", "0"),
    ]


def test_rows_that_came_out_differently_are_an_alarm(world: World) -> None:
    room = world.room()
    ask = Ask("totals", "delivery.out", 1, 5, 9, 0)
    answers = [
        AskReply("totals", "0", "delivery.out", 1, outcome, "bucket 5 has other rows", 0)
        for outcome in AskOutcome
    ]
    world.hears(ask, *answers)
    before = room.rejected._value.get()
    room.round({}, "running")
    assert [(alarm.kind, alarm.stream) for alarm in room.alarms] == [
        ("recomputed_rows_differ", "totals")
    ]
    assert "bucket 5 has other rows" in room.alarms[0].text
    assert room.rejected._value.get() == before
    world.hears(replace(ask, stream="unknown"))
    room.round({}, "running")
    assert room.rejected._value.get() == before + 1


def test_one_alarm_each_time_that_a_source_begins_to_wait_for_its_input() -> None:
    world = World(live=True)
    room, source = world.room(), "reports"
    awaits = Heartbeat("ingestion", source, "0", 0, INPUT_MISSING, 9, 0)
    world.hears(awaits, awaits)
    room.round({}, "running")
    assert [(each.kind, each.stream, each.bucket) for each in room.alarms] == [
        (INPUT_MISSING, source, -1)
    ]
    assert "anabranch status" in room.alarms[0].text
    world.hears(replace(awaits, state="running"), awaits)
    room.round({}, "running")
    assert len(room.alarms) == 2


def test_one_alarm_each_time_that_a_replica_begins_to_refuse_an_input_of_another_owner() -> None:
    world = World(live=True)
    room, stage = world.room(), "totals"
    refuses = Heartbeat("processing", stage, "0", 0, INPUT_REFUSED, 9, 0)
    world.hears(refuses, refuses)
    room.round({}, "running")
    assert [(each.kind, each.stream) for each in room.alarms] == [(INPUT_REFUSED, stage)]
    world.hears(replace(refuses, state="running"), refuses)
    room.round({}, "running")
    assert len(room.alarms) == 2


def test_an_alarm_when_an_output_is_away_and_when_it_has_lost_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    for name, limit_ms in (("OUTPUT_AWAY_MS", 3_000), ("TRIM_READER_MS", 6_000)):
        monkeypatch.setattr(f"anabranch.protocol.control.trimming.{name}", limit_ms)
    room = world.room()

    def passes(duration_ms: int) -> list[str]:
        for _ in range(duration_ms // 500):
            world.clock.advance(500)
            room.round({}, "running")
        texts = [alarm.text for alarm in room.alarms if alarm.kind == OUTPUT_AWAY]
        room.alarms.clear()
        return texts

    world.hears(DELIVERY)
    assert passes(2_500) == []
    (text,) = passes(2_000)
    assert text.startswith("output out was not heard since ")
    assert "of totals is kept for" in text
    assert [each.output for each in room.away] == ["out"]
    (text,) = passes(3_000)
    assert text.endswith("kept no longer, and it cannot continue where it was")
    assert passes(5_000) == []
    world.hears(DELIVERY)
    assert passes(2_500) == []
    assert room.away == []
    assert len(passes(1_500)) == 1, "the next time it is away"


def test_one_alarm_for_each_overload_that_lasts() -> None:
    world = World(live=True)
    room, stage = world.room(), "totals"
    sheds = Heartbeat("processing", stage, "0", 0, "running", 1, 0, branch=3)
    ends = replace(sheds, room_left_ms=ROOM_WARNED_MS - 1)
    world.hears(sheds, replace(sheds, room_left_ms=ROOM_WARNED_MS))
    room.round({}, "running")
    assert room.alarms == []
    world.hears(ends, sheds, replace(ends, room_left_ms=600_000))
    room.round({}, "running")
    assert [(each.kind, each.stream, each.bucket) for each in room.alarms] == [
        (OVERLOAD_LASTS, stage, -1)
    ]
    assert "59 min" in room.alarms[0].text
    # The branch ended while the replica made its heartbeat.
    world.hears(replace(ends, branch=None))
    room.round({}, "running")
    assert len(room.alarms) == 1
    world.hears(ends)
    room.round({}, "running")
    assert len(room.alarms) == 2


def test_a_trim_point_that_could_not_be_written_is_written_again() -> None:
    """No newer one follows that of a stream which has ended."""
    world = World()
    room = world.room()
    world.hears(DELIVERY)
    world.clock.advance(TRIM_EVERY_MS)
    world.log.fail_next(
        FailingOperation.FLUSH, applied=0, topic=world.pipeline.topic_names.manager()
    )
    for _ in range(3):
        room.round({"totals": 9}, "running")
        world.clock.advance(HEARTBEAT_SEND_MS)
    points = [entry for entry in world.records_of(TrimPoint) if isinstance(entry, TrimPoint)]
    assert [(point.stream, point.bucket) for point in points] == [("totals", 5)]


def test_what_was_said_in_a_former_life_trims_nothing(world: World) -> None:
    """The topic of the stage's log is created again, its control topics stay."""

    def delivered(bucket: int) -> Heartbeat:
        return replace(DELIVERY, checkpoint_bucket=bucket, life=world.life("totals"))

    world.hears(delivered(5))
    room = world.room()
    room.round({"totals": 9}, "running")
    assert world.room().trim_point("totals") == 5
    world.make_anew("totals")
    room = world.room()
    assert room.trim_point("totals") == 0
    room.round({"totals": 9}, "running")
    world.hears(delivered(3))
    world.clock.advance(TRIM_EVERY_MS)
    room.round({"totals": 9}, "running")
    assert world.room().trim_point("totals") == 3


def test_a_fence_of_a_former_life_is_none_of_this_one(world: World) -> None:
    room = world.room()
    fence, log_state = contradicted(9)
    assert room.fence(fence, log_state)
    room.round({}, "running")
    assert not world.room().fence(fence, log_state)
    world.make_anew("totals")
    assert world.room().fence(fence, log_state)
