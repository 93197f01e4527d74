"""Delivery of results that are too large for a real broker. Its unknown outcomes, kills and fences
are in ``test_unknown_outcomes``, ``test_crash_points`` and ``test_zombies``.
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
from harness.waiting import wait_until

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
        self.services: list[DeliveryService] = []

    def service(self) -> DeliveryService:
        made = outputs.service(self.log, self.pipeline, self.clock, self.entropy)
        self.services.append(made)
        made.start()
        return made

    def close(self) -> None:
        self.replica.close()
        for made in self.services:
            made.stop()


@pytest.fixture
def world(kafka: str, topic_prefix: str) -> Iterator[World]:
    made = World(kafka, topic_prefix)
    yield made
    made.close()


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
    world.replica.close_buckets(1, {1: rows(1, 10)})
    service = world.service()
    output = world.pipeline.outputs["out"]
    entry = ConfigEntry("max.message.bytes", "100", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": kafka})
    resource = ConfigResource(
        ResourceType.TOPIC, output.corrected.topic, incremental_configs=[entry]
    )
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(20)

    def is_applied() -> bool:
        (answer,) = admin.describe_configs([resource]).values()
        return bool(answer.result(20)["max.message.bytes"].value == "100")

    # The controller answers before the broker has heard of it.
    wait_until(is_applied, 20, "the broker does not know the limit")
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
