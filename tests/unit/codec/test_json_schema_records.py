"""JSON with a JSON Schema: what the schema says of how values were written."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from anabranch.codec.json_schema_records import JSON_SCHEMA_BYTES_MAX, JsonSchemaDecoder
from anabranch.codec.record_schema import from_avro
from anabranch.codec.writer_schema import SchemaDocument, WriterSchema
from anabranch.protocol.errors import RejectionReason
from harness.avro_schemas import array_of, decimal_of, field, logical, map_of, record_of

FRAMING = b"\0\0\0\0\7"
CONNECT = "org.apache.kafka.connect.data."
MILLIS = logical("timestamp-millis")
MICROS = logical("timestamp-micros")
LOCAL = logical("local-timestamp-micros")
DATE = logical("date", "int")
PRICE = decimal_of(9, 2)
WIDE = {**PRICE, "precision": 20}
AT_1_MS = datetime(1970, 1, 1, 0, 0, 0, 1_000, UTC)


def written(*documents: tuple[str, Any]) -> WriterSchema:
    return WriterSchema(
        tuple(SchemaDocument(name, json.dumps(each).encode()) for name, each in documents)
    )


def read(kind: Any, schema: Any, sent: Any, *referred: tuple[str, Any]) -> Any:
    """Return the value of field ``a``, or (reason, text) of a rejection."""
    avro = record_of(field("a", kind))
    whole = {"type": "object", "properties": {"a": schema}}
    found = written(*referred, ("", whole))
    decoder = JsonSchemaDecoder(from_avro(avro, "r"), "ignore", lambda _: found)
    table, rejected = decoder.decode([FRAMING + json.dumps({"a": sent}).encode()])
    if rejected:
        return rejected[0][1].reason.value, str(rejected[0][1])
    return table.to_pylist()[0]["a"]


@pytest.mark.parametrize(
    ("kind", "schema", "sent", "expected"),
    [
        ("long", {"type": "integer"}, 5, 5),
        ("string", {}, "x", "x"),
        (array_of("int"), {"items": True}, [1], [1]),
        (array_of("int"), {"type": "array"}, [1], [1]),
        (MILLIS, {"type": "integer"}, 1, AT_1_MS),
        (MICROS, {"type": "integer"}, 1_000, AT_1_MS),
        (MICROS, {"type": "integer", "title": f"{CONNECT}Timestamp"}, 1, AT_1_MS),
        (LOCAL, {"type": "number"}, 1_000, AT_1_MS.replace(tzinfo=None)),
        (MICROS, {"type": "string", "format": "date-time"}, "1970-01-01T00:00:00.001Z", AT_1_MS),
        (MICROS, True, "1970-01-01T00:00:00.001Z", AT_1_MS),
        (DATE, {"type": "integer", "title": f"{CONNECT}Date"}, 1, date(1970, 1, 2)),
        (DATE, {"type": "string"}, "1970-01-02", date(1970, 1, 2)),
        (PRICE, {"type": "string"}, "1.5", Decimal("1.50")),
        (PRICE, {"type": "number"}, 1.5, Decimal("1.50")),
        (PRICE, {"type": ["number", "null"]}, -3, Decimal("-3.00")),
        (
            WIDE,
            {
                "type": "string",
                "title": f"{CONNECT}Decimal",
                "connect.parameters": {"scale": "2"},
            },
            "BNI=",
            Decimal("12.34"),
        ),
        (["null", MILLIS], {"oneOf": [{"type": "null"}, {"type": "integer"}]}, 1, AT_1_MS),
        (["null", MILLIS], {"oneOf": [{"type": "null"}, {"type": "integer"}]}, None, None),
        (array_of(DATE), {"items": {"type": "integer"}}, [1], [date(1970, 1, 2)]),
        (
            map_of(DATE),
            {"additionalProperties": {"type": "integer"}},
            {"x": 1},
            [("x", date(1970, 1, 2))],
        ),
    ],
)
def test_a_value_is_read_as_its_schema_says_that_it_was_written(
    kind: Any, schema: Any, sent: Any, expected: Any
) -> None:
    assert read(kind, schema, sent) == expected


@pytest.mark.parametrize(
    ("kind", "schema", "sent", "reason", "says"),
    [
        (MILLIS, {"type": "integer"}, "1970-01-01T00:00:00Z", "wrong_type", "a whole number"),
        (MILLIS, {"type": "integer"}, True, "wrong_type", "a whole number"),
        (MILLIS, {"type": "integer"}, 10**15, "out_of_range", ""),
        (MILLIS, {"type": "string"}, 1, "wrong_type", ""),
        (DATE, {"type": "integer"}, 10**9, "out_of_range", ""),
        (PRICE, {"type": "number"}, "1.5", "wrong_type", "a number"),
        (PRICE, {"type": "number"}, True, "wrong_type", "a number"),
        (PRICE, {"type": "number"}, 1.234, "out_of_range", "after the point"),
        (WIDE, {"type": "number"}, 1, "unknown_schema", "field a was written as a number"),
        (
            PRICE,
            {"type": "string", "title": f"{CONNECT}Decimal"},
            "BNI=",
            "unknown_schema",
            "field a is a decimal of None digits after the point, not 2",
        ),
        (
            PRICE,
            {
                "type": "string",
                "title": f"{CONNECT}Decimal",
                "connect.parameters": {"scale": "2"},
            },
            "?",
            "wrong_type",
            "a decimal in base64",
        ),
        ("string", {"$ref": "#/definitions/none"}, "x", "unknown_schema", "which is not there"),
        ("string", {"$ref": "other.json"}, "x", "unknown_schema", "which is not there"),
        (
            "string",
            {"$ref": "#/properties/a"},
            "x",
            "unknown_schema",
            "its references lead in a circle",
        ),
    ],
)
def test_a_value_that_is_not_as_its_schema_says(
    kind: Any, schema: Any, sent: Any, reason: str, says: str
) -> None:
    found, text = read(kind, schema, sent)
    assert (found, says in text) == (reason, True), text


TIME = {"type": "integer", "title": f"{CONNECT}Timestamp"}


@pytest.mark.parametrize(
    ("ref", "document"),
    [
        ("time.json", TIME),
        ("time.json#/definitions/t", {"definitions": {"t": TIME}}),
        ("time.json#/definitions/t", {"definitions": {"t": {"$ref": "#/u"}}, "u": TIME}),
    ],
)
def test_what_a_schema_refers_to_is_followed(ref: str, document: Any) -> None:
    assert read(MICROS, {"$ref": ref}, 1, ("time.json", document)) == AT_1_MS
    whole = {"$id": "http://acme.com/whole.json", "properties": {"b": {"$ref": ref}}}
    record = record_of(field("b", MICROS), name="B")
    of_whole = ("whole.json", whole)
    sent = {"b": 1}
    found = read(record, {"$ref": "whole.json"}, sent, ("time.json", document), of_whole)
    assert found == {"b": AT_1_MS}


def test_fields_are_found_by_their_names_in_json_and_parts_of_a_schema_count() -> None:
    inner = field("t", MICROS, alias="@t")
    record = record_of(inner, field("x", "int"), name="I")
    whole = {"allOf": [{"properties": {"@t": TIME}}, {"properties": {"x": {"type": "integer"}}}]}
    assert read(record, whole, {"@t": 1, "x": 2}) == {"t": AT_1_MS, "x": 2}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (WriterSchema((SchemaDocument("", b"{"),)), "it is not JSON"),
        (
            WriterSchema((SchemaDocument("a.json", b"\xff"), SchemaDocument("", b"{}"))),
            "a.json, which it refers to, is",
        ),
        (WriterSchema((SchemaDocument("", b"5"),)), "it is not a JSON schema"),
        (WriterSchema((SchemaDocument("", b'{"$id": 5}'),)), "it is not a JSON schema"),
        (
            WriterSchema((SchemaDocument("", b" " * (JSON_SCHEMA_BYTES_MAX + 1)),)),
            "it is larger than",
        ),
    ],
)
def test_a_schema_that_is_of_no_use_rejects_its_records(schema: WriterSchema, says: str) -> None:
    avro = record_of(field("a", "int"))
    decoder = JsonSchemaDecoder(from_avro(avro, "r"), "ignore", lambda _: schema)
    ((_, error),) = decoder.decode([FRAMING + b'{"a":1}'])[1]
    assert error.reason is RejectionReason.UNKNOWN_SCHEMA
    assert says in str(error)


def test_a_schema_of_true_says_nothing() -> None:
    avro = record_of(field("a", "int"))
    schema = WriterSchema((SchemaDocument("", b"true"),))
    decoder = JsonSchemaDecoder(from_avro(avro, "r"), "reject", lambda _: schema)
    table, ((_, error),) = decoder.decode([FRAMING + b'{"a":1}', FRAMING + b'{"a":1,"b":2}'])
    assert table.to_pylist() == [{"a": 1}]
    assert error.reason is RejectionReason.EXTRA_FIELD
