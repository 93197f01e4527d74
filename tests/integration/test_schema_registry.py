"""A registry that others wrote, with clients that others wrote: ids, rejections, and a record from
a producer through ingestion, and from delivery to a consumer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from anabranch.adapters.connect import schema_registry
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.schema_registry import ConfluentRegistry
from anabranch.delivery.service import build
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError, Unavailable
from harness import outputs, sources
from harness.apicurio import ApicurioRegistry
from harness.confluent_serializers import sender

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

INT = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
TEXT = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApicurioRegistry]:
    made = ApicurioRegistry(tmp_path_factory.mktemp("registry"))
    made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def client(server: ApicurioRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": server.url})


def test_the_same_schema_has_the_same_id_and_is_found_by_it(server: ApicurioRegistry) -> None:
    registry = ConfluentRegistry(server.url)
    known = registry.register("same-value", json.dumps(INT))
    assert registry.register("same-value", json.dumps(INT)) == known
    assert ConfluentRegistry(server.url).register("same-value", json.dumps(INT)) == known
    assert json.loads(registry.schema(known, "AVRO").parts[-1].content) == INT
    with pytest.raises(ConfigurationError, match="schema registry"):
        registry.schema(987_654, "AVRO")


def test_a_schema_that_its_rule_rejects_is_a_mistake(
    server: ApicurioRegistry, client: SchemaRegistryClient
) -> None:
    registry = ConfluentRegistry(server.url)
    registry.register("ruled-value", json.dumps(INT))
    client.set_compatibility("ruled-value", "BACKWARD")
    with pytest.raises(ConfigurationError, match=server.url):
        registry.register("ruled-value", json.dumps(TEXT))
    assert len(client.get_versions("ruled-value")) == 1


def test_a_schema_of_another_kind_is_none(
    server: ApicurioRegistry, client: SchemaRegistryClient
) -> None:
    text = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "t", "type": "object"}
    known = client.register_schema("kind-value", Schema(json.dumps(text), "JSON"))
    with pytest.raises(ConfigurationError, match="as JSON, not as AVRO"):
        ConfluentRegistry(server.url).schema(known, "AVRO")


def test_what_a_producer_registers_is_read_and_what_is_not_there_is_a_dead_letter(
    server: ApicurioRegistry, client: SchemaRegistryClient
) -> None:
    clock, entropy = VirtualClock(), SeededEntropy(1)
    log = LocalEventLog(clock)
    of = sources.pipeline("p", format="avro", bounded=True).model_copy(
        update={"schema_registry": server.url}
    )
    sources.create_topics(log, of)
    at = TopicPartition("p.reports", 0)
    newer: dict[str, Any] = {
        **sources.REPORT.avro,
        "fields": [*sources.REPORT.avro["fields"], {"name": "plate", "type": ["null", "string"]}],
    }
    writer = log.writer()
    for car, schema in enumerate((sources.REPORT.avro, newer), 1):
        serialize = AvroSerializer(client, json.dumps(schema))
        value = {"time": 1_000, "car": car, "speed": 61.25, "road": "I-95", "lane": 2, "seen": True}
        context = SerializationContext(at.topic, MessageField.VALUE)
        writer.send(at, serialize({**value, "plate": None}, context), key=b"key")
    writer.send(at, b"\0" + (987_654).to_bytes(4, "big") + b"\2", key=b"key")
    writer.flush()
    view = sources.StreamView(log, of, clock)
    process = sources.service(log, of, clock, entropy, schema_registry)
    process.start()
    while view.closed() < 10:
        process.step()
    process.stop()
    expected = [b"schema id 987654"]
    became = view.cars(), sources.shortened(log, "p.reports.rejected", expected)
    assert became == ([1, 2], expected)


@pytest.mark.parametrize("form", ["avro", "json_schema", "protobuf"])
def test_formats_whose_schemas_refer_to_others(server: ApicurioRegistry, form: str) -> None:
    clock, entropy = VirtualClock(), SeededEntropy(1)
    log = LocalEventLog(clock)
    name = form.replace("_", "-")
    of = sources.pipeline(name, format=form, bounded=True).model_copy(
        update={"schema_registry": server.url}
    )
    sources.create_topics(log, of)
    at = TopicPartition(f"{name}.reports", 0)
    send = sender(form, server.url, at.topic, in_header=False)
    writer = log.writer()
    for car in (1, 2):
        value, _ = send(time=1_000, car=car, speed=61.25, road="I-95", lane=2, seen=True)
        writer.send(at, value, key=b"key")
    writer.flush()
    view = sources.StreamView(log, of, clock)
    process = sources.service(log, of, clock, entropy, schema_registry)
    process.start()
    while view.closed() < 10:
        process.step()
    process.stop()
    became = view.cars(), sources.shortened(log, f"{name}.reports.rejected", [])
    assert became == ([1, 2], [])


def test_a_protobuf_schema_that_is_kept_as_text_is_compiled(
    server: ApicurioRegistry, client: SchemaRegistryClient
) -> None:
    text = 'syntax = "proto3";\npackage acme;\nmessage Road {\n  string name = 1;\n}\n'
    client.register_schema("roads/road.proto", Schema(text, "PROTOBUF"))
    using = 'syntax = "proto3";\nimport "roads/road.proto";\nmessage Use {\n  acme.Road r = 1;\n}\n'
    references = [SchemaReference("roads/road.proto", "roads/road.proto", 1)]
    known = client.register_schema("use-value", Schema(using, "PROTOBUF", references=references))
    found = ConfluentRegistry(server.url).schema(known, "PROTOBUF")
    road, use = (FileDescriptorProto.FromString(part.content) for part in found.parts)
    assert (road.name, use.dependency) == ("roads/road.proto", ["roads/road.proto"])
    assert use.message_type[0].field[0].type_name == ".acme.Road"


def test_a_consumer_reads_what_delivery_has_written(
    server: ApicurioRegistry, client: SchemaRegistryClient
) -> None:
    clock, entropy = VirtualClock(), SeededEntropy(1)
    log = LocalEventLog(clock)
    of = outputs.pipeline("p")
    output = of.outputs["out"]
    corrected = output.corrected.model_copy(update={"format": "avro"})
    made = {"out": output.model_copy(update={"corrected": corrected})}
    of = of.model_copy(update={"outputs": made, "schema_registry": server.url})
    outputs.create_topics(log, of)
    outputs.Replica(log, of, clock, entropy).close_buckets(1, {1: outputs.rows(1, 5)})
    context = outputs.context(log, of, clock, entropy, "delivery", "out")
    process = build(context.settings, context, schema_registry)
    process.start()
    for _ in range(5):
        process.step()
    process.stop()
    values = [v for chunk in sources.everything(log, "p.out", 2) for v in chunk.values if v]
    deserialize = AvroDeserializer(client)
    read = [deserialize(v, SerializationContext("p.out", MessageField.VALUE)) for v in values]
    expected = outputs.rows(1, 5).column("total").to_pylist()
    assert sorted(row["total"] for row in read) == sorted(expected)
    assert client.get_subjects().count("p.out-value") == 1


def test_one_that_is_gone_is_away(
    server: ApicurioRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test: it ends the registry."""
    monkeypatch.setattr("anabranch.adapters.schema_registry._WAIT_MS", 1)
    registry = ConfluentRegistry(server.url)
    server.stop()
    with pytest.raises(Unavailable, match="no answer"):
        registry.register("away-value", json.dumps(INT))
