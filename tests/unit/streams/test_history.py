"""Reading of a stream's history: whole buckets, from any replica that has them, shards together."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.adapters.memory.reader import LocalLogReader
from anabranch.codec.catalog import topic_settings
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.stage.splitting import end
from anabranch.streams import history
from anabranch.streams.history import History
from harness.output_world import World
from harness.outputs import STAGE, Replica, rows


def read(world: World, first: int = 1, last: int = 99) -> list[tuple[int, list[int]]]:
    with History(world.log, world.pipeline, STAGE, world.clock) as found:
        return [(bucket, sorted(t["total"].to_pylist())) for bucket, t in found.rows(first, last)]


def totals(*buckets: int) -> list[tuple[int, list[int]]]:
    return [(bucket, sorted(rows(bucket, 3)["total"].to_pylist())) for bucket in buckets]


@pytest.mark.parametrize("rows_at_once", [1, 4, 50_000])
def test_stable_buckets_come_whole_and_in_order(
    rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_ROWS_AT_ONCE", rows_at_once)
    world = World(shards=1)
    world.feed(6, {2: 3, 3: 3, 5: 3})
    with History(world.log, world.pipeline, STAGE, world.clock) as found:
        assert (found.first, found.last) == (1, 6)
    assert read(world) == totals(2, 3, 5)
    assert read(world, 3, 4) == totals(3)
    assert read(world, 7, 9) == []


def test_nothing_was_written_yet() -> None:
    assert read(World(shards=1)) == []


def trim(world: World, replica: str) -> None:
    for partition in range(world.pipeline.partitions):
        at = TopicPartition(world.pipeline.topic_names.blocks(STAGE, replica), partition)
        world.log.trim(at, 1)


def test_it_begins_after_what_is_deleted() -> None:
    world = World(shards=1)
    world.feed(3, {1: 3, 2: 3, 3: 3})
    trim(world, "0")
    with History(world.log, world.pipeline, STAGE, world.clock) as found:
        first = found.first
        assert [bucket for bucket, _ in found.rows(1, 3)] == list(range(first, 4))
    assert 1 < first <= 4


def test_readers_are_closed_if_it_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(shards=1)
    world.feed(3, {1: 3})
    opened: list[LocalLogReader] = []
    reader_of = world.log.reader

    def reader(**options: Any) -> LocalLogReader:
        opened.append(reader_of(**options))
        return opened[-1]

    def fails(*_: object) -> int:
        raise Unavailable("the broker does not answer")

    monkeypatch.setattr(world.log, "reader", reader)
    monkeypatch.setattr(history, "last_gone_everywhere", fails)
    with pytest.raises(Unavailable):
        History(world.log, world.pipeline, STAGE, world.clock)
    assert opened
    for each in opened:
        with pytest.raises(LocalProtocolError, match="closed"):
            each.assign({})


def test_another_replica_has_what_the_first_one_deleted() -> None:
    world = World(shards=1, replicas=2)
    world.feed(2, {1: 3, 2: 3})
    other = Replica(world.log, world.pipeline, world.clock, world.entropy, "1")
    other.close_buckets(2, {1: rows(1, 3), 2: rows(2, 3)})
    trim(world, "0")
    assert read(world) == totals(1, 2)


def test_a_stream_that_is_not_there_is_named_with_those_that_are() -> None:
    world = World(shards=1)
    with pytest.raises(ConfigurationError, match="no stream nothing; it has totals"):
        History(world.log, world.pipeline, "nothing", world.clock)


def test_a_stream_of_another_cluster_is_read_there(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(shards=1)
    elsewhere: Any = type(world.pipeline)
    monkeypatch.setattr(elsewhere, "cluster_of", lambda *_: "south")
    with pytest.raises(ConfigurationError, match="is on cluster south: read it there"):
        History(world.log, world.pipeline, STAGE, world.clock)


def test_a_shard_that_was_split_comes_once_and_goes_on_in_its_halves() -> None:
    """Before its end nobody reads its halves, which may be far behind, or do not run."""
    world = World(shards=1)
    whole = world.pipeline.stages[STAGE]
    halves = [
        whole.model_copy(update={"name": f"{STAGE}.{half}", "parent": STAGE}) for half in (0, 1)
    ]
    world.pipeline = world.pipeline.model_copy(
        update={
            "stages": {STAGE: whole} | {half.name: half for half in halves},
            "stage_shards": {STAGE: [STAGE, *(half.name for half in halves)]},
        }
    )
    names = world.pipeline.topic_names
    for half in halves:
        specs = [topic_settings("boundaries", names.boundaries(half.name))]
        specs.append(topic_settings("blocks", names.blocks(half.name, "0"), 5))
        assert not world.log.admin().create(specs)
    world.feed(4, {2: 3, 3: 3})
    assert read(world) == totals(2, 3)
    lower, upper = (
        Replica(world.log, world.pipeline, world.clock, world.entropy, stage=half.name)
        for half in halves
    )
    lower.close_buckets(3, {3: rows(3, 3)})
    assert read(world) == totals(2, 3)
    writer = world.replica._boundaries
    writer.append(end("0", writer.epoch, BatchId("e", 0), writer.log_state, 1))
    assert read(world) == totals(2, 3)
    lower.close_buckets(6, {5: rows(5, 3)})
    assert read(world) == totals(2, 3), "the other half is not as far"
    upper.close_buckets(6, {})
    assert read(world) == totals(2, 3, 5)
