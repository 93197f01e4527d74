"""Tests of schema resolution: what a record was written with, what it is read as, and the
result.
"""

from __future__ import annotations

import io
import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from anabranch.codec.avro_records import AvroDecoder
from anabranch.codec.avro_resolution import MismatchError, resolve
from anabranch.codec.avro_schema import of_notation
from anabranch.codec.field_types import names_of
from anabranch.codec.record_schema import from_avro
from anabranch.protocol.errors import RejectionReason
from harness.avro_schemas import array_of, enum_of, field, logical, map_of, record_of
from harness.registries import alone

AT = field("at", "long")
V = field("v", "double")
READER: dict[str, Any] = record_of(AT, V, name="R")
ENUM = enum_of("E", "A", "B")
CHAIN: dict[str, Any] = record_of(field("x", "int"), field("next", ["null", "Node"]), name="Node")
UUID = "123e4567-e89b-12d3-a456-42661417400f"
JAN_MS = 1_767_225_600_000
JAN = datetime(2026, 1, 1, tzinfo=UTC)


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def bare(avro: Any) -> Any:
    """Return the schema without logical types, by which fastavro writes plain values."""
    if isinstance(avro, list):
        return [bare(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    return {
        key: bare(value) if key in ("type", "items", "values", "fields") else value
        for key, value in avro.items()
        if key not in ("logicalType", "default")
    }


def bytes_of(avro: dict[str, Any], row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(bare(avro)), row)
    return b"\0\0\0\0\7" + out.getvalue()


def read(reader: dict[str, Any], writer: dict[str, Any], *rows: dict[str, Any]) -> list[Any]:
    """Return the rows, and (reason, text) of those that are rejected, each way of reading giving
    the same.
    """
    decoder = AvroDecoder(from_avro(reader, "r"), lambda _: alone(json.dumps(writer)))
    values = [bytes_of(writer, row) for row in rows]
    found = []
    for _ in range(2):
        table, rejected = decoder.decode(values)
        table.validate(full=True)
        good = iter(table.to_pylist())
        bad = {index: (each.reason.value, str(each)) for index, each in rejected}
        found.append([bad[n] if n in bad else next(good) for n in range(len(values))])
        for version in decoder._versions:
            version.bulk = None
    assert found[0] == found[1]
    return found[0]


# -- names, aliases, what is skipped
# --------------------------------------------------------------------------------------------------


def test_another_record_is_not_taken_for_this_one() -> None:
    """An order that was cancelled has all fields that an order placed needs."""
    order = [AT, field("order", "string")]
    placed = record(*order, field("amount", "long", default=0), name="OrderPlaced")
    cancelled = record(*order, name="OrderCancelled", namespace="com.shop")
    ((reason, text),) = read(placed, cancelled, {"at": 1, "order": "x"})
    assert reason == "unknown_schema"
    assert "com.shop.OrderCancelled, not OrderPlaced" in text
    aliased = {**placed, "aliases": ["com.other.OrderCancelled"]}
    assert read(aliased, cancelled, {"at": 1, "order": "x"}) == [
        {"at": 1, "order": "x", "amount": 0}
    ]


def test_another_nested_record_is_not_taken_for_this_one() -> None:
    inner = record(field("n", "int"), name="A")
    writer = record(field("x", {**inner, "name": "B"}))
    ((reason, text),) = read(record(field("x", inner)), writer, {"x": {"n": 1}})
    assert (reason, "field x was record B, not record A" in text) == ("unknown_schema", True)
    aliased = {**inner, "aliases": ["B"]}
    assert read(record(field("x", aliased)), writer, {"x": {"n": 1}}) == [{"x": {"n": 1}}]


def test_names_are_compared_without_their_namespaces() -> None:
    written = record(AT, V, namespace="com.example")
    assert read(READER, written, {"at": 1, "v": 2.0}) == [{"at": 1, "v": 2.0}]


def test_a_field_that_was_renamed_is_found_by_its_alias() -> None:
    celsius = field("celsius", "double", default=0.0, aliases=["temp"])
    written = record(AT, field("temp", "double"))
    assert read(record(AT, celsius), written, {"at": 1, "temp": 21.5}) == [
        {"at": 1, "celsius": 21.5}
    ]
    inner = record(field("in", record(celsius, name="I")))
    writer = record(field("in", record(written["fields"][1], name="I")))
    assert read(inner, writer, {"in": {"temp": 21.5}}) == [{"in": {"celsius": 21.5}}]


def test_an_alias_does_not_take_what_another_field_is_named_after() -> None:
    fields = [
        field("a", "int", aliases=["b", "c"], default=-1),
        field("b", "int", default=-2),
        field("d", "int", aliases=["c"], default=-3),
    ]
    written = record(field("b", "int"), field("c", "int"))
    assert read(record(*fields), written, {"b": 1, "c": 2}) == [{"a": 2, "b": 1, "d": -3}]


@pytest.mark.parametrize(
    ("more", "value"),
    [
        (ENUM, "B"),
        (["null", "int", "string"], "x"),
        (fixed(4), b"abcd"),
        (CHAIN, {"x": 1, "next": {"x": 2, "next": None}}),
        (array_of(CHAIN), [{"x": 1, "next": None}]),
        (map_of(array_of("null")), {"k": [None, None]}),
        ("null", None),
        (record(name="Empty"), {}),
        (["null", logical("time-micros")], 5),
        ("float", float("nan")),
    ],
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_what_the_reader_lacks_is_skipped(more: Any, value: Any, is_nested: bool) -> None:
    """Whatever it is, and wherever it stands."""
    for fields in ([AT, field("more", more), V], [field("event_time", more), V, AT]):
        row = {"at": 1, fields[0 if fields[0] is not AT else 1]["name"]: value, "v": 2.5}
        reader, writer = READER, record(*fields)
        expected: Any = {"at": 1, "v": 2.5}
        if is_nested:
            reader = record(field("in", {**READER, "name": "I"}))
            writer = record(field("in", {**writer, "name": "I"}))
            row, expected = {"in": row}, {"in": expected}
        assert read(reader, writer, row) == [expected]


def test_large_schemas_of_writers_are_read() -> None:
    many = [field(f"n{number}", "int") for number in range(520)]
    row = {"at": 1, "v": 2.0} | {each["name"]: 7 for each in many}
    assert read(READER, record(*many, AT, V), row) == [{"at": 1, "v": 2.0}]
    assert read(READER, record(AT, V, doc="x" * 80 * 1024), row) == [{"at": 1, "v": 2.0}]


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (["null", "string"], "x"),
        (array_of("string"), ["a"]),
        (record(field("i", ["null", "int"], default=None), name="D"), {}),
        (map_of("int"), {"a": 1}),
        ("int", "no int at all"),
    ],
)
def test_defaults_of_the_writer_play_no_part(kind: Any, default: Any) -> None:
    values: dict[str, Any] = {"array": [], "record": {"i": 1}, "map": {}}
    value = values.get(kind["type"]) if isinstance(kind, dict) else 3 if kind == "int" else None
    writer = record(AT, V, field("d", kind, default=default))
    assert read(READER, writer, {"at": 1, "v": 2.0, "d": value}) == [{"at": 1, "v": 2.0}]


def test_a_type_is_used_again_by_its_name() -> None:
    point = record(field("x", "int"), name="Point", namespace="geo")
    fields = [field("a", point), field("b", "geo.Point"), field("c", array_of("geo.Point"))]
    row = {"a": {"x": 1}, "b": {"x": 2}, "c": [{"x": 3}]}
    assert read(record(*fields), record(*fields), row) == [row]
    assert read(record(fields[0]), record(*fields), row) == [{"a": {"x": 1}}]


def test_a_recursive_record_is_read_without_the_part_that_recurs() -> None:
    value = {"x": 1, "next": {"x": 2, "next": None}}
    wanted = record(field("x", "int"), name="Node")
    writer = record(field("n", CHAIN))
    assert read(record(field("n", wanted)), writer, {"n": value}) == [{"n": {"x": 1}}]


def test_a_value_of_a_recursive_type_that_is_too_deep_is_rejected() -> None:
    writer = record(AT, V, field("n", CHAIN))
    decoder = AvroDecoder(from_avro(READER, "r"), lambda _: alone(json.dumps(writer)))
    body = b"\0\0\0\0\7" + b"\2" + b"\0" * 8
    for levels, reasons in ((15, []), (16, [RejectionReason.TOO_DEEP]), (10**5, ["too_deep"])):
        value = body + b"\2\2" * levels + b"\2\0"
        table, rejected = decoder.decode([value])
        assert ([each.reason for _, each in rejected], len(table)) == (reasons, 1 - len(reasons))


# -- plain types
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reader", "writer", "value", "expected"),
    [
        (logical("timestamp-millis"), "long", JAN_MS, JAN),
        ("long", logical("timestamp-millis"), JAN_MS, JAN_MS),
        ("string", logical("uuid", "string"), UUID, UUID),
        ("int", logical("date", "int"), 3, 3),
        ("float", "int", 3, 3.0),
        ("string", "bytes", b"\xc3\xa9", "\u00e9"),
        ("bytes", "string", "\u00e9", b"\xc3\xa9"),
        ("long", "int", -5, -5),
        ("double", "int", -5, -5.0),
        ("float", "long", 2**40, float(2**40)),
        ("double", "long", 2**40, float(2**40)),
        ("double", "float", 0.5, 0.5),
        (logical("timestamp-micros"), "int", 7, datetime(1970, 1, 1, 0, 0, 0, 7, UTC)),
        (logical("timestamp-micros"), logical("timestamp-millis"), JAN_MS, JAN),
        (logical("timestamp-millis"), logical("timestamp-micros"), JAN_MS * 1_000, JAN),
        (logical("timestamp-millis"), logical("timestamp-nanos"), JAN_MS * 10**6, JAN),
        (logical("timestamp-micros"), logical("timestamp-nanos"), JAN_MS * 10**6, JAN),
        (logical("timestamp-nanos"), logical("timestamp-nanos"), 1_234_567_891, 1_234_567_891),
        (logical("timestamp-nanos"), logical("timestamp-millis"), JAN_MS, JAN_MS * 10**6),
        (
            logical("local-timestamp-millis"),
            logical("local-timestamp-micros"),
            JAN_MS * 1_000,
            JAN.replace(tzinfo=None),
        ),
        (logical("local-timestamp-nanos"), logical("local-timestamp-micros"), 5, 5_000),
        (logical("local-timestamp-micros"), "long", 0, datetime(1970, 1, 1)),  # noqa: DTZ001
        (logical("time-millis", "int"), logical("time-micros"), 5_000, 5),
        (logical("time-micros"), logical("time-millis", "int"), 5, 5_000),
        (logical("time-millis", "int"), "int", 86_399_999, 86_399_999),
        (logical("date", "int"), "int", 3, date(1970, 1, 4)),
        (logical("uuid", "string"), "string", UUID, UUID),
        (logical("uuid", "string"), "bytes", UUID.encode(), UUID),
        (logical("uuid", "string"), fixed(16, **logical("uuid", "fixed")), None, UUID),
        (fixed(16, **logical("uuid", "fixed")), fixed(16), None, UUID),
        (
            logical("decimal", "bytes", precision=4, scale=2),
            fixed(2, **logical("decimal", "fixed", precision=3, scale=2)),
            b"\0\x96",
            Decimal("1.50"),
        ),
        (logical("decimal", "bytes", precision=4, scale=2), "bytes", b"\x96", Decimal("-1.06")),
        (
            fixed(12, **logical("duration", "fixed")),
            fixed(12, **logical("duration", "fixed")),
            b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff",
            {"months": 1, "days": 2, "millis": 2**32 - 1},
        ),
        (fixed(3), fixed(3), b"abc", b"abc"),
        (fixed(3, name="G", aliases=["F"]), fixed(3), b"abc", b"abc"),
        ("long", ["int", "long"], 5, 5),
        (["int", "long"], "int", 5, 5),
        (["null", "int", "long"], ["null", "int", "long"], None, None),
        (["float", "double"], ["float", "double"], 0.5, 0.5),
    ],
)
@pytest.mark.parametrize("where", ["field", "nullable", "array", "map", "record"])
def test_a_value_is_read_as_the_reader_has_it(
    reader: Any, writer: Any, value: Any, expected: Any, where: str
) -> None:
    value = uuid.UUID(UUID).bytes if value is None and "fixed" in json.dumps(writer) else value
    if where == "nullable" and not isinstance(reader, list):
        reader, writer = (
            ["null", reader],
            [writer, "null"] if not isinstance(writer, list) else writer,
        )
    elif where == "array":
        reader, writer = (array_of(each) for each in (reader, writer))
        value, expected = [value, value], [expected, expected]
    elif where == "map":
        reader, writer = (map_of(each) for each in (reader, writer))
        value, expected = {"k": value}, [("k", expected)]
    elif where == "record":
        reader, writer = (record(field("i", each), name="I") for each in (reader, writer))
        value, expected = {"i": value}, {"i": expected}
    found = read(record(field("x", reader)), record(field("x", writer)), {"x": value})
    assert found == [{"x": expected}]


