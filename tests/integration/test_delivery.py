"""Delivery on a real broker: killed, fenced, of unknown outcome; what committed readers see
is every id once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.delivery.service import DeliveryService
from anabranch.protocol.errors import Fenced
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.limits import MIB
from harness import outputs
from harness.outputs import (
    Replica,
    create_topics,
    delivered,
    drain,
    ids,
    rows,
    until_decided,
)
from harness.sources import everything
from harness.spoilt_writer import KilledError, SpoiltWriter

pytestmark = pytest.mark.integration


class World:
    """One output on a real broker, and what feeds it."""

    def __init__(self, address: str, prefix: str) -> None:
        self.log = KafkaEventLog(address)
        self.clock = SystemClock()
        self.entropy = SystemEntropy()
        self.pipeline = outputs.pipeline(prefix, partitions=3)
        create_topics(self.log, self.pipeline)
        self.replica = Replica(self.log, self.pipeline, self.clock, self.entropy)
        self.sizes: dict[int, int] = {}
        self.services: list[DeliveryService] = []

    def feed(self, upto: int, sizes: dict[int, int]) -> None:
        self.replica.close_buckets(
            upto, {bucket: rows(bucket, count) for bucket, count in sizes.items()}
        )
        self.sizes |= sizes

    def service(self) -> DeliveryService:
        made = outputs.service(self.log, self.pipeline, self.clock, self.entropy)
        self.services.append(made)
        made.start()
        return made

    def check(self) -> None:
        until_decided(self.log, self.pipeline)
        found = delivered(self.log, self.pipeline)
        assert sorted(ident for _, ident, _, _ in found) == ids(self.sizes)
        for partition in range(3):
            mine = [ident for p, ident, _, _ in found if p == partition]
            assert mine == sorted(mine)

    def close(self) -> None:
        self.replica.close()
        for made in self.services:
            made.stop()


@pytest.fixture
def world(kafka: str, topic_prefix: str) -> Iterator[World]:
    made = World(kafka, topic_prefix)
    yield made
    made.close()


def spoil(service: DeliveryService, how: str) -> None:
    assert service._writer is not None
    service._writer = SpoiltWriter(service._writer, how)


@pytest.mark.parametrize("how", ["lost", "applied"])
def test_an_unknown_outcome_is_settled_by_reading_back(world: World, how: str) -> None:
    world.feed(3, {1: 500, 3: 200})
    service = world.service()
    drain(service, 3)
    world.feed(6, {4: 300, 6: 100})
    service._following().read_to_end()
    spoil(service, how)
    drain(service, 6)
    assert service._counters.unknown._value.get() == 1
    world.feed(8, {8: 50})
    drain(service, 8)
    world.check()


def test_killed_between_send_and_commit(world: World) -> None:
    world.feed(3, {1: 500, 3: 200})
    first = world.service()
    spoil(first, "killed")
    first._following().read_to_end()
    with pytest.raises(KilledError):
        drain(first, 3)
    second = world.service()
    drain(second, 3)
    world.feed(5, {5: 100})
    drain(second, 5)
    world.check()


def test_a_zombie_is_fenced(world: World) -> None:
    world.feed(2, {1: 100})
    zombie = world.service()
    drain(zombie, 2)
    newer = world.service()
    world.feed(4, {3: 100, 4: 20})
    zombie._following().read_to_end()
    with pytest.raises(Fenced):
        drain(zombie, 4)
    drain(newer, 4)
    world.check()


def test_many_restarts(world: World) -> None:
    for upto in range(1, 6):
        world.feed(upto, {upto: 40})
        service = world.service()
        service._following().read_to_end()
        drain(service, upto)
        service.stop()
    world.check()
    assert [p.last_bucket for p in outputs.progress(world.log, world.pipeline)] == [1, 2, 3, 4, 5]


def test_a_result_that_no_record_can_hold_goes_to_the_topic_of_rejected_results(
    world: World,
) -> None:
    """A stage writes it in segments; a user's record has none. So it comes cut."""
    few = rows(1, 3)
    wide = pa.array(["I-1", "I-2 " + "x" * 18 * MIB, "I-3"])
    world.replica.close_buckets(2, {1: few.set_column(1, "road", wide), 2: rows(2, 5)})
    service = world.service()
    drain(service, 2)
    until_decided(world.log, world.pipeline)
    found = [ident for _, ident, _, _ in delivered(world.log, world.pipeline)]
    (chunk,) = everything(world.log, world.pipeline.outputs["out"].rejected)
    ((headers, value),) = zip(chunk.headers, chunk.values, strict=True)
    rejected = RecordId.parse((dict(headers)["anabranch-id"] or b"").decode())
    assert sorted([*found, rejected]) == ids({1: 3, 2: 5})
    assert value is not None
    assert b"I-2 xxx" in value
    assert int(dict(headers)["anabranch-truncated"] or b"") > 18 * MIB > len(value)
    assert service.status.detail["rejected"] == 1


def test_results_that_the_topic_rejects_for_their_size_go_to_their_own(
    world: World, kafka: str
) -> None:
    world.feed(1, {1: 10})
    service = world.service()
    output = world.pipeline.outputs["out"]
    entry = ConfigEntry("max.message.bytes", "100", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": kafka})
    resource = ConfigResource(
        ResourceType.TOPIC, output.corrected.topic, incremental_configs=[entry]
    )
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(20)
    service._following().read_to_end()
    drain(service, 1)
    until_decided(world.log, world.pipeline)
    rejected = [
        dict(headers)["anabranch-id"] or b""
        for chunk in everything(world.log, output.rejected)
        for headers in chunk.headers
    ]
    assert sorted(rejected) == sorted(f"1.{n}".encode() for n in range(10))
    assert service.status.detail["rejected"] == 10
    assert delivered(world.log, world.pipeline) == []
