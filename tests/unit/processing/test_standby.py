"""A process that stands by, with checkpoints in Spark's format on a real disk and a log in
memory.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.adapters.disk.checkpoint_store import stored_replicas
from anabranch.adapters.disk.checkpoints import ReplicaFolder
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import Output, Sink
from anabranch.ports import Reach
from anabranch.processing.standby import (
    MOVED_FETCH_EVERY_MS,
    STANDBY_COPY_EVERY_MS,
    Standby,
)
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import PASSIVE_BEAT_MS
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.protocol.log.timeline import Answer, Step, Timeline, timeline_name
from anabranch.protocol.stage.owners_checkpoint import TRANSFER_STALLED_MS, StoreUse, Transfer
from anabranch.protocol.stage.standby import (
    PRIMARY_SETTLED_MS,
    PRIMARY_SILENT_MS,
    UNCOPIED_MS,
    StandbyProcess,
)
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.heartbeats import HeartbeatSender
from harness import spark_files
from harness.control_topics import all_control_records
from harness.plain_pipelines import pipeline, stage
from harness.waiting import wait_until


class World:
    """A passive stage of two processes: "0" is primary, without a process, "1" stands by."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, VirtualClock()
        self.log = LocalEventLog(self.clock)
        output = Output(name="out", stage="s", corrected=Sink(topic="out"))
        self.pipeline = pipeline(stage("s", replicas=2, ha="passive"), outputs={"out": output})
        self.log.admin().create(
            [
                TopicSettings("p.s.boundaries", 1),
                *(TopicSettings(topic, 1) for topic in control_topics(self.pipeline)),
            ]
        )
        self.primary = self.disk("0", "1")
        self.made: list[Standby] = []

    def disk(self, process: str, other: str) -> ReplicaFolder:
        return ReplicaFolder(self.folder / f"s.{process}", {other: self.folder / f"s.{other}"})

    def standby(self) -> Standby:
        self.own, token = self.disk("1", "0"), f"{len(self.made):016x}"
        self.made.append(
            Standby(
                self.log, self.clock, self.pipeline, StandbyProcess("s", "1", token=token), self.own
            )
        )
        return self.made[-1]

    def writer(self) -> BoundaryWriter:
        return BoundaryWriter(
            self.log,
            "p.s.boundaries",
            ["0"],
            EpochStarted("0", "f", SeededEntropy(1).token()),
            self.clock,
        )

    def run(self, timeline: Timeline, batches: int) -> None:
        """Commit so many batches as the primary, each of which reads ten buckets."""
        shutil.rmtree(self.primary.directory(timeline.name), ignore_errors=True)
        spark_files.fill(self.primary.directory(timeline.name), batches)
        self.primary.write(timeline)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


FIRST = Timeline.fresh(5)


def test_it_copies_what_is_further_and_keeps_one(world: World) -> None:
    made = world.standby()
    assert made.bucket == 0
    assert not made.copy(), "there is nothing yet"
    world.run(FIRST, 0)
    assert not made.copy(), "nor a batch"
    world.run(FIRST, 3)
    assert made.copy()
    assert made.bucket == 30
    assert not made.copy(), "it has that"
    world.run(FIRST, 5)
    assert made.copy()
    assert made.bucket == 50
    newest = world.own.newest()
    assert newest is not None
    assert (newest.name, newest.start_batch, newest.start_tip) == (
        timeline_name(5, 1, "0" * 16),
        4,
        BatchId(FIRST.name, 4),
    )
    assert [path.name for path in (world.folder / "s.1" / "checkpoints").iterdir()] == [newest.name]
    assert world.own.batches(newest.name)[0] == 4
    assert not (world.own.directory(newest.name) / "offsets" / "5").exists(), (
        "what was planned was not copied whole"
    )
    assert world.standby().bucket == 50, "its next process knows"


