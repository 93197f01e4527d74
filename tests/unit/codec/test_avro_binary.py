from __future__ import annotations

import io
import struct
from typing import Any

import fastavro
import pytest

from anabranch.codec.avro_binary import MalformedError, Reader, compile_schema

RECORD: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "a", "type": ["null", "long"]},
        {
            "name": "b",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "inner",
                    "fields": [{"name": "x", "type": "int"}],
                },
            },
        },
        {"name": "c", "type": {"type": "enum", "name": "e", "symbols": ["u", "v"]}},
        {"name": "d", "type": {"type": "fixed", "name": "f", "size": 3}},
        {"name": "g", "type": ["null", "inner"]},
        {"name": "h", "type": {"type": "string"}},
        {"name": "i", "type": "float"},
        {"name": "j", "type": "double"},
        {"name": "k", "type": "boolean"},
        {"name": "l", "type": "bytes"},
    ],
}


def reading(data: bytes, items_max: int = 100) -> Reader:
    return Reader(data, 0, items_max)


def test_it_reads_what_fastavro_writes() -> None:
    value = {
        "a": -(2**63),
        "b": [{"x": 1}, {"x": -(2**31)}],
        "c": "v",
        "d": b"abc",
        "g": {"x": 5},
        "h": "zebra \u00e9",
        "i": 0.5,
        "j": -1e300,
        "k": True,
        "l": b"\0\xff",
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(RECORD), value)
    reader = reading(out.getvalue())
    found = compile_schema(RECORD)(reader)
    reader.end()
    assert found == (
        -(2**63),
        ((1,), (-(2**31),)),
        "v",
        b"abc",
        (5,),
        "zebra \u00e9",
        0.5,
        -1e300,
        True,
        b"\0\xff",
    )


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\0", 0),
        (b"\1", -1),
        (b"\x80\x01", 64),
        (b"\x82\x80\x00", 1),
        (b"\xff" * 9 + b"\x01", -(2**63)),
        (b"\xff" * 9 + b"\x7f", -(2**63)),
    ],
)
def test_integers_may_be_longer_than_needed(data: bytes, value: int) -> None:
    assert reading(data).read_long() == value


@pytest.mark.parametrize(
    ("data", "schema", "says"),
    [
        (b"", "long", "ends within an integer"),
        (b"\x80", "long", "ends within an integer"),
        (b"\x80" * 11, "long", "more than ten bytes"),
        (b"\x80\x80\x80\x80\x10", "int", "does not fit an int"),
        (b"\x04a", "string", "a length of 2 where 1 bytes are left"),
        (b"\x01", "bytes", "a length of -1"),
        (b"\x04\xff\xfe", "string", "not UTF-8"),
        (b"\x02", "boolean", "not a boolean"),
        (b"", "boolean", "a length of 1"),
        (b"abc", "float", "a length of 4"),
        (struct.pack("<f", 1.0), "double", "a length of 8"),
        (b"\x04", ["null", "long"], "branch 2 of a union of 2"),
        (b"\x01", ["null", "long"], "branch -1"),
        (b"\x04", RECORD["fields"][2]["type"], "symbol 2 of an enum of 2"),
        (b"\xd0\x0f", {"type": "array", "items": "long"}, "more items than are allowed"),
        (b"\xcf\x0f\0", {"type": "array", "items": "long"}, "more items than are allowed"),
        (b"\x02\x02\0x", {"type": "array", "items": "long"}, "1 bytes too many"),
    ],
)
def test_bytes_that_do_not_fit_are_malformed(data: bytes, schema: object, says: str) -> None:
    reader = reading(data)
    read = compile_schema(schema)
    with pytest.raises(MalformedError, match=says):  # noqa: PT012  (either may raise)
        read(reader)
        reader.end()


def test_an_array_may_come_in_blocks_with_their_size_before_them() -> None:
    reader = reading(b"\x03\x04\x02\x04\x02\x06\x00")
    assert compile_schema({"type": "array", "items": "long"})(reader) == (1, 2, 3)
    reader.end()


def test_null_takes_no_bytes() -> None:
    assert compile_schema("null")(reading(b"")) is None


def nested(depth: int) -> object:
    schema: object = "int"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("nothing", "is not a type"),
        (7, "is not a schema"),
        (nested(20), "too deeply"),
        ({"type": "map", "values": "int"}, "maps"),
        ({"type": "array", "items": "null"}, "take no bytes"),
        (
            {"type": "array", "items": {"type": "record", "name": "e", "fields": []}},
            "take no bytes",
        ),
        ({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}, "take no bytes"),
        (
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]},
            "is not a type, or is part of itself",
        ),
    ],
)
def test_schemas_that_cannot_be_read_safely_are_rejected(schema: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        compile_schema(schema)