@pytest.mark.parametrize(
    ("reader", "writer", "value", "reason"),
    [
        (logical("timestamp-millis"), logical("timestamp-micros"), JAN_MS * 1_000 + 1, "range"),
        (logical("timestamp-micros"), logical("timestamp-nanos"), 1, "range"),
        (logical("timestamp-millis"), "long", 2**62, "range"),
        (logical("timestamp-nanos"), logical("timestamp-millis"), 2**60, "range"),
        (logical("time-millis", "int"), "int", 86_400_000, "range"),
        (logical("time-micros"), "long", -1, "range"),
        (logical("date", "int"), "int", 2**31 - 1, "range"),
        (logical("decimal", "bytes", precision=2, scale=0), "bytes", b"\x7f", "range"),
        (logical("decimal", "bytes", precision=2, scale=0), "bytes", b"", "not_avro"),
        (logical("uuid", "string"), "string", "x", "wrong_type"),
        ("string", "bytes", b"\xff", "wrong_type"),
        ("double", "double", float("inf"), "not_finite"),
        ("double", ["null", "double"], None, "wrong_type"),
        ("double", ["null", "double", "string"], None, "wrong_type"),
        ("double", ["null", "double", "string"], "x", "wrong_type"),
        ({**ENUM, "symbols": ["B"]}, ENUM, "A", "wrong_type"),
    ],
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_value_that_the_reader_cannot_hold_is_rejected_by_itself(
    reader: Any, writer: Any, value: Any, reason: str, is_nested: bool
) -> None:
    good: Any = {"bytes": b"a", "string": UUID, "enum": "B", "double": 1.5, "int": 1, "long": 0}
    kind = writer["type"] if isinstance(writer, dict) else writer
    neighbour = good["double" if isinstance(kind, list) else kind]
    if kind == "bytes" and isinstance(reader, dict):
        neighbour = b"\1"
    rows = [{"x": neighbour}, {"x": value}, {"x": neighbour}]
    if is_nested:
        reader, writer = (array_of(each) for each in (reader, writer))
        rows = [{"x": [row["x"]]} for row in rows]
    found = read(record(field("x", reader)), record(field("x", writer)), *rows)
    assert [isinstance(each, dict) for each in found] == [True, False, True]
    assert reason in found[1][0]
    assert "x" in found[1][1]


@pytest.mark.parametrize(
    ("reader", "writer", "says"),
    [
        (logical("timestamp-micros"), logical("time-micros"), "was time-micros and cannot become"),
        (logical("timestamp-micros"), logical("local-timestamp-micros"), "cannot become"),
        (logical("timestamp-micros"), "string", "was string and cannot become timestamp-micros"),
        (logical("time-millis", "int"), "long", "cannot become time-millis"),
        (logical("time-millis", "int"), logical("date", "int"), "cannot become time-millis"),
        (logical("date", "int"), logical("time-millis", "int"), "cannot become date"),
        (logical("date", "int"), "long", "cannot become date"),
        (logical("uuid", "string"), "int", "cannot become uuid"),
        (logical("uuid", "string"), fixed(15), "was fixed F and cannot become uuid"),
        (
            logical("decimal", "bytes", precision=4, scale=2),
            "string",
            "cannot become decimal(4, 2)",
        ),
        (
            logical("decimal", "bytes", precision=4, scale=2),
            logical("decimal", "bytes", precision=4, scale=1),
            "was decimal(4, 1) and cannot become decimal(4, 2)",
        ),
        (
            logical("decimal", "bytes", precision=4, scale=2),
            logical("decimal", "bytes", precision=5, scale=2),
            "was decimal(5, 2)",
        ),
        (fixed(12, **logical("duration", "fixed")), fixed(11), "cannot become duration"),
        (fixed(3), fixed(4), "was 4 bytes and cannot become 3"),
        (fixed(3), fixed(3, name="G"), "was fixed G, not fixed F"),
        (fixed(3), "bytes", "was bytes and cannot become fixed"),
        (ENUM, {**ENUM, "name": "G"}, "was enum G, not enum E"),
        (ENUM, "string", "was string and cannot become enum"),
        ("string", ENUM, "was enum E and cannot become string"),
        ("int", "long", "was long and cannot become int"),
        ("int", "null", "was null and cannot become int"),
        ("int", ["null", "string"], "cannot become int"),
        ("int", ["null", "long", "string"], "was [null, long, string] and cannot become int"),
        (["int", "string"], "bytes", None),
        (["int", "string"], "double", "was double and cannot become union"),
        (array_of("int"), map_of("int"), "become array"),
        (array_of("int"), array_of("long"), "field x[] was"),
        (record(AT, name="I"), "int", "was int and cannot become record"),
        (record(AT, name="I"), record(V, name="I"), "field x.at is new and has no default"),
    ],
)
def test_schemas_that_do_not_go_together_say_why(reader: Any, writer: Any, says: Any) -> None:
    wanted = from_avro(record(field("x", reader)), "r")
    written = of_notation(record(field("x", writer)))
    if says is None:
        resolve(written, names_of(wanted.avro), wanted.fields)
        return
    with pytest.raises(MismatchError) as caught:
        resolve(written, names_of(wanted.avro), wanted.fields)
    assert says in str(caught.value)


def test_what_is_no_record_is_read_as_none() -> None:
    with pytest.raises(MismatchError, match="of type int, not a record"):
        resolve(of_notation("int"), ("R",), ())


# -- enums, unions, defaults
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ENUM, ["null", ENUM]])
def test_an_enum_is_a_text_and_unknown_symbols_have_the_readers_default(kind: Any) -> None:
    wanted = enum_of("E", "C", "B", default="C")
    writer = record(AT, field("e", kind))
    reader = record(AT, field("e", ["null", wanted]))
    assert read(reader, writer, {"at": 1, "e": "A"}, {"at": 2, "e": "B"}) == [
        {"at": 1, "e": "C"},
        {"at": 2, "e": "B"},
    ]