def test_a_copy_begins_before_the_first_round_and_no_second_one_beside_it(world: World) -> None:
    """While its engine gets warm."""
    made = world.standby()
    world.run(FIRST, 3)
    made.begin_copy()
    wait_until(lambda: made.bucket == 30, 20, "the copy")
    world.run(FIRST, 5)
    made.begin_copy()
    assert made.bucket == 30, "the next one is not due"
    world.clock.advance(STANDBY_COPY_EVERY_MS)

    def is_copied() -> bool:
        made.begin_copy()  # the thread of the first copy may just be ending
        return made.bucket == 50

    wait_until(is_copied, 20, "the next copy")
    made.close()


def test_what_it_finds_is_durable_before_it_counts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A primary that was killed had not synced it, and trimming goes by what its next process
    says.
    """
    synced: list[str] = []
    monkeypatch.setattr(ReplicaFolder, "sync", lambda _, name: synced.append(name))
    made = world.disk("1", "0")
    spark_files.fill(made.directory(FIRST.name), 3)
    made.write(FIRST)
    assert world.standby().bucket == 30
    assert synced == [FIRST.name]


def test_what_is_committed_after_the_sync_does_not_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replaced process that does not know it commits in the same directory."""
    made = world.disk("1", "0")
    spark_files.fill(made.directory(FIRST.name), 3)
    made.write(FIRST)

    def synced(_: ReplicaFolder, name: str) -> None:
        shutil.rmtree(made.directory(name))
        spark_files.fill(made.directory(name), 4)

    monkeypatch.setattr(ReplicaFolder, "sync", synced)
    assert world.standby().bucket == 30


def test_a_copy_goes_on_as_the_primary_would(world: World) -> None:
    """The record that it continues is that of the batch, whoever has made it."""
    world.run(Timeline(timeline_name(7, 0), 2, BatchId("before", 2), floor=2), 3)
    made = world.standby()
    assert made.copy()
    newest = world.own.newest()
    assert newest is not None
    assert newest.tip(2) == BatchId("before", 2)


@pytest.mark.parametrize("damaged", ["commits", "offsets"])
def test_of_a_damaged_checkpoint_what_is_whole_is_copied(world: World, damaged: str) -> None:
    world.run(FIRST, 4)
    (world.primary.directory(FIRST.name) / damaged / "3").write_bytes(b"")
    made = world.standby()
    assert made.copy()
    assert made.bucket == 30
    assert not made.copy(), "it is no further than what is there"
    assert len(list((world.folder / "s.1" / "checkpoints").iterdir())) == 1


def test_a_directory_that_is_another_ones_by_now_is_not_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(FIRST, 3)
    made = world.standby()
    copy = world.own.copy_peer

    def meanwhile(*arguments: str) -> bool:
        done = copy(*arguments)
        spark_files.fill(world.primary.directory(timeline_name(5, 1)), 3)
        world.primary.write(FIRST.forked(timeline_name(5, 1), 2))
        return done

    monkeypatch.setattr(world.own, "copy_peer", meanwhile)
    assert not made.copy()
    assert world.own.newest() is None
    monkeypatch.setattr(world.own, "copy_peer", copy)
    assert made.copy()


STEPS_OF_A_COPY = 13


@pytest.mark.parametrize("step", range(STEPS_OF_A_COPY + 1))
@pytest.mark.parametrize("fails_over", [False, True])
@pytest.mark.parametrize("moved", [False, True])
def test_who_slept_while_it_copied_takes_nothing_from_its_replacement(
    world: World, monkeypatch: pytest.MonkeyPatch, step: int, fails_over: bool, moved: bool
) -> None:
    """Rule 8: it wakes at any step of its copy, and does the rest of it."""
    world.run(FIRST, 2)
    assert world.standby().copy()
    world.run(FIRST, 3)
    sleeper = world.standby()
    answer, steps = sleeper._perform, list[Step]()

    def slow(each: Step) -> Answer:
        steps.append(each)
        found = answer(each) if len(steps) <= step else None
        if len(steps) == max(1, step):
            replaced()
        return answer(each) if len(steps) > step else found

    def replaced() -> None:
        if moved:
            world.run(FIRST.forked(timeline_name(5, 1), 2), 6)
        replacement = world.standby()
        replacement.copy()
        if fails_over:
            live.append(fail_over(world.own, 9))
        else:
            own = world.own.newest()
            assert own is not None
            live.append(own)

    live: list[Timeline] = []
    monkeypatch.setattr(sleeper, "_perform", slow)
    with contextlib.suppress(FileNotFoundError):  # rule 21: who meets a directory that is gone ends
        sleeper.copy()
    (own,) = live
    assert world.own.newest() == own or not fails_over
    assert (world.own.directory(own.name) / "commits" / "2").exists(), "what it lives on is there"
    assert (
        world.disk("1", "0").whole(own.name, world.own.batches(own.name))
        == world.own.batches(own.name)[0]
    )
    assert len(steps) <= STEPS_OF_A_COPY


