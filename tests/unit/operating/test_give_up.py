"""Giving a source up, with its real ingestion on a log in memory."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.ingestion.service import IngestionService
from anabranch.operating.give_up import (
    GiveUp,
    GiveUpMissing,
    until_when,
)
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError, Fenced
from anabranch.protocol.log.given_up import Times
from anabranch.protocol.log.records import GivenUp
from harness.sources import StreamView, create_topics, everything, pipeline, report, service


class World:
    """A source of two partitions, one of which falls silent at 1 000 ms."""

    def __init__(self, **source: Any) -> None:
        self.clock, self.entropy = VirtualClock(), SeededEntropy(1)
        self.log, self.pipeline = LocalEventLog(self.clock), pipeline("p", **source)
        create_topics(self.log, self.pipeline)
        self.view = StreamView(self.log, self.pipeline, self.clock)

    def produce(self, partition: int, *values: bytes) -> None:
        writer = self.log.writer()
        for value in values:
            writer.send(TopicPartition("p.reports", partition), value)
        writer.flush()
        writer.close()

    def process(self) -> IngestionService:
        made = service(self.log, self.pipeline, self.clock, self.entropy)
        made.start()
        return made

    def command(self, from_ms: int, until_ms: int, source: str = "reports") -> GiveUp:
        return GiveUp(
            self.log, self.pipeline, source, Times(from_ms, until_ms), self.clock, self.entropy
        )

    def dead(self) -> list[bytes | None]:
        return [
            value for chunk in everything(self.log, "p.reports.rejected") for value in chunk.values
        ]


def run(process: IngestionService, steps: int = 20) -> None:
    for _ in range(steps):
        process.step()


@pytest.fixture
def world() -> World:
    return World()


def test_what_was_read_stays_and_what_comes_later_is_late(world: World) -> None:
    process = world.process()
    world.produce(1, report(1_000, 1))
    world.produce(0, report(1_050, 2), report(1_850, 3), report(2_950, 4))
    run(process)
    assert world.view.closed() == 9
    assert world.command(900, 2_000).plan() == GivenUp("reports", 10, 20)
    assert world.view.closed() == 9, "a plan changes nothing"
    assert world.command(900, 2_000).do() == GivenUp("reports", 10, 20)
    assert world.view.closed() == 20
    with pytest.raises(Fenced):
        run(process, 100)
    process.stop()
    after = world.process()
    world.produce(1, report(1_999, 5), report(3_000, 6))
    world.produce(0, report(3_100, 7))
    run(after)
    assert world.view.closed() == 29
    assert {
        bucket: rows.column("car").to_pylist() for bucket, rows in world.view.stable().items()
    } == {10: [1], 11: [2], 19: [3]}
    assert world.dead() == [report(1_999, 5)]
    log_state = world.view.log_state()
    assert [log_state.given_up.names(bucket) for bucket in (9, 10, 20, 21)] == [
        (),
        ("reports",),
        ("reports",),
        (),
    ]


def test_an_idle_zombie_finds_out_that_it_was_replaced(world: World) -> None:
    process = world.process()
    world.produce(0, report(1_000, 1))
    run(process)
    assert world.command(0, 2_000).do().last == 20
    world.clock.advance(10_000)
    with pytest.raises(Fenced):
        run(process, 2)


def test_only_the_requested_buckets_are_given_up(world: World) -> None:
    with pytest.raises(ConfigurationError, match="has never run"):
        world.command(0, 2_000).plan()
    process = world.process()
    world.produce(0, report(1_000, 1))
    world.produce(1, report(1_000, 1))
    run(process)
    with pytest.raises(ConfigurationError, match=r"complete up to 1970-01-01T00:00:00\.900Z only"):
        world.command(901, 2_000).do()
    with pytest.raises(ConfigurationError, match="nothing to give up"):
        world.command(0, 999).do()
    with pytest.raises(
        ConfigurationError, match="no source cars, or it has shards; give up one of reports"
    ):
        world.command(0, 999, "cars")
    world.produce(0, report(2_000, 2))
    world.produce(1, report(2_000, 2))
    run(process)
    assert world.view.closed() == 19, "it was not fenced by what was rejected"


def test_a_shard_is_given_up_by_itself() -> None:
    world = World()
    world.pipeline = pipeline("p", shards=2)
    for stream in world.pipeline.source_streams():
        topics = (f"p.{stream}.boundaries", f"p.{stream}.blocks.0")
        world.log.admin().create([TopicSettings(topic, 1) for topic in topics])
    with pytest.raises(ConfigurationError, match=r"give up one of reports\.0, reports\.1"):
        world.command(0, 2_000)
    shard = service(world.log, world.pipeline, world.clock, world.entropy, name="reports.1")
    shard.start()
    world.produce(1, report(1_000, 1))
    run(shard)
    assert world.command(0, 2_000, "reports.1").do() == GivenUp("reports.1", 10, 20)
    live = pipeline("p", max_ahead_ms=60_000, shards=2)
    assert until_when(live, "reports.1", None, 5_000) == 5_000
    with pytest.raises(ConfigurationError, match="say --until"):
        until_when(world.pipeline, "reports.1", None, 5_000)


def test_a_second_command_continues_after_the_first(world: World) -> None:
    run(world.process())
    assert world.command(0, 1_000).do() == GivenUp("reports", 1, 10)
    assert world.command(0, 2_000).do() == GivenUp("reports", 11, 20)
    assert world.view.closed() == 20
    assert world.view.log_state().given_up.ranges() == (GivenUp("reports", 1, 20),)


def test_the_end_is_now_by_default_and_never_in_the_future(world: World) -> None:
    simulated, live = world.pipeline, pipeline("p", max_ahead_ms=60_000)
    assert until_when(live, "reports", None, 5_000) == 5_000
    assert until_when(live, "reports", "4000", 5_000) == 4_000
    assert until_when(simulated, "reports", "9000", 5_000) == 9_000
    with pytest.raises(ConfigurationError, match="in the future"):
        until_when(live, "reports", "5001", 5_000)
    with pytest.raises(ConfigurationError, match="say --until"):
        until_when(simulated, "reports", None, 5_000)


def test_a_broker_without_the_pipeline_is_named(world: World) -> None:
    world.log = LocalEventLog(world.clock)
    with pytest.raises(ConfigurationError, match=r"pipeline p has not run there; .* --kafka"):
        world.command(900, 2_000).plan()


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_source_without_a_recorded_position_begins_as_if_it_had_not_been_given_up(
    start: str,
) -> None:
    world = World(start=start)
    world.produce(0, report(1_000, 1))
    world.produce(1, report(1_000, 2))
    process = world.process()
    if start == "latest":
        run(process)
    given_up = world.command(0, 2_000).do()
    assert given_up == GivenUp("reports", 1, 20)
    process.stop()
    after = world.process()
    run(after)
    world.produce(0, report(1_900, 3), report(3_000, 5))
    world.produce(1, report(1_950, 4), report(3_000, 6))
    world.produce(0, report(3_300, 7))
    world.produce(1, report(3_300, 8))
    run(after)
    after.stop()
    assert world.view.cars() == [5, 6], "what comes of the time that was given up is late"
    assert len(world.dead()) == (2 if start == "latest" else 4)


def behind(world: World, until_ms: int = 2_500) -> GiveUpMissing:
    return GiveUpMissing(world.log, world.pipeline, "reports", until_ms, world.clock, world.entropy)


def test_a_time_before_the_boundary_names_the_next_bucket(world: World) -> None:
    process = world.process()
    world.produce(0, report(1_000, 1))
    world.produce(1, report(1_000, 2))
    run(process)
    process.stop()
    world.produce(0, report(1_200, 5))
    world.log.trim(TopicPartition("p.reports", 0), 2)
    assert behind(world, 500).do_missing() == GivenUp("reports", 10, 10)


def test_a_topic_that_is_not_there_cannot_be_given_up(world: World) -> None:
    run(world.process())
    world.log.admin().delete_topics(["p.reports"])
    with pytest.raises(ConfigurationError, match=r"topic p.reports does not exist"):
        behind(world).find()
