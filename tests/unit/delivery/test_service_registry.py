"""An output in Avro whose schema id is a registry's."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import fastavro
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from anabranch.adapters.connect import schema_registry
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.delivery.service import DeliveryService, build
from anabranch.protocol.errors import ConfigurationError
from harness import outputs, sources
from harness.outputs import Replica, rows
from harness.registries import RegistryServer


class World:
    def __init__(self, server: RegistryServer, *, live: bool = False) -> None:
        self.server = server
        self.clock = VirtualClock()
        self.entropy = SeededEntropy(1)
        self.log = LocalEventLog(self.clock)
        of = outputs.pipeline("p", live=live)
        output = of.outputs["out"]
        avro = {"format": "avro"}
        made = output.model_copy(
            update={
                "corrected": output.corrected.model_copy(update=avro),
                "live": output.live.model_copy(update=avro) if output.live else None,
            }
        )
        self.pipeline = of.model_copy(
            update={"outputs": {"out": made}, "schema_registry": server.url}
        )
        outputs.create_topics(self.log, self.pipeline)
        self.replica = Replica(self.log, self.pipeline, self.clock, self.entropy)

    def process(self) -> DeliveryService:
        made = outputs.context(self.log, self.pipeline, self.clock, self.entropy, "delivery", "out")
        process = build(made.settings, made, schema_registry)
        process.start()
        return process

    def values(self, topic: str) -> list[bytes]:
        return [
            value
            for chunk in sources.everything(self.log, topic, 2)
            for value in chunk.values
            if value
        ]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as made:
        yield made


def test_the_id_is_the_one_that_the_registry_gives(server: RegistryServer) -> None:
    server.add({"type": "record", "name": "other", "fields": [{"name": "x", "type": "int"}]})
    world = World(server)
    world.replica.close_buckets(1, {1: rows(1, 5)})
    process = world.process()
    for _ in range(5):
        process.step()
    assert server.subjects == {"p.out-value": [2]}
    schema = json.loads(server.schemas[2]["schema"])
    assert "schema_id" not in schema
    found = [
        fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schema), None)
        for value in world.values("p.out")
        if value[:5] == b"\0\0\0\0\2"
    ]
    assert sorted(row["total"] for row in found) == sorted(rows(1, 5).column("total").to_pylist())
    process.stop()
    again = world.process()
    again.step()
    again.stop()
    assert len(server.schemas) == 2


def test_both_topics_have_subjects_of_their_own(server: RegistryServer) -> None:
    world = World(server, live=True)
    world.replica.close_buckets(1, {1: rows(1, 5)})
    process = world.process()
    for _ in range(10):
        process.step()
    process.stop()
    assert set(server.subjects) == {"p.out-value", "p.out.live-value"}
    assert world.values("p.out.live")


def test_a_registry_that_is_away_is_waited_for(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.adapters.schema_registry._WAIT_MS", 1)
    world = World(server)
    world.replica.close_buckets(1, {1: rows(1, 5)})
    server.status = 503
    process = world.process()
    process.step()
    assert process.status.state == "waiting"
    assert "schema registry" in (process.status.waiting_for or "")
    assert world.values("p.out") == []
    server.status = 200
    world.clock.sleep_ms(60_000)
    for _ in range(5):
        process.step()
    assert len(world.values("p.out")) == 5
    process.stop()


def test_a_schema_that_the_registry_rejects_ends_the_process(server: RegistryServer) -> None:
    world = World(server)
    server.rejects.add("p.out-value")
    world.replica.close_buckets(1, {1: rows(1, 5)})
    process = world.process()
    with pytest.raises(ConfigurationError, match="Incompatible schema"):
        process.step()
    process.stop()


@pytest.mark.parametrize(
    ("subject", "subjects"),
    [
        ("topic", {"p.out-key", "p.out-value"}),
        ("record", {"out", "out_key"}),
        ("topic_record", {"p.out-out", "p.out-out_key"}),
    ],
)
def test_keys_are_registered_and_subjects_are_named_as_asked(
    server: RegistryServer, subject: str, subjects: set[str]
) -> None:
    """Confluent's own deserializer reads key and value."""
    world = World(server)
    output = world.pipeline.outputs["out"]
    more = {"key_format": "avro", "subject": subject}
    corrected = output.corrected.model_copy(update=more)
    made = {"out": output.model_copy(update={"corrected": corrected})}
    world.pipeline = world.pipeline.model_copy(update={"outputs": made})
    world.replica.close_buckets(1, {1: rows(1, 5)})
    process = world.process()
    for _ in range(5):
        process.step()
    process.stop()
    assert set(server.subjects) == subjects
    read = AvroDeserializer(SchemaRegistryClient({"url": server.url}))
    both = [
        (
            read(key, SerializationContext("p.out", MessageField.KEY)),
            read(value, SerializationContext("p.out", MessageField.VALUE)),
        )
        for chunk in sources.everything(world.log, "p.out", 2)
        for key, value in zip(chunk.keys, chunk.values, strict=True)
        if value
    ]
    assert len(both) == 5
    for key, value in both:
        assert list(key) == corrected.key
        assert key.items() <= value.items()