def fail_over(disk: ReplicaFolder, epoch: int) -> Timeline:
    """Begin ``epoch`` with a process of the replica from what is on its disk."""
    own, name = disk.newest(), timeline_name(epoch, 0)
    assert own is not None
    disk.copy(own.name, name)
    timeline = own.copied(name, disk.last_commit(name))
    disk.write(timeline)
    disk.clean(epoch)
    return timeline


def test_an_older_checkpoint_of_a_later_primary_is_copied_when_it_has_caught_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trimming counts on what the process claims."""
    world.run(FIRST, 5)
    made = world.standby()
    assert made.copy()
    later = Timeline.fresh(6)
    world.run(later, 3)
    with monkeypatch.context() as patched:
        patched.setattr(world.own, "copy_peer", lambda *_: pytest.fail("it copies for nothing"))
        assert not made.copy()
    assert made.bucket == 50
    assert [path.name for path in (world.folder / "s.1" / "checkpoints").iterdir()] == [
        timeline_name(5, 0, "0" * 16)
    ]
    world.run(later, 5)
    assert made.copy()
    newest = world.own.newest()
    assert newest is not None
    assert newest.name == timeline_name(6, 0, "0" * 16)


def test_what_takes_over_from_less_than_it_claimed_says_so_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(FIRST, 5)
    made = world.standby()
    assert made.copy()
    made.round()
    world.run(Timeline.fresh(6), 3)
    write, claims = world.own.write, list[int]()

    def claimed(timeline: Timeline) -> None:
        said = all_control_records(world.log, world.pipeline)
        claims.extend(
            each.checkpoint_bucket
            for each in said
            if isinstance(each, Heartbeat) and each.service == "standby"
        )
        write(timeline)

    monkeypatch.setattr(world.own, "write", claimed)
    made.end_watch()
    assert claims == [50, 30], "before the file names the copy"
    assert made.bucket == 30


def test_ti11_a_claim_is_lower_once_the_broker_has_acknowledged_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(FIRST, 5)
    made = world.standby()
    assert made.copy()
    assert made.claimed == 50
    with monkeypatch.context() as patched:
        patched.setattr(made._heartbeats, "send_now", lambda _: False)
        assert not made.lower_claim(30)
    assert made.claimed == 50
    assert made.lower_claim(30)
    assert made.claimed == 30
    *_, last = all_control_records(world.log, world.pipeline)
    assert isinstance(last, Heartbeat)
    assert last.checkpoint_bucket == 30


def append(world: World, ident: BatchId, prev: BatchId | None) -> None:
    """Append a record of a new epoch to the stage's log."""
    with contextlib.closing(world.writer()) as writer:
        writer.start()
        writer.append(BoundaryRecord("0", writer.epoch, ident, prev, 40))


def said(world: World) -> tuple[int, int]:
    """Return the epoch and the claim in the last heartbeat of the process that stands by."""
    *_, last = all_control_records(world.log, world.pipeline)
    assert isinstance(last, Heartbeat)
    return last.epoch, last.checkpoint_bucket


