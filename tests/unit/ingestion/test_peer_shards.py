"""Shards of a source as services on a log in memory, in virtual time."""

from __future__ import annotations

import pytest

from anabranch.codec.catalog import TopicSettings
from anabranch.ingestion.service import IngestionService
from anabranch.protocol.errors import ConfigurationError
from harness.source_world import World
from harness.sources import pipeline, report


class Shards(World):
    """All shards of one source."""

    def start(self) -> list[IngestionService]:
        return [self.process(stream) for stream in self.pipeline.source_streams()]

    def run_all(self, processes: list[IngestionService], rounds: int = 20) -> None:
        for _ in range(rounds):
            for process in processes:
                process.step()

    def closed(self) -> list[int]:
        return [view.closed() for view in self.views.values()]

    def cars(self) -> list[list[int]]:
        return [view.cars() for view in self.views.values()]


def test_each_shard_reads_its_partitions_and_closes_by_them() -> None:
    world = Shards(3, shards=2)
    processes = world.start()
    for partition in range(3):
        world.produce(partition, report(1_000 + 100 * partition, partition), report(1_500, 7))
    world.run_all(processes)
    assert world.closed() == [14, 14]
    assert world.cars() == [[0, 2], [1]]
    assert [process.status.detail["records"] for process in processes] == [4, 2]
    world.produce(1, report(9_000, 1))
    world.run_all(processes)
    assert world.closed() == [14, 89]


def test_a_partition_that_is_added_is_read_by_its_shard() -> None:
    world = Shards(2, shards=2)
    processes = world.start()
    for partition in range(2):
        world.produce(partition, report(1_000, partition))
    world.run_all(processes)
    world.grow(4)
    world.produce(2, report(1_050, 2), report(3_000, 2))
    world.produce(3, report(1_050, 3), report(3_000, 3))
    world.clock.advance(60_000)
    world.run_all(processes)
    for partition in range(2):
        world.produce(partition, report(3_000, partition))
    world.run_all(processes)
    assert world.closed() == [29, 29]
    assert world.cars() == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (1, 2, "there is a log of reports"),
        (2, 1, r"there is a log of reports\.0"),
        (3, 2, r"there is a log of reports\.2"),
        (2, 3, r"reports\.[01] has read partition [23] of p\.reports"),
    ],
)
def test_another_number_of_shards_than_before_is_rejected_by_every_shard(
    before: int, after: int, what: str
) -> None:
    world = Shards(4, shards=before)
    processes = world.start()
    for partition in range(4):
        world.produce(partition, report(1_000, partition))
    world.run_all(processes)
    for process in processes:
        process.stop()
    log, world.pipeline = world.log, pipeline("p", shards=after)
    names = world.pipeline.topic_names
    for stream in world.pipeline.source_streams():
        for topic, count in ((names.boundaries(stream), 1), (names.blocks(stream, "0"), 2)):
            if topic not in log.topics:
                log.admin().create([TopicSettings(topic, count)])
    for stream in world.pipeline.source_streams():
        with pytest.raises(ConfigurationError, match=what) as raised:
            world.process(stream)
        assert "another number" in str(raised.value)
    world.pipeline = pipeline("p", shards=before)
    world.run_all(world.start())
    assert world.closed() == [9] * before, "with the old number they go on where they were"


def test_more_shards_than_partitions_are_rejected() -> None:
    world = Shards(2, shards=3)
    for stream in world.pipeline.source_streams():
        with pytest.raises(ConfigurationError, match=r"at most 2 partitions.*write shards: 2"):
            world.process(stream)


def test_a_name_that_is_no_shards_is_rejected() -> None:
    world = Shards(2, shards=2)
    with pytest.raises(ConfigurationError, match=r"it has reports\.0, reports\.1"):
        world.process("reports")
