"""Schemas of any shape, written and read by fastavro alone, are the oracle."""

from __future__ import annotations

import io
import json
from math import isnan
from typing import Any

import fastavro
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec.avro_records import AvroDecoder
from anabranch.codec.field_types import BRANCH, Field
from anabranch.codec.record_schema import RecordSchema, from_avro
from anabranch.protocol.errors import RejectionReason
from harness.examples import examples
from harness.registries import alone

EXAMPLES = examples(100)
PLAIN: dict[str, Any] = {
    "int": st.integers(-(2**24), 2**24),
    "long": st.integers(-(2**24), 2**24),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
}
WIDER = {"int": ["long", "float", "double"], "long": ["double"], "float": ["double"]}
WIDER |= {"string": ["bytes"]}
DEFAULTS: dict[str, Any] = {"long": 7, "string": "d", "double": 1.5, "boolean": True}
SYMBOLS = ["A", "B", "C"]


class Names:
    """Names of one schema, none of which comes twice."""

    def __init__(self) -> None:
        self.count = 0

    def next(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"


def drawn_type(draw: Any, names: Names, depth: int, *, in_union: bool = False) -> Any:
    """Return a type that Avro has."""
    kinds = [*PLAIN, "enum", "fixed"]
    kinds += ["array", "map", "record"] if depth else []
    kinds += ["nullable", "union"] if depth and not in_union else []
    kind = draw(st.sampled_from(kinds))
    if kind in PLAIN:
        return kind
    if kind == "enum":
        return {"type": "enum", "name": names.next("E"), "symbols": SYMBOLS}
    if kind == "fixed":
        return {"type": "fixed", "name": names.next("F"), "size": 3}
    if kind == "array":
        return {"type": "array", "items": drawn_type(draw, names, depth - 1)}
    if kind == "map":
        return {"type": "map", "values": drawn_type(draw, names, depth - 1)}
    if kind == "record":
        return drawn_record(draw, names, depth - 1)
    if kind == "nullable":
        pair = ["null", drawn_type(draw, names, depth - 1, in_union=True)]
        return draw(st.permutations(pair))
    # Branches of which none is promoted to another: fastavro takes the first that it can.
    branches: list[Any] = [
        draw(st.sampled_from(["int", "long", "float", "double"])),
        draw(st.sampled_from(["string", "bytes"])),
        "boolean",
        {"type": "array", "items": "int"},
        drawn_record(draw, names, 0),
    ]
    count = draw(st.integers(2, 4))
    return draw(st.permutations([*draw(st.permutations(branches))[:count], "null"]))


def drawn_record(draw: Any, names: Names, depth: int) -> dict[str, Any]:
    """Return a record of some fields."""
    name = names.next("R")
    fields = [
        {"name": names.next("f"), "type": drawn_type(draw, names, depth)}
        for _ in range(draw(st.integers(1, 4)))
    ]
    return {"type": "record", "name": name, "fields": fields}


def drawn_value(draw: Any, avro: Any) -> Any:
    """Return a value of a type, as fastavro takes it."""
    if isinstance(avro, str):
        return None if avro == "null" else draw(PLAIN[avro])
    if isinstance(avro, list):
        return drawn_value(draw, draw(st.sampled_from(avro)))
    match avro["type"]:
        case "enum":
            return draw(st.sampled_from(avro["symbols"]))
        case "fixed":
            return draw(st.binary(min_size=avro["size"], max_size=avro["size"]))
        case "array":
            return [drawn_value(draw, avro["items"]) for _ in range(draw(st.integers(0, 3)))]
        case "map":
            keys = draw(st.lists(st.text(max_size=3), max_size=3, unique=True))
            return {key: drawn_value(draw, avro["values"]) for key in keys}
        case _:
            return {each["name"]: drawn_value(draw, each["type"]) for each in avro["fields"]}


def evolved(draw: Any, avro: Any, names: Names) -> Any:
    """Return a schema that reads what ``avro`` wrote: wider, with less, more, and other names."""
    if isinstance(avro, str):
        kind = draw(st.sampled_from([avro, *WIDER.get(avro, [])]))
        return draw(st.sampled_from([kind, ["null", kind]]))
    if isinstance(avro, list):
        return avro
    match avro["type"]:
        case "array":
            return {**avro, "items": evolved(draw, avro["items"], names)}
        case "map":
            return {**avro, "values": evolved(draw, avro["values"], names)}
        case "enum":
            return {**avro, "symbols": ["B", "A"], "default": "A"} if draw(st.booleans()) else avro
        case "record":
            return evolved_record(draw, avro, names)
    return avro


def evolved_record(draw: Any, avro: dict[str, Any], names: Names) -> dict[str, Any]:
    """Return the record with other fields, perhaps under another name."""
    kept = draw(st.permutations(avro["fields"]))[: draw(st.integers(1, len(avro["fields"])))]
    fields: list[dict[str, Any]] = []
    for each in kept:
        made = {"name": each["name"], "type": evolved(draw, each["type"], names)}
        if draw(st.booleans()):
            made |= {"name": names.next("n"), "aliases": [each["name"]]}
        fields.append(made)
    fields += [
        {"name": names.next("n"), "type": kind, "default": DEFAULTS[kind]}
        for kind in draw(st.lists(st.sampled_from(sorted(DEFAULTS)), max_size=2))
    ]
    if draw(st.booleans()):
        return {
            "type": "record",
            "name": names.next("S"),
            "aliases": [avro["name"]],
            "fields": fields,
        }
    return {**avro, "fields": fields}


@st.composite
def pairs(draw: Any) -> tuple[dict[str, Any], dict[str, Any], list[bytes]]:
    """(writer's schema, reader's, bodies of records)."""
    names = Names()
    writer = drawn_record(draw, names, draw(st.integers(0, 2)))
    reader = evolved_record(draw, writer, names)
    parsed = fastavro.parse_schema(json.loads(json.dumps(writer)))
    bodies = []
    for _ in range(draw(st.integers(1, 4))):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, drawn_value(draw, writer))
        bodies.append(out.getvalue())
    return writer, reader, bodies


