"""Tests of a live topic with results that it cannot hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.codec import blocks
from anabranch.codec.blocks import schema_text
from anabranch.codec.catalog import TopicSettings
from harness.live_world import World, compacted, settle
from harness.outputs import Replica, delivered, rows

LIVE = "p.out.live"


def test_results_that_the_live_topic_does_not_take_are_left_out_of_it() -> None:
    """The others, and the topic's own records, come as ever."""
    world = World()
    world.log.admin().create([TopicSettings(LIVE, 1, config={"max.message.bytes": "300"})])
    service = world.service()
    for bucket in (1, 2):
        table = rows(bucket, 3)
        roads = pa.array(["long" * 200 if n == 1 else "short" for n in range(3)])
        world.replica.close_buckets(bucket, {bucket: table.set_column(1, "road", roads)})
        world.replica.show(
            bucket + 1,
            {bucket + 1: rows(bucket + 1, 1).set_column(1, "road", pa.array(["long" * 200]))},
        )
        settle(service)
    lines = ["insertion 1 x2, boundary 1", "boundary 1/2", "undo 1.2, insertion 2 x2, boundary 2/3"]
    assert world.transcript() == lines
    assert len(delivered(world.log, world.pipeline)) == 6, "the corrected topic takes them"
    assert service.status.detail["live_left_out"] == 4


def test_an_upsert_view_shows_the_last_value_that_its_topic_takes() -> None:
    world = World(upsert=True)
    config = {"max.message.bytes": "400", "cleanup.policy": "compact"}
    world.log.admin().create([TopicSettings(LIVE, 1, config=config)])
    service = world.service()

    def of(bucket: int, road: str) -> pa.Table:
        return rows(bucket, 1).set_column(1, "road", pa.array([road]))

    world.replica.close_buckets(1, {1: of(1, "short")})
    settle(service)
    world.replica.show(2, {2: of(2, "long" * 200)})
    settle(service)
    assert compacted(world) == {0: ("insertion", 1_000_000)}, "not what is tentative"
    world.replica.close_buckets(2, {2: of(2, "long" * 200)})
    settle(service)
    assert compacted(world) == {0: ("undo", None)}, "a value that is not true any more is not shown"
    world.replica.close_buckets(3, {3: of(3, "short")})
    settle(service)
    assert compacted(world) == {0: ("insertion", 3_000_000)}


@pytest.mark.parametrize("upsert", [False, True])
def test_rows_that_no_stream_holds_are_left_out(
    monkeypatch: pytest.MonkeyPatch, *, upsert: bool
) -> None:
    monkeypatch.setattr(blocks, "ROW_BYTES_MAX", 6_000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", 1_000)
    world = World(upsert=upsert)
    service = world.service()
    roads = pa.array(["long" * 3_000 if n == 1 else "short" for n in range(3)])
    world.replica.close_buckets(1, {1: rows(1, 3).set_column(1, "road", roads)})
    world.replica.show(2, {2: rows(2, 3).set_column(1, "road", roads)})
    settle(service)
    if upsert:
        assert compacted(world) == {2: ("tentative", 2_000_002), 0: ("tentative", 2_000_000)}
    else:
        assert world.transcript() == ["insertion 1 x2, boundary 1", "tentative 2 x2, boundary 1/2"]
    assert service.status.detail["live_left_out"] == 0, "the stage counts them"


@pytest.mark.parametrize("upsert", [False, True])
def test_results_that_the_output_cannot_write_are_left_out(*, upsert: bool) -> None:
    """The live topic goes on without them."""
    world = World(upsert=upsert)
    schema = schema_text(rows(1, 1).schema)
    replica = Replica(world.log, world.pipeline, world.clock, world.entropy, schema=schema)
    service = world.service()
    replica.close_buckets(1, {1: rows(1, 2)})
    settle(service)
    replica.show(3, {2: rows(2, 1).drop_columns(["car"]), 3: rows(3, 2)})
    settle(service)
    if upsert:
        assert compacted(world) == {1: ("tentative", 3_000_001), 0: ("tentative", 3_000_000)}
    else:
        assert world.transcript() == ["insertion 1 x2, boundary 1", "tentative 3 x2, boundary 1/3"]
    assert service.status.detail["live"] == "running"
