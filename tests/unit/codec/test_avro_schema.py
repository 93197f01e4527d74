"""Schemas of anyone, as a graph of types."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest

from anabranch.codec.avro_schema import (
    WRITER_DEPTH_MAX,
    WRITER_SCHEMA_BYTES_MAX,
    WRITER_TYPES_MAX,
    of_notation,
    of_parts,
    wire,
)
from anabranch.codec.writer_schema import SchemaDocument, WriterSchema
from anabranch.protocol.errors import ConfigurationError
from harness.registries import alone

INT = {"name": "a", "type": "int"}


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": list(fields), **more}


def deep(levels: int) -> object:
    return "int" if levels == 0 else {"type": "array", "items": deep(levels - 1)}


@pytest.mark.parametrize(
    ("avro", "shown"),
    [
        ("int", "int"),
        ({"type": {"type": "int", "logicalType": "date"}}, "date"),
        ({"type": "int", "logicalType": "unheard-of"}, "int"),
        ({"type": "int", "logicalType": "uuid"}, "int"),
        ({"type": "int", "logicalType": 7}, "int"),
        ({"type": "int", "logicalType": "decimal", "precision": 3}, "int"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3}, "decimal(3, 0)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 4}, "bytes"),
        ({"type": "bytes", "logicalType": "decimal"}, "bytes"),
        ({"type": "fixed", "name": "f", "size": 12, "logicalType": "duration"}, "fixed f"),
        (["null", record(INT, namespace="n")], "[null, record n.r]"),
        ({"type": "array", "items": "int", "logicalType": "date"}, "array"),
        ({"type": ["null", "int"], "logicalType": "date"}, "[null, int]"),
        ({"type": "error", "name": "e", "fields": []}, "record e"),
    ],
)
def test_types_are_shown_as_what_they_are(avro: object, shown: str) -> None:
    assert of_notation(avro).shown() == shown


def test_names_are_found_in_their_namespaces() -> None:
    inner = {"type": "enum", "name": "e", "symbols": ["A"]}
    fields = [
        {"name": "a", "type": inner},
        {"name": "b", "type": "e"},
        {"name": "c", "type": "n.e"},
        {"name": "d", "type": record({"name": "x", "type": "far.f"}, name="q", namespace="far")},
    ]
    fields.insert(0, {"name": "f", "type": {"type": "fixed", "name": "far.f", "size": 2}})
    made = of_notation(record(*fields, namespace="n"))
    assert [each.name for each in made.inner] == ["far.f", "n.e", "n.e", "n.e", "far.q"]
    assert made.inner[1] is made.inner[2] is made.inner[3]
    assert made.inner[4].inner[0] is made.inner[0]
    bare = {"type": "fixed", "name": "g", "namespace": "", "size": 1}
    fields = [{"name": "a", "type": bare}, {"name": "b", "type": "g"}]
    assert of_notation(record(*fields, namespace="n")).inner[1].name == "g"


def test_recursive_types_contain_themselves() -> None:
    made = of_notation(record({"name": "next", "type": ["null", "r"]}))
    assert made.inner[0].inner[1] is made


@pytest.mark.parametrize(
    ("avro", "says"),
    [
        (7, "7 is not a type"),
        ("strong", "'strong' is not a type"),
        ({}, "null is not a type"),
        ([], "a union in it is empty"),
        (["int", ["null", "long"]], "has a union as a branch"),
        ({"type": "enum", "symbols": ["A"]}, "a type enum in it has no name"),
        ({"type": "enum", "name": "e"}, "enum e has no list of symbols"),
        ({"type": "enum", "name": "e", "symbols": [1]}, "enum e has no list of symbols"),
        ({"type": "fixed", "name": "f", "size": True}, "fixed f has no size"),
        ({"type": "fixed", "name": "f", "size": -1}, "fixed f has no size"),
        ({"type": "record", "name": "r"}, "record r has no list of fields"),
        (record("a"), 'record r: "a" is not a field'),
        (record({"type": "int"}), "is not a field"),
        (record({"name": "a", "type": record(INT)}), "two types in it are named r"),
        (deep(WRITER_DEPTH_MAX + 1), "nested deeper than 32 types"),
        (["null"] * WRITER_TYPES_MAX, "more than 5000 types"),
    ],
)
def test_what_is_no_schema_says_why(avro: object, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        of_notation(avro)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        (" " * (WRITER_SCHEMA_BYTES_MAX + 1), "it is larger than 1048576 bytes"),
    ],
)
def test_texts_that_are_no_schema_say_why(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        of_parts(alone(text))


def test_the_same_bytes_are_described_in_plain_terms() -> None:
    text = json.dumps(
        record(
            {"name": "gr\u00f6\u00dfe", "type": {"type": "int", "logicalType": "date"}},
            {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["not a name"]}},
            {"name": "f", "type": {"type": "fixed", "name": "f", "size": 2}},
            {"name": "g", "type": ["f", "null"], "default": 7},
            {"name": "u", "type": ["null", "int", "f"]},
            {"name": "m", "type": {"type": "map", "values": ["null", "r"]}},
            {"name": "l", "type": {"type": "array", "items": "f"}},
        )
    )
    found = wire(of_parts(alone(text)))
    assert [each["type"] for each in found["fields"]] == [
        "int",
        "int",
        {"type": "fixed", "name": "t4", "size": 2},
        ["t4", "null"],
        [
            "null",
            {"type": "record", "name": "b7_1", "fields": [{"name": "b1", "type": "int"}]},
            {"type": "record", "name": "b7_2", "fields": [{"name": "b2", "type": "t4"}]},
        ],
        {"type": "map", "values": ["null", "t1"]},
        {"type": "array", "items": "t4"},
    ]
    assert fastavro.parse_schema(found)["name"] == "t1"


def test_named_types_of_the_schemas_that_it_refers_to_are_known() -> None:
    inner = {"type": "enum", "name": "Kind", "namespace": "com.acme", "symbols": ["A", "B"]}
    middle = record({"name": "kind", "type": "com.acme.Kind"}, name="Middle", namespace="com.acme")
    outer = record({"name": "middle", "type": "com.acme.Middle"}, INT)
    texts = [("com.acme.Kind", inner), ("com.acme.Middle", middle), ("", outer)]
    parts = tuple(SchemaDocument(name, json.dumps(avro).encode()) for name, avro in texts)
    found = of_parts(WriterSchema(parts))
    assert found.fields == ["middle", "a"]
    assert found.inner[0].inner[0].symbols == ("A", "B")
    with pytest.raises(ConfigurationError, match=r"'com\.acme\.Middle' is not a type"):
        of_parts(WriterSchema(parts[-1:]))
    broken = WriterSchema((SchemaDocument("com.acme.Kind", b"{"), parts[-1]))
    with pytest.raises(ConfigurationError, match=r"com\.acme\.Kind, which it refers to: .* JSON"):
        of_parts(broken)


def test_all_parts_of_a_schema_count_for_its_size() -> None:
    half = SchemaDocument("half", b'"int"' + b" " * (WRITER_SCHEMA_BYTES_MAX // 2))
    assert of_parts(WriterSchema((half,))).kind == "int"
    with pytest.raises(ConfigurationError, match="larger than"):
        of_parts(WriterSchema((half, half)))
