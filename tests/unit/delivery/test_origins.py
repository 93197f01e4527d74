"""Topics that hold records of several origins: of another pipeline, or of an earlier life."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.client import corrected, current
from anabranch.codec.catalog import TopicSettings
from anabranch.delivery.service import DeliveryService
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.edge.origins import Origin
from anabranch.protocol.errors import ConfigurationError, Unavailable
from harness import outputs
from harness.outputs import Replica, create_topics, delivered, drain, ids, rows
from harness.sources import everything

TOPIC, LIVE = "results", "results.live"
FIRST, SECOND = {2: 3, 5: 2}, {2: 4, 5: 3, 7: 1}
SHIFT = 9_000_000


class World:
    """A broker on which pipelines deliver to one corrected topic and one live topic."""

    def __init__(self, *, upsert: bool = False, shards: int = 1) -> None:
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        self._upsert, self.shards = upsert, shards

    def pipeline(self, name: str) -> Pipeline:
        of = outputs.pipeline(name, live=True, upsert=self._upsert, shards=self.shards)
        out = of.outputs["out"]
        assert out.live is not None
        to = {
            "corrected": out.corrected.model_copy(update={"topic": TOPIC}),
            "live": out.live.model_copy(update={"topic": LIVE}),
        }
        return of.model_copy(update={"outputs": {"out": out.model_copy(update=to)}})

    def begin(self, of: Pipeline, seed: int, process: str = "out") -> DeliveryService:
        service = outputs.service(self.log, of, self.clock, SeededEntropy(seed), process)
        service.start()
        return service

    def run(self, name: str, seed: int, sizes: Mapping[int, int], *, shift: int = 0) -> None:
        """Deliver these buckets as a pipeline whose internal topics are new."""
        of = self.pipeline(name)
        create_topics(self.log, of)
        replica = Replica(self.log, of, self.clock, SeededEntropy(seed))
        replica.close_buckets(9, {bucket: table(bucket, n, shift) for bucket, n in sizes.items()})
        replica.close()
        services = [
            self.begin(of, seed + n, process)
            for n, process in enumerate(of.outputs["out"].processes())
        ]
        for service in services:
            drain(service, 9)
        for _ in range(20):
            services[0].step()
        for service in services:
            service.stop()

    def forget(self, name: str, *, progress: bool) -> None:
        """Delete the internal topics of a pipeline, with its ``progress`` or without."""
        admin = self.log.admin()
        for topic in admin.named(f"{name}."):
            if progress or not topic.endswith(".progress"):
                admin.delete_topics([topic])


def table(bucket: int, count: int, shift: int) -> pa.Table:
    made = rows(bucket, count)
    totals = [value + shift for value in made.column("total").to_pylist()]
    return made.set_column(2, "total", pa.array(totals, pa.int64()))


def shifted(world: World, of: Pipeline) -> list[str]:
    """Ids in the corrected topic of the rows that the second run made."""
    return sorted(
        str(ident)
        for _, ident, _, value in delivered(world.log, of)
        if json.loads(value or b"")["total"] >= SHIFT
    )


def expected(sizes: Mapping[int, int]) -> list[str]:
    return sorted(map(str, ids(sizes)))


@pytest.mark.parametrize("progress", [True, False])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_second_life_delivers_all_of_its_results(*, progress: bool, shards: int) -> None:
    """Whether its progress topics were deleted with the others or not."""
    world = World(shards=shards)
    world.run("v", 1, FIRST)
    world.forget("v", progress=progress)
    world.run("v", 11, SECOND, shift=SHIFT)
    assert shifted(world, world.pipeline("v")) == expected(SECOND)
    with corrected(world.log, TOPIC, follow=False) as found:
        got = list(found)
        assert found.foreign == 0
    by_origin = {
        origin: sorted(row.id for row in got if row.origin == origin)
        for origin in {row.origin for row in got}
    }
    assert sorted(by_origin.values()) == sorted([expected(FIRST), expected(SECOND)])
    answer = current(world.log, LIVE)
    assert sorted(str(record.id) for record in answer.records()) == expected(SECOND)
    assert answer.foreign == 0


def test_a_restart_in_the_same_life_repeats_nothing() -> None:
    world = World()
    world.run("v", 1, FIRST)
    of = world.pipeline("v")
    again = world.begin(of, 2)
    drain(again, 9)
    assert len(delivered(world.log, of)) == 5
    assert again.status.detail["other_producers"] == []
    admin = world.log.admin()  # a lost progress topic: the ids in the topic say what is there
    admin.delete_topics([of.topic_names.progress("out")])
    again.stop()
    drain(world.begin(of, 3), 9)
    assert len(delivered(world.log, of)) == 5


def test_a_second_pipeline_does_not_begin_on_a_topic_of_a_live_one() -> None:
    world = World()
    world.run("v1", 1, FIRST)
    with pytest.raises(ConfigurationError, match=r"topic results.* has results of .* pipeline v1"):
        world.run("v2", 2, SECOND, shift=SHIFT)
    assert shifted(world, world.pipeline("v2")) == []
    world.forget("v1", progress=True)
    world.run("v3", 3, SECOND, shift=SHIFT)
    assert shifted(world, world.pipeline("v3")) == expected(SECOND)


@pytest.mark.parametrize("upsert", [False, True])
def test_nor_on_its_live_topic(*, upsert: bool) -> None:
    world = World(upsert=upsert)
    world.run("v1", 1, FIRST)
    world.log.admin().delete_topics([TOPIC])
    with pytest.raises(ConfigurationError, match=r"topic results\.live has results of"):
        world.run("v2", 2, SECOND)


def test_one_that_has_begun_goes_on_and_names_the_other() -> None:
    world = World()
    world.run("v", 1, FIRST)
    other = Origin("w", "out", "x")
    writer = world.log.writer()
    for value in (other.header, b"rubbish"):
        headers = [("anabranch-id", b"9.0"), ("anabranch-origin", value)]
        writer.send(TopicPartition(TOPIC, 0), b"{}", None, headers)
    writer.flush()
    service = world.begin(world.pipeline("v"), 2)
    assert service.status.state == "running"
    assert service.status.detail["other_producers"] == ["w.out.x"]
    assert service.status.detail["foreign_records"] == 2


def test_an_upsert_view_loses_the_keys_of_an_earlier_life() -> None:
    world = World(upsert=True)
    world.log.admin().create([TopicSettings(LIVE, 2, config={"cleanup.policy": "compact"})])
    world.run("v", 1, {2: 7})
    world.forget("v", progress=False)
    world.run("v", 2, {3: 2}, shift=SHIFT)
    state: dict[bytes | None, bytes | None] = {}
    for chunk in everything(world.log, LIVE, 2):
        state.update(zip(chunk.keys, chunk.values, strict=True))
    left = {key: value for key, value in state.items() if value is not None}
    assert len(state) == 7
    assert len(left) == 2
    assert all(json.loads(value)["total"] >= SHIFT for value in left.values())


def test_an_output_waits_for_the_topic_of_its_stage() -> None:
    world = World()
    with pytest.raises(Unavailable, match=r"v.totals.boundaries does not exist"):
        world.begin(world.pipeline("v"), 1)