def plainly(value: Any, field: Field) -> Any:
    """Return a column's value as fastavro has it."""
    if value is None:
        return None
    if field.is_union:
        for each in field.inner:
            assert each.name.startswith(BRANCH)
            if value[each.name] is not None:
                return plainly(value[each.name], each)
        return None
    if field.kind == "record":
        return {each.name: plainly(value[each.name], each) for each in field.inner}
    if field.kind == "array":
        return [plainly(each, field.inner[0]) for each in value]
    if field.kind == "map":
        return {key: plainly(each, field.inner[0]) for key, each in value}
    return value


def decoder_of(writer: dict[str, Any], reader: dict[str, Any]) -> AvroDecoder:
    """Return what reads records of ``writer`` with the id 7 as ``reader``."""
    return AvroDecoder(from_avro(reader, "r"), lambda _: alone(json.dumps(writer)))


def rows_of(decoder: AvroDecoder, record: RecordSchema, bodies: list[bytes]) -> list[Any]:
    """Return the rows, as fastavro has them, and the reasons of those that are rejected."""
    table, rejected = decoder.decode([b"\0\0\0\0\7" + body for body in bodies])
    table.validate(full=True)
    whole = Field("", "record", inner=record.fields)
    rows = iter([plainly(row, whole) for row in table.to_pylist()])
    reasons = {index: error.reason for index, error in rejected}
    return [reasons[n] if n in reasons else next(rows) for n in range(len(bodies))]


@EXAMPLES
@given(pairs())
def test_records_are_read_as_fastavro_resolves_them(
    pair: tuple[dict[str, Any], dict[str, Any], list[bytes]],
) -> None:
    writer, reader, bodies = pair
    record = from_avro(reader, "r")
    parsed = fastavro.parse_schema(json.loads(json.dumps(writer)))
    wanted = fastavro.parse_schema(json.loads(json.dumps(reader)))
    found = rows_of(decoder_of(writer, reader), record, bodies)
    assert found == [
        fastavro.schemaless_reader(io.BytesIO(body), parsed, wanted) for body in bodies
    ]


@EXAMPLES
@given(pairs(), st.data())
def test_torn_and_twisted_bytes_are_rejected_or_read_as_fastavro_reads_them(
    pair: tuple[dict[str, Any], dict[str, Any], list[bytes]], data: st.DataObject
) -> None:
    writer, reader, bodies = pair
    record, decoder = from_avro(reader, "r"), decoder_of(writer, reader)
    body = bytearray(data.draw(st.sampled_from(bodies)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(body) - 1)))
        body[at : at + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=2))
    (found,) = rows_of(decoder, record, [bytes(body)])
    if isinstance(found, RejectionReason):
        return
    parsed = fastavro.parse_schema(json.loads(json.dumps(writer)))
    wanted = fastavro.parse_schema(json.loads(json.dumps(reader)))
    source = io.BytesIO(bytes(body))
    assert is_same(found, fastavro.schemaless_reader(source, parsed, wanted))
    assert source.tell() == len(body)