UNION = ["null", "int", "string", record(field("n", "long"), name="Sub")]


def member(**values: Any) -> dict[str, Any]:
    return {"member_int": None, "member_string": None, "member_sub": None, **values}


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_union_is_a_struct_with_a_field_for_each_type(is_nested: bool) -> None:
    kind: Any = array_of(UNION) if is_nested else UNION
    both = record(field("u", kind))
    values = [5, "x", {"n": 7}, None]
    expected = [member(member_int=5), member(member_string="x"), member(member_sub={"n": 7}), None]
    if is_nested:
        assert read(both, both, {"u": values}) == [{"u": expected}]
    else:
        rows = [{"u": value} for value in values]
        assert read(both, both, *rows) == [{"u": value} for value in expected]


@pytest.mark.parametrize(
    ("written", "value", "expected"),
    [
        ("int", 5, member(member_int=5)),
        ("bytes", b"x", member(member_string="x")),
        (UNION[3], {"n": 7}, member(member_sub={"n": 7})),
        (["string", "null"], "x", member(member_string="x")),
        (["string", "int"], 5, member(member_int=5)),
    ],
)
def test_a_value_of_one_type_becomes_a_branch(written: Any, value: Any, expected: Any) -> None:
    writer, reader = (record(field("u", each)) for each in (written, UNION))
    assert read(reader, writer, {"u": value}) == [{"u": expected}]