def test_sb11_it_claims_nothing_once_another_one_went_on_from_an_older_checkpoint(
    world: World,
) -> None:
    world.run(FIRST, 5)
    made = world.standby()
    assert made.copy()
    made.round()
    assert said(world) == (-1, 50), "the log has no record"
    append(world, BatchId(FIRST.name, 3), None)
    append(world, BatchId(timeline_name(6, 0), 4), BatchId(FIRST.name, 3))
    world.clock.advance(PASSIVE_BEAT_MS)

    def gives_up() -> bool:
        made.round()
        return made.bucket == 0

    wait_until(gives_up, 20, "the end of the copy that the first round began")
    assert (made.claimed, *said(world)) == (0, 6, 0)
    world.run(Timeline.fresh(6), 4)
    assert made.copy(), "it holds less than the one before"
    assert made.bucket == 40


def test_sb11_its_next_process_knows_at_once_that_its_checkpoint_is_cut_off(world: World) -> None:
    """Heartbeats of the new process name no older epoch than those of the one before."""
    world.run(FIRST, 5)
    assert world.standby().copy()
    append(world, BatchId(timeline_name(6, 0), 4), None)
    found = world.standby()
    assert found.bucket == 50
    found.must_wait()
    assert found.bucket == 0
    found.lead(70, 66, None)
    assert said(world) == (6, 66)
    world.clock.advance(PASSIVE_BEAT_MS)
    found.lead(80, 66, BatchId(timeline_name(8, 0), 0))
    assert said(world) == (8, 66)


def test_sb11_while_a_copy_is_under_way_the_claim_stays_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(FIRST, 5)
    made = world.standby()
    assert made.copy()
    begun, goes_on = threading.Event(), threading.Event()

    def copies(**_: object) -> bool:
        begun.set()
        return goes_on.wait(20)

    monkeypatch.setattr(made, "copy", copies)
    made.begin_copy()
    assert begun.wait(20)
    append(world, BatchId(timeline_name(6, 0), 4), None)
    made.round()
    assert said(world) == (-1, 50)
    goes_on.set()

    def has_ended() -> bool:
        made.round()
        return made.bucket == 0

    wait_until(has_ended, 20, "the end of the copy")


def test_one_that_cannot_be_copied_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(FIRST, 3)
    made = world.standby()
    monkeypatch.setattr(world.own, "copy_peer", lambda *_: False)
    assert not made.copy()


def rounds_until(
    world: World, made: Standby, done: Callable[[bool], bool], limit_ms: int = 30_000
) -> int:
    begun_ms = world.clock.monotonic_ms()
    while not done(made.round()):
        world.clock.advance(100)
        assert world.clock.monotonic_ms() - begun_ms < limit_ms
    return world.clock.monotonic_ms() - begun_ms


