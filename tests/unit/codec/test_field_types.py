"""Fields as a tree."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.codec import record_schema
from anabranch.codec.field_types import SCHEMA_DEPTH_MAX, FieldParser, full_name, names_of
from anabranch.protocol import limits
from harness.avro_schemas import (
    array_of,
    decimal_of,
    deep,
    enum_of,
    field,
    fixed_of,
    logical,
    map_of,
    of,
    struct,
    text,
)


def test_logical_and_nested_types_become_columns() -> None:
    schema = record_schema.parse(
        text(
            field("t", ["null", logical("timestamp-micros", "long")]),
            field("d", logical("date", "int"), default=3),
            field("n", decimal_of(9, 2), default="\u00ff"),
            field("x", decimal_of(9, 2, "fixed", name="f", size=4)),
            field("u", logical("uuid", "string")),
            field("a", array_of(["null", "int"]), default=[]),
            field("m", map_of(decimal_of(3, 1)), default={}),
            field("r", ["null", struct(of("int"), field("o", "bytes"))]),
            field("again", "n.x"),
            field("other", logical("time-millis", "int")),
            field("enum", enum_of("e", "A", "B")),
            field("same", "n.e"),
            field("fixed", fixed_of("f3", 3)),
            field("local", logical("local-timestamp-millis", "long")),
            field("nanos", logical("timestamp-nanos", "long")),
            field("lasts", {**logical("duration", "fixed"), "name": "l", "size": 12}),
            field("id", {**logical("uuid", "fixed"), "name": "i", "size": 16}),
            field("number", ["int", "long", "null"]),
            field("union", ["string", array_of("int"), "x", "e"]),
            field("plain", {"type": logical("unheard-of", "int")}),
            field("deep", deep(SCHEMA_DEPTH_MAX)),
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
    for kind in ("x", ["null", "x"], ["null", "int", "x"], array_of("x")):
        mistakes: list[str] = []
        assert FieldParser(mistakes).fields([of(struct(of(kind)))], "") == []
        assert mistakes[0].startswith("field a.a")
        assert "record x contains itself, and a recursive record cannot" in mistakes[0]


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (enum_of("e", "A"), "enum"),
        (fixed_of("f", 3), "fixed"),
        ({**logical("uuid", "fixed"), "name": "f", "size": 16}, "uuid"),
        ({**logical("duration", "fixed"), "name": "f", "size": 12}, "duration"),
        (logical("time-micros", "long"), "time-micros"),
        (logical("date", "int"), "date"),
        (["int", "string"], "union"),
        (["int", "long"], "long"),
        (decimal_of(3, 1, "fixed", name="f", size=2), "decimal(3, 1)"),
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
    half = [field(f"f{n}", "int") for n in range(limits.RECORD_FIELDS_MAX)]
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