def test_of_two_branches_the_same_type_is_taken_before_a_wider_one() -> None:
    kind = ["double", "string", "long"]
    both = record(field("u", kind))
    empty = {"member_double": None, "member_string": None, "member_long": None}
    assert read(both, record(field("u", "long")), {"u": 5}) == [{"u": {**empty, "member_long": 5}}]
    assert read(both, record(field("u", "float")), {"u": 0.5}) == [
        {"u": {**empty, "member_double": 0.5}}
    ]


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (array_of("int"), [1, 2], [1, 2]),
        (map_of("string"), {"b": "x", "a": "y"}, [("a", "y"), ("b", "x")]),
        (
            record(field("a", "int"), field("b", "int", default=3), name="D"),
            {"a": 1},
            {"a": 1, "b": 3},
        ),
        (ENUM, "B", "B"),
        (fixed(2), "\u00ffa", b"\xffa"),
        (fixed(16, **logical("uuid", "fixed")), "\0" * 16, str(uuid.UUID(int=0))),
        (
            fixed(12, **logical("duration", "fixed")),
            "\1\0\0\0" * 3,
            {"months": 1, "days": 1, "millis": 1},
        ),
        (["int", "string"], 5, {"member_int": 5, "member_string": None}),
        (logical("local-timestamp-millis"), JAN_MS, JAN.replace(tzinfo=None)),
        (array_of(record(field("a", "int"), name="D")), [{"a": 1}], [{"a": 1}]),
    ],
)
def test_a_field_that_was_not_written_has_its_default(
    kind: Any, default: Any, expected: Any
) -> None:
    reader = record(AT, field("d", kind, default=default))
    assert read(reader, record(AT), {"at": 1}) == [{"at": 1, "d": expected}]
    nested = record(field("in", {**reader, "name": "I"}))
    writer = record(field("in", record(AT, name="I")))
    assert read(nested, writer, {"in": {"at": 1}}) == [{"in": {"at": 1, "d": expected}}]
