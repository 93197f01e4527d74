"""Records as Confluent's own serializers write them, with schemas that they register."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from harness.protobuf_messages import message_class, schema_of
from harness.sources import REPORT

Sent = tuple[bytes, list[tuple[str, bytes]]]
"""Value and headers of a record."""

JSON_SCHEMA: Final = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "report",
    "type": "object",
    "properties": {
        "time": {"type": ["integer", "null"]},
        "car": {"type": "integer"},
        "speed": {"type": "number"},
        "road": {"type": "string"},
        "lane": {"type": "integer"},
        "seen": {"type": "boolean"},
        "along": {"$ref": "along.json"},
    },
}
"""The reports of ``sources``, and a field of a type that is registered by itself."""
ALONG: Final = {"type": "object", "properties": {"name": {"type": "string"}}}
ALONG_PROTO: Final = (
    "along.proto",
    'syntax = "proto3"; package acme; message Along { string name = 1; }',
)
PROTO: Final = """syntax = "proto3";
package acme;
import "along.proto";
message Ignored { int32 x = 1; }
message report {
  int64 time = 1; int64 car = 2; double speed = 3; string road = 4; int32 lane = 5; bool seen = 6;
  Along along = 7;
}
"""


def sender(form: str, url: str, topic: str, *, in_header: bool) -> Callable[..., Sent]:
    """Return the function that makes a record of ``form`` for ``topic`` from a report's values.
    ``in_header``: name the schema by its GUID, in a header.
    """
    client = SchemaRegistryClient({"url": url})
    conf = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
    serialize, make = {"avro": _avro, "json_schema": _json, "protobuf": _protobuf}[form](
        client, conf
    )

    def send(**values: Any) -> Sent:
        headers: list[tuple[str, bytes]] = []
        context = SerializationContext(topic, MessageField.VALUE, headers=headers)
        value = serialize(make({**values, "along": {"name": "I-95"}}), context)
        return bytes(value), headers

    return send


def _same(values: Any) -> Any:
    return values


def _avro(client: Any, conf: dict[str, Any]) -> tuple[Any, Callable[[Any], Any]]:
    along = {"type": "record", "name": "Along", "fields": [{"name": "name", "type": "string"}]}
    client.register_schema("along", Schema(json.dumps(along), "AVRO"))
    fields = [*REPORT.avro["fields"], {"name": "along", "type": "Along"}]
    text = json.dumps({**REPORT.avro, "fields": fields})
    written = Schema(text, "AVRO", references=[SchemaReference("Along", "along", 1)])
    return AvroSerializer(client, written, conf=conf), _same


def _json(client: Any, conf: dict[str, Any]) -> tuple[Any, Callable[[Any], Any]]:
    client.register_schema("along.json", Schema(json.dumps(ALONG), "JSON"))
    references = [SchemaReference("along.json", "along.json", 1)]
    written = Schema(json.dumps(JSON_SCHEMA), "JSON", references=references)
    return JSONSerializer(written, client, conf=conf), _same


def _protobuf(client: Any, conf: dict[str, Any]) -> tuple[Any, Callable[[Any], Any]]:
    made = message_class(schema_of(PROTO, ALONG_PROTO), "acme.report")
    return ProtobufSerializer(made, client, conf=conf), lambda values: made(**values)
