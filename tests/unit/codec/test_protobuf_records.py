"""Messages of any schema, read as the pipeline's record."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from anabranch.codec.protobuf_records import PROTOBUF_SCHEMA_BYTES_MAX, ProtobufDecoder
from anabranch.codec.record_schema import from_avro
from anabranch.codec.writer_schema import SchemaDocument, WriterSchema
from anabranch.protocol.errors import RejectionReason
from anabranch.protocol.limits import RECORD_ITEMS_MAX
from harness.avro_schemas import (
    array_of,
    decimal_of,
    enum_of,
    field,
    fixed_of,
    logical,
    map_of,
    record_of,
)
from harness.protobuf_messages import message_class, schema_of

FRAMING = b"\0\0\0\0\7"
TYPES = """syntax = "proto3";
package acme;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/decimal.proto";
import "confluent/type/decimal.proto";
enum Kind { NONE = 0; CAR = 1; TRUCK = 2; }
message All {
  message Inner { int64 x = 1; Inner next = 2; }
  int32 i32 = 1; sint64 s64 = 2; uint32 u32 = 3; fixed64 f64 = 4;
  float f = 5; double d = 6; bool b = 7; string s = 8; bytes raw = 9;
  Kind kind = 10; Inner inner = 11; repeated int32 many = 12; repeated Inner inners = 13;
  map<string, double> by_name = 14; map<int32, Inner> by_number = 15;
  map<bool, string> by_flag = 16;
  google.protobuf.Timestamp at = 17; google.type.Date day = 18;
  confluent.type.Decimal price = 19; google.type.Decimal cost = 20;
  google.protobuf.Int64Value maybe = 21; optional int32 opt = 22;
  oneof choice { string left = 23; int32 right = 24; }
  repeated Kind kinds = 25;
}
message Other { int64 x = 1; }
"""
SCHEMA = schema_of(TYPES)


INNER = record_of(field("x", "long"), name="Inner")
NULL = ["null", "string"]


def decoder(*fields: dict[str, Any], schema: WriterSchema = SCHEMA, **more: Any) -> ProtobufDecoder:
    avro = {"type": "record", "name": "All", "fields": list(fields), **more}
    return ProtobufDecoder(from_avro(avro, "all"), lambda _: schema)


def value(schema: WriterSchema = SCHEMA, /, name: str = "acme.All", **values: Any) -> bytes:
    made = message_class(schema, name)(**values)
    return FRAMING + b"\0" + bytes(made.SerializeToString())


def read(kind: Any, sent: bytes, name: str, **more: Any) -> Any:
    """Return the value of the field ``name``, read as ``kind``; or (reason, text) of a
    rejection.
    """
    table, rejected = decoder(field(name, kind, **more)).decode([sent])
    if rejected:
        return rejected[0][1].reason.value, str(rejected[0][1])
    return table.to_pylist()[0][name]


AT = {"seconds": 1_767_225_600, "nanos": 250_000_000}


@pytest.mark.parametrize(
    ("name", "kind", "sent", "expected"),
    [
        ("i32", "int", -5, -5),
        ("i32", "long", -5, -5),
        ("i32", "double", -5, -5.0),
        ("i32", decimal_of(5, 2), -5, Decimal("-5.00")),
        ("i32", logical("date", "int"), 1, date(1970, 1, 2)),
        ("s64", "long", -(2**63), -(2**63)),
        ("s64", "float", 3, 3.0),
        ("s64", logical("timestamp-millis", "long"), 5, datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)),
        ("s64", logical("timestamp-micros", "long"), 5, datetime(1970, 1, 1, 0, 0, 0, 5, UTC)),
        ("u32", "long", 2**32 - 1, 2**32 - 1),
        ("f64", decimal_of(20, 0), 2**64 - 1, Decimal(2**64 - 1)),
        ("f", "float", 1.5, 1.5),
        ("f", "double", 1.5, 1.5),
        ("d", "double", 0.1, 0.1),
        ("b", "boolean", True, True),
        ("s", "string", "größe", "größe"),
        ("s", enum_of("E", "a", "b"), "b", "b"),
        ("s", decimal_of(4, 2), "12.5", Decimal("12.50")),
        ("s", logical("date", "int"), "2026-05-01", date(2026, 5, 1)),
        ("raw", "bytes", b"\0\xff", b"\0\xff"),
        ("raw", fixed_of("F", 2), b"ab", b"ab"),
        ("kind", "string", 2, "TRUCK"),
        ("kind", enum_of("K", "CAR", "NONE"), 1, "CAR"),
        ("kind", "int", 2, 2),
        ("kinds", array_of("string"), [1, 0], ["CAR", "NONE"]),
        ("inner", INNER, {"x": 5}, {"x": 5}),
        ("many", array_of("long"), [3, 1], [3, 1]),
        ("inners", array_of(INNER), [{"x": 1}, {}], [{"x": 1}, {"x": 0}]),
        ("by_name", map_of("double"), {"b": 1.0, "a": 2.0}, [("a", 2.0), ("b", 1.0)]),
        ("by_number", map_of(INNER), {7: {"x": 1}}, [("7", {"x": 1})]),
        ("by_flag", map_of("string"), {True: "y"}, [("true", "y")]),
        ("by_flag", map_of("string"), {False: "n"}, [("false", "n")]),
        (
            "at",
            logical("timestamp-millis", "long"),
            AT,
            datetime(2026, 1, 1, 0, 0, 0, 250_000, UTC),
        ),
        (
            "at",
            logical("timestamp-micros", "long"),
            {"seconds": 1, "nanos": 1_000},
            datetime(1970, 1, 1, 0, 0, 1, 1, UTC),
        ),
        ("at", logical("timestamp-nanos", "long"), {"seconds": 1, "nanos": 1}, 1_000_000_001),
        ("at", record_of(field("seconds", "long"), name="T"), AT, {"seconds": AT["seconds"]}),
        ("day", logical("date", "int"), {"year": 2026, "month": 5, "day": 1}, date(2026, 5, 1)),
        ("price", decimal_of(9, 2), {"value": b"\xfb\x2e", "scale": 2}, Decimal("-12.34")),
        ("price", decimal_of(9, 3), {"value": b"\x04\xd2", "scale": 2}, Decimal("12.340")),
        ("cost", decimal_of(9, 2), {"value": "+1.5"}, Decimal("1.50")),
        ("cost", decimal_of(9, 2), {}, Decimal("0.00")),
        ("maybe", ["null", "long"], {"value": 7}, 7),
        ("maybe", ["null", "long"], {}, 0),
        ("opt", ["null", "int"], 0, 0),
        ("left", NULL, "", ""),
    ],
)
def test_a_value_of_each_type(name: str, kind: Any, sent: Any, expected: Any) -> None:
    assert read(kind, value(**{name: sent}), name) == expected


@pytest.mark.parametrize(
    ("name", "kind", "more", "expected"),
    [
        ("i32", "int", {}, 0),
        ("s", NULL, {}, ""),
        ("kind", "string", {}, "NONE"),
        ("many", array_of("int"), {}, []),
        ("opt", ["null", "int"], {}, None),
        ("opt", "int", {"default": 5}, 5),
        ("opt", "int", {}, ("missing_field", "field opt was not sent")),
        ("right", ["null", "int"], {}, None),
        ("maybe", ["null", "long"], {}, None),
        ("inner", ["null", INNER], {}, None),
        ("at", ["null", logical("timestamp-micros", "long")], {}, None),
        ("unknown", ["null", "int"], {"default": None}, None),
        ("unknown", "string", {"default": "none", "aliases": ["x"]}, "none"),
        ("number", "int", {"aliases": ["y", "i32"]}, 0),
    ],
)
def test_a_value_that_was_not_sent(name: str, kind: Any, more: Any, expected: Any) -> None:
    assert read(kind, value(), name, **more) == expected


@pytest.mark.parametrize(
    ("name", "kind", "sent", "reason", "says"),
    [
        ("s64", "int", 2**31, "out_of_range", "field s64: 2147483648 is not from"),
        ("f64", "long", 2**63, "out_of_range", "field f64: 9223372036854775808 is not from"),
        ("i32", decimal_of(1, 0), 10, "out_of_range", "field i32: expected a decimal"),
        ("d", "double", float("nan"), "not_finite", "field d: nan"),
        ("d", "double", float("inf"), "not_finite", "field d: inf"),
        ("kind", "string", 9, "wrong_type", "field kind: 9 is no value of acme.Kind"),
        ("kind", enum_of("K", "CAR"), 2, "wrong_type", "field kind: expected one of"),
        ("raw", fixed_of("F", 2), b"abc", "out_of_range", "expected 2 bytes, not 3"),
        (
            "at",
            logical("timestamp-millis", "long"),
            {"nanos": 1_000},
            "out_of_range",
            "1000 ns are finer",
        ),
        ("at", logical("timestamp-micros", "long"), {"nanos": 1}, "out_of_range", "1 ns are finer"),
        ("at", logical("timestamp-micros", "long"), {"nanos": -1_000}, "out_of_range", "no part"),
        ("at", logical("timestamp-micros", "long"), {"seconds": 2**60}, "out_of_range", "field at"),
        ("at", logical("timestamp-nanos", "long"), {"seconds": 2**60}, "out_of_range", "field at"),
        (
            "day",
            logical("date", "int"),
            {"year": 2026, "month": 2, "day": 30},
            "out_of_range",
            "is no date",
        ),
        ("day", logical("date", "int"), {}, "out_of_range", "0-0-0 is no date"),
        (
            "price",
            decimal_of(9, 1),
            {"value": b"\x04\xd2", "scale": 2},
            "out_of_range",
            "field price: expected",
        ),
        ("price", decimal_of(9, 1), {"value": b"1" * 33}, "out_of_range", "33 bytes of a decimal"),
        ("cost", decimal_of(9, 1), {"value": "x"}, "wrong_type", "field cost: expected"),
        (
            "inner",
            record_of(field("x", "int"), name="Inner"),
            {"x": 2**40},
            "out_of_range",
            "field inner.x: ",
        ),
        (
            "inners",
            array_of(record_of(field("x", "int"), name="Inner")),
            [{"x": 2**40}],
            "out_of_range",
            "field inners[].x: ",
        ),
    ],
)
def test_a_value_that_its_column_cannot_hold(
    name: str, kind: Any, sent: Any, reason: str, says: str
) -> None:
    found, text = read(kind, value(**{name: sent}), name)
    assert (found, says in text) == (reason, True), text


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("i32", "string", "field i32 is int32, which cannot be read as string"),
        ("d", "float", "field d is double, which cannot be read as float"),
        ("d", "long", "field d is double"),
        ("b", "int", "field b is bool"),
        ("s", "long", "field s is string"),
        ("s", "bytes", "field s is string"),
        ("raw", "string", "field raw is bytes"),
        ("kind", "double", "field kind is enum"),
        ("inner", "string", "field inner is acme.All.Inner, which cannot be read as string"),
        ("many", "int", "field many is repeated int32, which cannot be read as int"),
        ("many", array_of("string"), "field many[] is"),
        ("by_name", array_of("double"), "cannot be read as array"),
        ("by_name", map_of("int"), "field by_name[] is double"),
        ("maybe", ["null", "string"], "Int64Value, which cannot be read as string"),
        ("at", logical("local-timestamp-micros", "long"), "field at is google.protobuf.Timestamp"),
        ("new", "int", "field new is new and has no default"),
        ("inner", record_of(field("y", "int"), name="I"), "field inner.y is new"),
        ("inner", ["null", "int", "string"], "cannot be read as union"),
    ],
)
def test_a_type_that_its_column_is_not(name: str, kind: Any, says: str) -> None:
    reason, text = read(kind, value(), name)
    assert (reason, "schema id 7: acme.All cannot be read: " in text) == ("unknown_schema", True)
    assert says in text


def test_another_message_of_the_schema_is_another_record() -> None:
    other = FRAMING + b"\x02\x02" + b"\x08\x05"
    reading = decoder(field("x", "long"))
    for _ in range(2):
        ((_, error),) = reading.decode([other])[1]
        assert error.reason is RejectionReason.UNKNOWN_SCHEMA
        assert str(error) == (
            "schema id 7: it is a message acme.Other, not All; if they are the same, name Other"
            " among the aliases of All"
        )
    named = decoder(field("x", "long"), aliases=["Other", "Inner"])
    nested = FRAMING + b"\x04\x00\x00" + b"\x08\x06"
    table, rejected = named.decode([other, value(), nested])
    assert table.to_pylist() == [{"x": 5}, {"x": 6}]
    assert "field x is new" in str(rejected[0][1])


@pytest.mark.parametrize(
    ("body", "reason", "says"),
    [
        (b"", "not_protobuf", "is missing between"),
        (b"\x02", "not_protobuf", "is missing between"),
        (b"\x80\x80\x80\x80\x80\x01", "not_protobuf", "is missing between"),
        (b"\x01\x02", "not_protobuf", "has -1 steps"),
        (b"\x42" + b"\0" * 33, "not_protobuf", "has 33 steps"),
        (b"\x02\x20", "unknown_schema", "schema id 7 has no message type at 16"),
        (b"\x02\x01", "unknown_schema", "has no message type at -1"),
        (b"\x04\x00\x08", "unknown_schema", "has no message type at 0, 4"),
        (b"\x00\x08", "not_protobuf", "not acme.All: "),
        (b"\x00\x42\x01\xff", "not_protobuf", "not acme.All: "),
    ],
)
def test_bytes_that_are_no_message(body: bytes, reason: str, says: str) -> None:
    reading = decoder(field("i32", "int"))
    table, rejected = reading.decode([value(i32=1), FRAMING + body, value(i32=2)])
    assert table.column("i32").to_pylist() == [1, 2]
    ((index, error),) = rejected
    assert (index, error.reason.value, says in str(error)) == (1, reason, True), str(error)


def test_a_record_has_no_more_items_than_it_may() -> None:
    half = RECORD_ITEMS_MAX // 2
    items = array_of("int")
    reading = decoder(field("many", items), field("by_flag", map_of("string")))
    good, bad = [0] * half * 2, [0] * (half * 2)
    table, rejected = reading.decode([value(many=good), value(many=bad, by_flag={True: ""})])
    assert table.num_rows == 1
    ((_, error),) = rejected
    assert error.reason is RejectionReason.TOO_LARGE


def test_what_proto2_says_of_absence_counts() -> None:
    text = """syntax = "proto2"; message All {
      optional int32 a = 1 [default = 7]; optional int32 b = 2;
      repeated group G = 3 { optional int32 c = 1; }
    }"""
    schema = schema_of(text)
    group = record_of(field("c", ["null", "int"]), name="G")
    reading = decoder(
        field("a", "int"),
        field("b", ["null", "int"]),
        field("g", array_of(group)),
        schema=schema,
    )
    table, rejected = reading.decode([value(schema, "All"), value(schema, "All", g=[{"c": 1}, {}])])
    assert rejected == []
    assert table.to_pylist() == [
        {"a": 7, "b": None, "g": []},
        {"a": 7, "b": None, "g": [{"c": 1}, {"c": None}]},
    ]


def test_types_of_imported_files_are_known() -> None:
    road = (
        "roads/road.proto",
        'syntax = "proto3"; package roads; message Road { string name = 1; }',
    )
    text = 'syntax = "proto3"; import "roads/road.proto"; message All { roads.Road road = 1; }'
    schema = schema_of(text, road)
    kind = record_of(field("name", "string"), name="Road")
    table, _ = decoder(field("road", kind), schema=schema).decode(
        [value(schema, "All", road={"name": "I-95"})]
    )
    assert table.to_pylist() == [{"road": {"name": "I-95"}}]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (WriterSchema((SchemaDocument("schema.proto", b"\xff"),)), "it is no Protobuf schema"),
        (WriterSchema(SCHEMA.parts[-1:]), "it is no Protobuf schema"),
        (
            WriterSchema((SchemaDocument("x", b"1" * (PROTOBUF_SCHEMA_BYTES_MAX + 1)),)),
            "it is larger than",
        ),
    ],
)
def test_a_schema_that_is_of_no_use_rejects_its_records(schema: WriterSchema, says: str) -> None:
    ((_, error),) = decoder(field("i32", "int"), schema=schema).decode([value()])[1]
    assert error.reason is RejectionReason.UNKNOWN_SCHEMA
    assert says in str(error)