def test_it_becomes_the_primary_when_the_old_one_is_silent(world: World) -> None:
    writer = world.writer()
    epoch = writer.start()
    world.run(Timeline.fresh(epoch), 3)
    made = world.standby()
    beats = HeartbeatSender(world.log, "p.control.processing.s.0", world.clock)
    for _ in range(PRIMARY_SETTLED_MS // 500):
        beats.send(Heartbeat("processing", "s", "0", epoch, "running", 3, 0))
        assert not made.round()
        world.clock.advance(500)
    wait_until(lambda: made.bucket == 30, 20, "a copy")
    assert (
        PRIMARY_SILENT_MS - 1_000
        <= rounds_until(world, made, lambda due: due)
        <= PRIMARY_SILENT_MS + 2 * PASSIVE_BEAT_MS
    )
    world.run(Timeline.fresh(epoch), 6)
    made.end_watch()
    assert made.bucket == 60, "whatever is within reach is taken along"
    world.clock.advance(STANDBY_COPY_EVERY_MS)
    made.lead(70, 66, None)
    made.close()
    own = [
        entry
        for entry in all_control_records(world.log, world.pipeline)
        if isinstance(entry, Heartbeat) and entry.service == "standby"
    ]
    assert (own[0].replica, own[0].state, own[0].checkpoint_bucket) == ("1", "standby", 0)
    assert (own[-1].state, own[-1].checkpoint_bucket) == ("primary", 66)
    assert 30 in [beat.checkpoint_bucket for beat in own]


def test_one_that_has_no_checkpoint_within_reach_says_so(world: World) -> None:
    """It keeps all input, for good: a person must learn of it."""
    writer, beats = (
        world.writer(),
        HeartbeatSender(
            world.log, "p.control.processing.s.0", world.clock, every_ms=PASSIVE_BEAT_MS
        ),
    )
    epoch, made = writer.start(), world.standby()
    writer.append(BoundaryRecord("0", epoch, BatchId("l", 0), None, 30))

    def passes(ms: int) -> None:
        for _ in range(0, ms, 500):
            beats.send(Heartbeat("processing", "s", "0", epoch, "running", 30, 0))
            assert not made.round()
            world.clock.advance(500)

    passes(UNCOPIED_MS // 2)
    assert made.waiting_for is None
    passes(UNCOPIED_MS // 2 + 1_000)
    assert "need a store of checkpoints" in str(made.waiting_for)
    world.run(Timeline.fresh(epoch), 3)
    passes(STANDBY_COPY_EVERY_MS)
    wait_until(lambda: made.bucket == 30, 20, "a copy")
    passes(500)
    passes(2 * UNCOPIED_MS)
    assert made.waiting_for is None, "the primary closes nothing"


class Moved(World):
    """Replica "0" of an active stage is moved: its own directory is that of the one that runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        stage = self.pipeline.stages["s"].model_copy(update={"ha": "active"})
        self.pipeline = self.pipeline.model_copy(update={"stages": {"s": stage}})
        self.beats = HeartbeatSender(self.log, "p.control.processing.s.0", self.clock)

    def comes(self) -> Standby:
        made = Standby(
            self.log,
            self.clock,
            self.pipeline,
            StandbyProcess("s", "0", "north.9", "0" * 16),
            self.own_disk(),
        )
        self.made.append(made)
        return made

    def own_disk(self) -> ReplicaFolder:
        return self.primary

    def writer(self, node: str = "north.0") -> BoundaryWriter:
        return BoundaryWriter(
            self.log,
            "p.s.boundaries",
            ["0", "1"],
            EpochStarted("0", "f", SeededEntropy(1).token(), node=node),
            self.clock,
        )

    def writer_started(self) -> BoundaryWriter:
        made = self.writer()
        made.start()
        return made

    def closed(self, writer: BoundaryWriter, bucket: int) -> None:
        record = BoundaryRecord("0", writer.epoch, BatchId("l", bucket), writer.tip(), bucket)
        writer.append(record)


def test_one_that_is_moved_is_due_when_it_could_go_on_from_where_the_other_is(
    tmp_path: Path,
) -> None:
    world = Moved(tmp_path)
    writer = world.writer()
    epoch = writer.start()
    world.closed(writer, 100)
    made = world.comes()
    assert made.must_wait()
    world.run(Timeline.fresh(epoch), 4)
    for _ in range(40):
        world.beats.send(Heartbeat("processing", "s", "0", epoch, "running", 100, 0))
        assert not made.round()
        world.clock.advance(500)
    assert made.bucket == 40
    assert "need a store of checkpoints" in str(made.waiting_for)
    world.run(Timeline.fresh(epoch), 5)
    files = sorted(tmp_path.rglob("*"))
    assert made.round()
    made.end_watch()
    made.lead(50, 50, None)
    made.close()
    assert not made.copy()
    assert sorted(tmp_path.rglob("*")) == files, "the one that runs lives there"
    beats = [
        entry
        for entry in all_control_records(world.log, world.pipeline)
        if isinstance(entry, Heartbeat)
    ]
    assert {beat.state for beat in beats} == {"running", "standby"}, "the replica speaks for itself"


class MovedFar(Moved):
    """The new node is on a machine of its own: both share the store."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.store.mkdir()
        super().__init__(folder)
        self.far = self.stored_disk("far")

    def stored_disk(self, machine: str) -> ReplicaFolder:
        stored = stored_replicas(f"file://{self.store}", "p")
        return ReplicaFolder(self.folder / machine / "s.0", stored=stored)

    def disk(self, process: str, other: str) -> ReplicaFolder:
        return self.stored_disk("near")

    def own_disk(self) -> ReplicaFolder:
        return self.far


def test_one_that_is_moved_far_is_due_when_its_copy_has_come_near(tmp_path: Path) -> None:
    world = MovedFar(tmp_path)
    writer = world.writer()
    epoch = writer.start()
    world.closed(writer, 100)
    made = world.comes()

    def passes(ms: int) -> bool:
        world.clock.advance(ms)
        world.beats.send(Heartbeat("processing", "s", "0", epoch, "running", 100, 0))
        return made.round()

    assert not passes(MOVED_FETCH_EVERY_MS)
    assert str(made.waiting_for).endswith("up to date, from the store of checkpoints")
    world.run(Timeline.fresh(epoch), 4)
    assert world.primary.store(Timeline.fresh(epoch).name)
    wait_until(lambda: not passes(MOVED_FETCH_EVERY_MS) and made.bucket == 40, 60, "a copy")
    assert made.fetched["fetched_bytes"] > 0
    hidden = world.store.rename(tmp_path / "hidden")
    world.run(Timeline.fresh(epoch), 9)
    wait_until(
        lambda: not passes(MOVED_FETCH_EVERY_MS) and "does not exist" in str(made.waiting_for),
        60,
        "what is wrong with the store",
    )
    hidden.rename(world.store)
    assert world.primary.store(Timeline.fresh(epoch).name)
    wait_until(lambda: passes(MOVED_FETCH_EVERY_MS), 60, "it is due")
    assert made.waiting_for is not None
    assert "does not exist" not in made.waiting_for
    made.end_watch()
    newest = world.far.newest()
    assert newest is not None
    assert world.far.last_commit(newest.name) == 8
    made.close()
    beats = [
        entry
        for entry in all_control_records(world.log, world.pipeline)
        if isinstance(entry, Heartbeat) and entry.service == "standby"
    ]
    assert beats[-1].fetched_bytes > beats[0].fetched_bytes == 0


class AtPartner(MovedFar):
    """The new node is a partner's, and begins from the checkpoint of the owner's node."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        changed = {"ha": "upstream_backup", "transfer": Transfer.CHECKPOINT, "participant": "north"}
        stage = self.pipeline.stages["s"].model_copy(update=changed)
        self.pipeline = self.pipeline.model_copy(
            update={"stages": {"s": stage}, "named_nodes": {"north.0": ["s.0"]}}
        )
        self.epoch = -1

    def stored_disk(self, machine: str) -> ReplicaFolder:
        stored = stored_replicas(f"file://{self.store}", "p")
        store_use = StoreUse.TAKES if machine == "far" else StoreUse.OFFERS
        return ReplicaFolder(self.folder / machine / "s.0", stored=stored, store_use=store_use)

    def comes_behind_what_is_stored(self) -> Standby:
        """Open the standby of a stage that has closed 100 buckets and stored the first 90."""
        writer = self.writer()
        self.epoch = writer.start()
        self.closed(writer, 100)
        made = self.comes()
        fresh = Timeline.fresh(self.epoch)
        self.run(fresh, 9)
        assert self.primary.store(fresh.name)
        return made

    def passes(self, made: Standby, ms: int = MOVED_FETCH_EVERY_MS, stored: str = "") -> bool:
        """Let time pass, in which the primary announces what it has stored."""
        self.clock.advance(ms)
        beat = Heartbeat("processing", "s", "0", self.epoch, "running", 100, 0, stored=stored)
        self.beats.send(beat)
        return made.round()


def test_a_partner_is_due_when_the_checkpoint_of_the_owner_is_here(tmp_path: Path) -> None:
    world = AtPartner(tmp_path)
    made = world.comes_behind_what_is_stored()
    for _ in range(3):
        assert not world.passes(made), "nothing is announced"
    assert made.bucket == 0
    announced = world.primary.announces
    wait_until(lambda: world.passes(made, 500, announced), 60, "it is due")
    assert (made.bucket, made.why_from_input) == (90, "")
    made.end_watch()
    newest = world.far.newest()
    assert newest is not None
    made.close()


def test_a_partner_begins_from_the_input_where_no_checkpoint_comes(tmp_path: Path) -> None:
    world = AtPartner(tmp_path)
    made = world.comes_behind_what_is_stored()
    begun_ms = world.clock.monotonic_ms()
    wait_until(lambda: world.passes(made, 1_000, "ab" * 32), 60, "it is due")
    assert world.clock.monotonic_ms() - begun_ms >= TRANSFER_STALLED_MS
    assert made.why_from_input.startswith("no progress for 15 s: no checkpoint in the store")
    made.end_watch()
    assert world.far.newest() is None
    made.close()


def test_what_a_partner_runs_is_begun_from_the_input_at_once(tmp_path: Path) -> None:
    world = AtPartner(tmp_path)
    writer = world.writer("south.0")
    world.epoch = writer.start()
    world.closed(writer, 100)
    made = world.comes()
    assert world.passes(made, stored="ab" * 32)
    assert made.why_from_input == ""
    made.close()


def test_one_that_waits_for_blocks_looks_into_the_store_again(tmp_path: Path) -> None:
    """Trimming has followed a checkpoint that was stored after it became due."""
    world = MovedFar(tmp_path)
    made = world.comes()
    assert not made.copy()
    world.run(FIRST, 4)
    assert world.primary.store(FIRST.name)
    assert made.copy()
    assert made.fetched["rest_bytes"] == 0
    made.close()


def test_how_much_is_still_to_be_read_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = MovedFar(tmp_path)
    world.closed(writer := world.writer_started(), 100)
    made = world.comes()
    monkeypatch.setattr(world.far, "within_reach", lambda: Reach(0, 7, 1))
    world.beats.send(Heartbeat("processing", "s", "0", writer.epoch, "running", 100, 0))
    assert not made.round()
    assert "7 bytes are to be read" in str(made.waiting_for)
    made.close()


def test_what_goes_wrong_while_copying_ends_the_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world.standby()

    def full() -> bool:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(made, "copy", full)
    with pytest.raises(OSError, match="no space"):
        rounds_until(world, made, lambda _: False)


def test_a_primary_goes_on_with_the_log_that_it_has_read(world: World) -> None:
    """It knows what was cut off the chain before it stood by, and meanwhile."""

    def record(writer: BoundaryWriter, ident: BatchId, prev: BatchId | None, bucket: int) -> None:
        writer.append(BoundaryRecord("0", writer.epoch, ident, prev, bucket))

    first = world.writer()
    first.start()
    old, cut = BatchId("a", 0), BatchId("a", 1)
    record(first, old, None, 10)
    record(first, cut, old, 20)
    made = world.standby()
    assert made.must_wait()
    second = BoundaryWriter(
        world.log,
        "p.s.boundaries",
        ["0"],
        EpochStarted("0", "f", SeededEntropy(2).token()),
        world.clock,
    )
    second.start()
    record(second, BatchId("b", 1), old, 20)
    made.round()
    record(second, BatchId("b", 2), BatchId("b", 1), 30)
    made.end_watch()
    reads = world.log.reader
    world.log.reader = None  # type: ignore[assignment,method-assign]
    writer = BoundaryWriter(
        world.log,
        "p.s.boundaries",
        made.boundary,
        EpochStarted("0", "f", SeededEntropy(3).token()),
        world.clock,
    )
    writer.listen(lambda _, entry, outcome: made.points.seen(writer.log_state, entry, outcome))
    epoch = writer.start()
    world.log.reader = reads  # type: ignore[method-assign]
    assert writer.tip() == BatchId("b", 2)
    assert made.points.cut_off_base(cut, "f", 30) == 20
    writer.append(BoundaryRecord("0", epoch, BatchId("c", 3), writer.tip(), 40))
    assert writer.log_state.closed("0") == 40