def is_same(found: Any, expected: Any) -> bool:
    """Return whether a value is what fastavro has, which promotes an integer to a float with more
    digits than that holds, or leaves it as it is.
    """
    if isinstance(found, dict):
        return found.keys() == expected.keys() and all(
            is_same(found[key], expected[key]) for key in found
        )
    if isinstance(found, list):
        return len(found) == len(expected) and all(map(is_same, found, expected))
    if isinstance(found, float) and isinstance(expected, int | float):
        with np.errstate(over="ignore"):
            narrow = float(np.float32(expected))
        return found in (float(expected), narrow) or (isnan(found) and isnan(expected))
    return bool(found == expected)


def in_bulk_and_singly(decoder: AvroDecoder, values: list[bytes]) -> tuple[Any, Any]:
    """Return what both ways of reading give: rows, and reasons by index."""
    found = []
    for is_bulk in (True, False):
        if not is_bulk:
            for version in decoder._versions:
                version.bulk = None
        table, rejected = decoder.decode(values)
        found.append((table.to_pylist(), [(index, each.reason) for index, each in rejected]))
    return found[0], found[1]


@EXAMPLES
@given(st.data())
def test_bulk_reading_is_reading_one_by_one(data: st.DataObject) -> None:
    draw, names = data.draw, Names()
    kinds: list[Any] = [
        *PLAIN,
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "long", "logicalType": "local-timestamp-millis"},
        {"type": "int", "logicalType": "date"},
        {"type": "string", "logicalType": "uuid"},
        {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1},
    ]
    fields = []
    for _ in range(draw(st.integers(1, 4))):
        named = [
            {"type": "enum", "name": names.next("E"), "symbols": SYMBOLS},
            {"type": "fixed", "name": names.next("F"), "size": 3},
            {
                "type": "fixed",
                "name": names.next("F"),
                "size": 2,
                "logicalType": "decimal",
                "precision": 3,
                "scale": 1,
            },
        ]
        kind = draw(st.sampled_from([*kinds, *named]))
        shape = draw(st.sampled_from(["plain", "first", "last"]))
        kinds_of = {"plain": kind, "first": ["null", kind], "last": [kind, "null"]}
        fields.append({"name": names.next("f"), "type": kinds_of[shape]})
    writer = {"type": "record", "name": "r", "fields": fields}
    wanted = []
    for each in fields[: draw(st.integers(1, len(fields)))]:
        kind = each["type"]
        if isinstance(kind, list) and draw(st.booleans()):
            kind = next(part for part in kind if part != "null")
        wanted.append({"name": each["name"], "type": evolved(draw, kind, names)})
    reader = {"type": "record", "name": "r", "fields": wanted}
    bodies = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=4))
    for _ in range(3):
        whole = b"".join(written(draw, each["type"]) for each in fields)
        bodies.append(whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole)
    bulk, singly = in_bulk_and_singly(
        decoder_of(writer, reader), [b"\0\0\0\0\7" + body for body in bodies]
    )
    assert repr(bulk) == repr(singly)


def written(draw: Any, avro: Any) -> Any:
    """Return bytes that are, most of the time, a value of a type, its range exhausted."""
    if isinstance(avro, list):
        branch = draw(st.sampled_from([0, 1, 1, 0, 2, -1]))
        kind = avro[branch] if branch in (0, 1) else "null"
        return zigzag(branch) + (b"" if kind == "null" else written(draw, kind))
    kind = avro if isinstance(avro, str) else avro["type"]
    if kind in ("int", "long"):
        edges = [0, -1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 1_767_225_600_000]
        return zigzag(draw(st.sampled_from(edges)))
    if kind == "enum":
        return zigzag(draw(st.integers(-1, len(SYMBOLS))))
    if kind == "boolean":
        return draw(st.sampled_from([b"\0", b"\1", b"\2"]))
    if kind in ("float", "double", "fixed"):
        size = {"float": 4, "double": 8}.get(kind) or avro["size"]
        return draw(st.binary(min_size=size, max_size=size))
    texts = [b"", b"abc", b"\xc3\xa9", b"\xff", b"\x00\x7f", b"\x7f\xff\xff"]
    texts += [b"123e4567-e89b-12d3-a456-42661417400F"]
    text = draw(st.sampled_from(texts))
    return zigzag(len(text)) + text


def zigzag(value: int) -> bytes:
    """Return an integer as Avro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()
