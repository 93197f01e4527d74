"""Values of known schemas as tuples."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from anabranch.codec.avro_guard import MalformedError, TooManyItemsError
from anabranch.codec.avro_reading import tuple_reader
from anabranch.protocol.errors import ConfigurationError
from harness.avro_schemas import array_of, enum_of, field, fixed_of, map_of, record_of

INNER = record_of(field("x", "int"), name="inner")
ENUM = enum_of("e", "u", "v")
RECORD: dict[str, Any] = record_of(
    field("a", ["null", "long"]),
    field("b", array_of(INNER)),
    field("c", ENUM),
    field("d", fixed_of("f", 3)),
    field("g", ["null", "inner"]),
    field("h", {"type": "string"}),
    field("i", array_of("double")),
    field("k", "boolean"),
    field("l", ["null", "e"]),
)
VALUE = {
    "a": -(2**63),
    "b": [{"x": 1}, {"x": -(2**31)}],
    "c": "v",
    "d": b"abc",
    "g": {"x": 5},
    "h": "zebra \u00e9",
    "i": [0.5, -1e300],
    "k": True,
    "l": "u",
}
TUPLES = (
    -(2**63),
    ((1,), (-(2**31),)),
    "v",
    b"abc",
    (5,),
    "zebra \u00e9",
    (0.5, -1e300),
    True,
    "u",
)


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_it_reads_what_fastavro_writes() -> None:
    read = tuple_reader(RECORD)
    assert read(b"head" + written(RECORD, VALUE), 4, 100) == TUPLES
    nothing = {**VALUE, "a": None, "b": [], "g": None, "i": [], "l": None}
    assert read(written(RECORD, nothing), 0, 0) == (
        *(None, (), "v", b"abc", None, "zebra \u00e9", (), True, None),
    )
    assert tuple_reader("long")(b"\2", 0, 0) == 1


def test_what_does_not_fit_is_malformed() -> None:
    read, value = tuple_reader(RECORD), written(RECORD, VALUE)
    with pytest.raises(TooManyItemsError):
        read(value, 0, 3)
    with pytest.raises(MalformedError, match="not UTF-8"):
        tuple_reader("string")(b"\x04\xff\xfe", 0, 0)
    for end in range(len(value)):
        with pytest.raises(MalformedError):
            read(value[:end], 0, 100)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (map_of("int"), "maps such as map are not supported"),
        (["null", "int", "string"], r"unions such as \[null, int, string\]"),
        (array_of("null"), "take no bytes"),
        (array_of(fixed_of("f", 0)), "take no bytes"),
        (array_of(record_of(name="e")), "take no bytes"),
        (record_of(field("a", ["null", "r"])), "record r is part of itself"),
    ],
)
def test_schemas_that_are_not_for_our_own_records_are_rejected(schema: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tuple_reader(schema)


def test_what_is_no_schema_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="is not a type"):
        tuple_reader("nothing")
