"""Fields as a tree."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from anabranch.codec import record_schema
from anabranch.codec.field_types import SCHEMA_DEPTH_MAX, FieldParser, full_name, names_of
from anabranch.protocol import limits


def text(*fields: object, **more: object) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": list(fields), **more})


def of(kind: object, **more: object) -> dict[str, object]:
    return {"name": "a", "type": kind, **more}


def logical(name: str, plain: str) -> dict[str, object]:
    return {"type": plain, "logicalType": name}


def decimal(precision: int, scale: int, **more: object) -> dict[str, object]:
    of = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return {**of, **more}


def struct(*fields: object, name: object = "x") -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)}


def deep(levels: int) -> object:
    return "int" if levels == 0 else {"type": "array", "items": deep(levels - 1)}


def test_logical_and_nested_types_become_columns() -> None:
    schema = record_schema.parse(
        text(
            {"name": "t", "type": ["null", logical("timestamp-micros", "long")]},
            {"name": "d", "type": logical("date", "int"), "default": 3},
            {"name": "n", "type": decimal(9, 2), "default": "\u00ff"},
            {"name": "x", "type": decimal(9, 2, type="fixed", name="f", size=4)},
            {"name": "u", "type": logical("uuid", "string")},
            {"name": "a", "type": {"type": "array", "items": ["null", "int"]}, "default": []},
            {"name": "m", "type": {"type": "map", "values": decimal(3, 1)}, "default": {}},
            {"name": "r", "type": ["null", struct(of("int"), {"name": "o", "type": "bytes"})]},
            {"name": "again", "type": "n.x"},
            {"name": "other", "type": logical("time-millis", "int")},
            {"name": "enum", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
            {"name": "same", "type": "n.e"},
            {"name": "fixed", "type": {"type": "fixed", "name": "f3", "size": 3}},
            {"name": "local", "type": logical("local-timestamp-millis", "long")},
            {"name": "nanos", "type": logical("timestamp-nanos", "long")},
            {"name": "lasts", "type": {**logical("duration", "fixed"), "name": "l", "size": 12}},
            {"name": "id", "type": {**logical("uuid", "fixed"), "name": "i", "size": 16}},
            {"name": "number", "type": ["int", "long", "null"]},
            {"name": "union", "type": ["string", {"type": "array", "items": "int"}, "x", "e"]},
            {"name": "plain", "type": {"type": {"type": "int", "logicalType": "unheard-of"}}},
            {"name": "deep", "type": deep(SCHEMA_DEPTH_MAX)},
            namespace="n",
        ),
        "rec",
    )
    inner = pa.struct([("a", pa.int32()), ("o", pa.binary())])
    columns = schema.arrow_schema()
    assert [columns.field(name).type for name in columns.names[:-1]] == [
        pa.timestamp("us", "UTC"),
        pa.date32(),
        pa.decimal128(9, 2),
        pa.decimal128(9, 2),
        pa.string(),
        pa.list_(pa.field("element", pa.int32())),
        pa.map_(pa.string(), pa.decimal128(3, 1)),
        inner,
        inner,
        pa.int32(),
        pa.string(),
        pa.string(),
        pa.binary(),
        pa.timestamp("us"),
        pa.int64(),
        pa.struct([("months", pa.int64()), ("days", pa.int64()), ("millis", pa.int64())]),
        pa.string(),
        pa.int64(),
        pa.struct(
            [
                ("member_string", pa.string()),
                ("member_array", pa.list_(pa.field("element", pa.int32()))),
                ("member_x", inner),
                ("member_e", pa.string()),
            ]
        ),
        pa.int32(),
    ]
    assert [columns.field(name).nullable for name in ("t", "r", "again", "number", "union")] == [
        *(True, True, False, True, False)
    ]
    assert [f.default for f in schema.fields if f.has_default] == [3, -1, [], {}]


def test_a_record_in_itself_is_rejected_as_recursive() -> None:
    for kind in ("x", ["null", "x"], ["null", "int", "x"], {"type": "array", "items": "x"}):
        mistakes: list[str] = []
        assert FieldParser(mistakes).fields([of(struct(of(kind)))], "") == []
        assert mistakes[0].startswith("field a.a")
        assert "record x contains itself, and a recursive record cannot" in mistakes[0]


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "enum"),
        ({"type": "fixed", "name": "f", "size": 3}, "fixed"),
        ({**logical("uuid", "fixed"), "name": "f", "size": 16}, "uuid"),
        ({**logical("duration", "fixed"), "name": "f", "size": 12}, "duration"),
        (logical("time-micros", "long"), "time-micros"),
        (logical("date", "int"), "date"),
        (["int", "string"], "union"),
        (["int", "long"], "long"),
        (decimal(3, 1, type="fixed", name="f", size=2), "decimal(3, 1)"),
        (struct(of("int")), "record"),
    ],
)
def test_a_field_is_shown_as_its_type(kind: object, shown: str) -> None:
    assert record_schema.parse(text(of(kind)), "r").fields[0].shown() == shown


def test_names_and_aliases_are_kept() -> None:
    inner = {**struct(of("int")), "aliases": ["old.y", "z"], "namespace": "n"}
    (field,) = record_schema.parse(text(of(inner, aliases=["b"])), "r").fields
    assert (field.aliases, field.names) == (("b",), ("x", "y", "z"))
    assert names_of({"name": "n.r", "aliases": ["s", 7]}) == ("r", "s")


def test_fields_beyond_the_limit_are_not_looked_at() -> None:
    half = [{"name": f"f{n}", "type": "int"} for n in range(limits.RECORD_FIELDS_MAX)]
    parser = FieldParser([])
    parser.fields([of(struct(*half)), *half], "")
    assert limits.RECORD_FIELDS_MAX < parser.count < limits.RECORD_FIELDS_MAX + 5


@pytest.mark.parametrize(
    ("avro", "name"),
    [
        ({"name": "a"}, "outer.a"),
        ({"name": "a", "namespace": "own"}, "own.a"),
        ({"name": "far.a", "namespace": "own"}, "far.a"),
        ({"name": "a", "namespace": ""}, "a"),
    ],
)
def test_names_have_their_namespace(avro: dict[str, object], name: str) -> None:
    assert full_name(avro, "outer") == name
