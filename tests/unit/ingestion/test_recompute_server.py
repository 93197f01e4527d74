"""Blocks of a source are deleted, and made again from its input on request, on a log in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.codec.catalog import TopicSettings
from anabranch.ingestion.recompute_server import SourceRecomputeServer
from anabranch.ingestion.service import IngestionService
from anabranch.operating.give_up import GiveUpMissing
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import Stage
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Ask, AskOutcome, AskReply
from anabranch.protocol.log.records import Part
from anabranch.streams.heartbeats import ControlReader, ControlWriter
from harness.regrowth import lose_and_grow
from harness.source_world import World
from harness.sources import StreamView, everything, report
from harness.waiting import wait_until

READER = "processing.next.0"


class Asking(World):
    """A source that a stage reads, which asks for blocks."""

    def __init__(self, **source: Any) -> None:
        super().__init__(2, **source)
        stage = Stage(name="next", participant="north", reads=["reports"], transform=["m:f"])
        self.pipeline = self.pipeline.model_copy(update={"stages": {"next": stage}})
        topics = control_topics(self.pipeline)
        self.log.admin().create(
            [TopicSettings(each, 1) for each in topics if each not in self.log.topics]
        )
        own = self.pipeline.topic_names.control
        self._asks = ControlWriter(self.log, own("processing", "next.0"), self.clock)
        replies = {topic: topics[topic] for topic in (own("ingestion", "reports"),)}
        self._replies = ControlReader(self.log, replies)
        self._number = 0

    def read_input(self, process: IngestionService) -> None:
        """Let a process read rows of buckets 1 to 9 in several batches, one of them late."""
        for bucket in range(1, 10):
            for partition in (0, 1):
                self.produce(
                    partition, *(report(100 * bucket - i, 10 * bucket + i) for i in (0, 9))
                )
            if bucket == 5:
                self.produce(0, report(150, 999))
            if bucket % 2 == 0:  # two buckets in a batch
                self.run(process, 3)
        self.produce(0, report(1_100, 1))
        self.produce(1, report(1_100, 2))
        self.run(process, lambda: self.view.closed() >= 10)

    def delete_blocks(self) -> None:
        topic, admin = self.pipeline.topic_names.blocks("reports", "0"), self.log.admin()
        reader = self.log.reader()
        places = [TopicPartition(topic, each) for each in range(self.pipeline.partitions)]
        admin.delete_before({at: reader.offsets(at)[1] for at in places})

    def lose_blocks(self) -> None:
        """Lose them with the only disk that had them: the topic is empty."""
        topic, admin = self.pipeline.topic_names.blocks("reports", "0"), self.log.admin()
        settings = self.log.topics[topic][0]
        admin.delete_topics([topic])
        admin.create([settings])

    def lose_blocks_and_grow(self) -> None:
        """Lose them, while the topic grows past their offsets."""
        topic = self.pipeline.topic_names.blocks("reports", "0")
        for partition in range(self.pipeline.partitions):
            lose_and_grow(self.log, TopicPartition(topic, partition))

    def replace_input(self) -> None:
        """Create the input topic again, with the same records but for a float, which no digest
        compares.
        """
        admin, records = self.log.admin(), everything(self.log, "p.reports", 2)
        admin.delete_topics(["p.reports"])
        admin.create([TopicSettings("p.reports", 2)])
        for chunk in records:
            values = [(value or b"").replace(b"61.25", b"11.25") for value in chunk.values]
            self.produce(chunk.at.partition, *values)

    def ask(self, process: IngestionService, first: int, last: int) -> AskReply:
        """Return the last reply to a request."""
        self._number += 1
        assert self._asks.write([Ask("reports", READER, self._number, first, last, 1)])
        found: list[AskReply] = []

        def is_answered() -> bool:
            process.step()
            found.extend(each for each in self._replies.poll() if isinstance(each, AskReply))
            return bool(found) and found[-1].outcome is not AskOutcome.TAKEN

        wait_until(is_answered, 30, "an answer")
        assert found[0].outcome is AskOutcome.TAKEN
        assert {each.number for each in found} == {self._number}
        return found[-1]


@pytest.fixture
def world() -> Asking:
    return Asking()


@pytest.fixture
def process(world: Asking) -> Iterator[IngestionService]:
    made = world.process()
    yield made
    made.stop()


def named(world: Asking, first: int, last: int) -> list[tuple[int, tuple[Part, ...]]]:
    """Return the parts from which each bucket is read now."""
    return [(bucket, parts) for bucket, _, parts in world.view.log_state().stable(first, last)]


def test_deleted_blocks_are_made_again_from_the_input(
    world: Asking, process: IngestionService
) -> None:
    world.read_input(process)
    whole = {bucket: table.sort_by("car") for bucket, table in world.view.stable().items()}
    assert sorted(whole) == list(range(1, 10))
    world.delete_blocks()
    world.view.closed()
    before = dict(named(world, 1, 9))
    reply = world.ask(process, 2, 6)
    assert (reply.outcome, reply.reason) == (AskOutcome.RECOMPUTED, "")
    world.view.closed()
    changed = {bucket for bucket, parts in named(world, 1, 9) if parts != before[bucket]}
    assert changed == {2, 3, 4, 5, 6}, "what was wanted, and nothing else"
    reply = world.ask(process, 1, 9)
    assert reply.outcome is AskOutcome.RECOMPUTED
    # A reader that has not read the stream before: the other one's position is deleted.
    view = StreamView(world.log, world.pipeline, world.clock)
    again = {bucket: table.sort_by("car") for bucket, table in view.stable().items()}
    view.close()
    assert again == whole
    world.produce(0, report(1_500, 7))
    world.produce(1, report(1_500, 8))
    world.run(process, lambda: world.view.closed() >= 14)
    assert {1, 2} <= set(world.view.cars()), "the source goes on"


@pytest.mark.parametrize("grows", [False, True])
def test_blocks_that_were_lost_with_a_disk_are_made_again_from_the_input(
    world: Asking, process: IngestionService, grows: bool
) -> None:
    """No first offset shows it: the partitions begin at 0, as before; nor an end where they have
    grown since.
    """
    world.read_input(process)
    whole = {bucket: table.sort_by("car") for bucket, table in world.view.stable().items()}
    world.lose_blocks_and_grow() if grows else world.lose_blocks()
    reply = world.ask(process, 1, 9)
    assert (reply.outcome, reply.reason) == (AskOutcome.RECOMPUTED, "")
    view = StreamView(world.log, world.pipeline, world.clock)
    assert {bucket: table.sort_by("car") for bucket, table in view.stable().items()} == whole
    view.close()


def test_a_new_process_makes_blocks_of_an_earlier_one_again(world: Asking) -> None:
    first = world.process()
    world.read_input(first)
    first.stop()
    cars = world.view.cars()
    world.delete_blocks()
    second = world.process()
    world.run(second, 3)
    assert world.ask(second, 1, 9).outcome is AskOutcome.RECOMPUTED
    assert world.view.cars() == cars
    second.stop()


def test_input_that_is_deleted_cannot_be_read_again(
    world: Asking, process: IngestionService
) -> None:
    world.read_input(process)
    world.delete_blocks()
    world.log.admin().delete_before({TopicPartition("p.reports", 0): 3})
    reply = world.ask(process, 1, 9)
    assert reply.outcome is AskOutcome.UNABLE
    assert reply.reason == "p.reports[0] has its records from offset 3 on, and 0 is needed"
    assert world.ask(process, 3, 9).outcome is AskOutcome.RECOMPUTED, "later input is there"


def test_a_topic_that_was_created_again_is_not_read_at_old_offsets(world: Asking) -> None:
    first = world.process()
    world.read_input(first)
    first.stop()
    before = named(world, 1, 9)
    world.replace_input()
    GiveUpMissing(
        world.log, world.pipeline, "reports", 2_000, world.clock, world.entropy
    ).do_missing()
    second = world.process()
    world.run(second, 3)
    world.delete_blocks()
    reply = world.ask(second, 1, 9)
    assert reply.outcome is AskOutcome.UNABLE
    assert reply.reason == "p.reports was deleted and created again since it was read"
    world.view.closed()
    assert named(world, 1, 9) == before
    second.stop()


def test_a_topic_that_is_created_again_while_it_is_read_is_not_used(
    world: Asking, process: IngestionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.read_input(process)
    world.delete_blocks()
    ids = iter([world.log.topic_ids["p.reports"], "another"])
    monkeypatch.setattr(
        SourceRecomputeServer, "_topic_ids", lambda _self, _reread: {"p.reports": next(ids)}
    )
    reply = world.ask(process, 1, 9)
    assert reply.outcome is AskOutcome.UNABLE
    assert reply.reason == "an input topic was created again while it was read"


def test_nothing_is_missing(world: Asking, process: IngestionService) -> None:
    world.read_input(process)
    assert world.ask(process, 1, 9).outcome is AskOutcome.RECOMPUTED
    assert world.ask(process, 50, 90).outcome is AskOutcome.RECOMPUTED


def test_rows_that_would_come_out_otherwise_are_not_used() -> None:
    world = Asking(late="reassign")
    process = world.process()
    world.read_input(process)
    process.stop()
    world.delete_blocks()
    source = world.pipeline.sources["reports"].model_copy(update={"late": "dead_letter"})
    world.pipeline = world.pipeline.model_copy(update={"sources": {"reports": source}})
    changed = world.process()
    world.run(changed, 3)
    reply = world.ask(changed, 1, 9)
    assert reply.outcome is AskOutcome.UNABLE
    assert "has other rows now" in reply.reason
    changed.stop()
