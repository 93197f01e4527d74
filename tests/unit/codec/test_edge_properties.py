"""Properties of the edge formats: bulk and single record agree on every input, hostile ones
included, and so does a plain second reading.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.codec.avro_records import AvroDecoder
from anabranch.codec.blocks import canonical_sort, decode_block, digest, encode_block
from anabranch.codec.edge import Decoder, Encoder, Key
from anabranch.codec.field_types import FLOAT_MAX, KINDS, Field
from anabranch.codec.record_schema import RecordSchema, from_avro
from anabranch.protocol.errors import RecordRejected
from harness.avro_schemas import decimal_of, field, record_of
from harness.examples import examples

EXAMPLES = examples(300)
OF_ANY_SCHEMA = examples(150)


def schema(kinds: list[tuple[str, bool]]) -> RecordSchema:
    fields = [
        field(f"c{n}", ["null", kind] if nullable else kind)
        for n, (kind, nullable) in enumerate(kinds)
    ]
    return from_avro(record_of(*fields), "r")


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=8),
}


MILLIS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOGICAL: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "timestamp-millis": ("long", MILLIS.map(lambda ms: EPOCH + timedelta(milliseconds=ms))),
    "timestamp-micros": ("long", st.datetimes(timezones=st.just(UTC))),
    "date": ("int", st.dates()),
    "uuid": ("string", st.uuids().map(str)),
}


@st.composite
def decimals(draw: st.DrawFn) -> tuple[Any, st.SearchStrategy[Any]]:
    precision = draw(st.sampled_from([1, 5, 18, 38]))
    scale = draw(st.sampled_from([0, 1, precision]))
    avro = decimal_of(precision, scale)
    whole = st.integers(-(10**precision) + 1, 10**precision - 1)
    return avro, whole.map(lambda number: Decimal(f"{number}e-{scale}"))


@st.composite
def types(draw: st.DrawFn, name: str, depth: int = 0) -> tuple[Any, st.SearchStrategy[Any]]:
    """Draw a type in Avro's notation, and its values as ``to_pylist`` gives them."""
    nested = ["record", "array", "map"] if depth < 3 else []
    kind = draw(st.sampled_from([*KINDS, *LOGICAL, "decimal", *nested]))
    avro: Any = kind
    if kind in KINDS:
        values = VALUES[kind]
    elif kind in LOGICAL:
        avro, values = {"type": LOGICAL[kind][0], "logicalType": kind}, LOGICAL[kind][1]
    elif kind == "decimal":
        avro, values = draw(decimals())
    elif kind == "record":
        inner = [draw(types(f"{name}_{n}", depth + 1)) for n in range(draw(st.integers(1, 3)))]
        fields = [field(f"c{n}", of) for n, (of, _) in enumerate(inner)]
        avro = record_of(*fields, name=name)
        values = st.fixed_dictionaries({f"c{n}": of for n, (_, of) in enumerate(inner)})
    else:
        of, each = draw(types(f"{name}_of", depth + 1))
        avro = {"type": kind, "items" if kind == "array" else "values": of}
        values = (
            st.lists(each, max_size=3)
            if kind == "array"
            else st.dictionaries(st.text(max_size=3), each, max_size=3).map(
                lambda pairs: sorted(pairs.items())
            )
        )
    if draw(st.booleans()):
        order = draw(st.permutations(["null", avro]))
        return list(order), st.none() | values
    return avro, values


@st.composite
def rows_of_a_schema(draw: st.DrawFn) -> tuple[RecordSchema, list[dict[str, Any]]]:
    made = [draw(types(f"t{n}")) for n in range(draw(st.integers(1, 5)))]
    fields = [field(f"c{n}", avro) for n, (avro, _) in enumerate(made)]
    record = from_avro(record_of(*fields), "r")
    rows = draw(
        st.lists(
            st.fixed_dictionaries({f"c{n}": values for n, (_, values) in enumerate(made)}),
            max_size=6,
        )
    )
    return record, table_of(record, rows).to_pylist()


def table_of(record: RecordSchema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=record.arrow_schema())


@st.composite
def mutated(draw: st.DrawFn, value: bytes) -> bytes:
    """``value`` with a few bytes lost, changed, doubled or put in; often not at all."""
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(value)))
        width = draw(st.integers(0, 3))
        value = (
            value[:at]
            + draw(st.binary(max_size=3) | st.just(value[at : at + width] * 2))
            + value[at + width :]
        )
    return value


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # tells 1 from 1.0 and from True, and 0.0 from -0.0


def decoded_one_by_one(decoder: Decoder, values: list[bytes]) -> tuple[list[Any], list[Any]]:
    rows, rejected = [], []
    for index, value in enumerate(values):
        found = decoder.decode([value])
        rows += found.table.to_pylist()
        rejected += [(index, error.reason) for _, error in found.rejected]
    return rows, rejected


# -- JSON
# --------------------------------------------------------------------------------------------------

JSON_RECORD = from_avro(
    record_of(
        field("i", "int"),
        field("l", ["null", "long"], default=None),
        field("f", "float", default=1),
        field("d", ["null", "double"]),
        field("b", "boolean"),
        field("s", "string"),
    ),
    "r",
)
CORPUS = [
    b'{"i":1,"d":2,"b":true,"s":"x"}',
    b'{"i":1,"l":null,"f":2.5,"d":null,"b":false,"s":"\\u00e9"}',
    b'{"i":1,"d":2,"b":true,"s":"x"',
    b'"t":3}',
    b',{"i":1,"d":2,"b":true,"s":"x"}',
    b'{"i":1,"d":2,"b":true,"s":"x"},{"i":1,"d":2,"b":true,"s":"x"}',
    b"[]",
    b"{}",
    b"null",
    b" ",
    b'{"i":1,"d":2,"b":true,"s":"x"}\n{"i":1,"d":2,"b":true,"s":"x"}',
    b'{"i":1.0,"d":2,"b":true,"s":"x"}',
    b'{"i":true,"d":2,"b":true,"s":"x"}',
    b'{"i":1,"i":2,"d":2,"b":true,"s":"x"}',
    b'{"i":"1","i":2,"d":2,"b":true,"s":"x"}',
    b'{"i":1,"d":NaN,"b":true,"s":"x"}',
    b'{"i":1,"d":1e999,"b":true,"s":"x"}',
    b'{"i":2147483648,"d":1,"b":true,"s":"x"}',
    b'{"i":1,"f":3.5e38,"d":1,"b":true,"s":"x"}',
    b'{"i":1,"d":2,"b":true,"s":"\\ud800"}',
    b'{"i":1,"d":2,"b":true,"s":"\xff"}',
    b'{"i":1,"d":2,"b":true,"s":"a\nb"}',
    b'\xef\xbb\xbf{"i":1}',
    b'\n {"i":1,\n"d":2,\n"b":true,"s":"x"}\n ',
    b'{"i":1,"d":2,"b":true,"s":"x","x":1}',
    b'{"i":1,"d":2,"b":true}',
    b'{"i":-0,"d":-0,"b":true,"s":""}',
]


class Pairs(list[tuple[str, Any]]):
    """An object, with the keys that are there twice."""


def plainly(value: bytes, *, ignoring: bool = False) -> dict[str, Any] | None:
    """Return what JSON_RECORD makes of ``value`` by the standard library and the written rules;
    None if it is rejected.
    """
    types = {field.name: field for field in JSON_RECORD.fields}

    def reject(_: str) -> Any:
        raise ValueError

    try:
        pairs = json.loads(value.decode("utf-8"), object_pairs_hook=Pairs, parse_constant=reject)
        if not isinstance(pairs, Pairs):
            return None
        if ignoring:
            pairs = [(key, item) for key, item in pairs if key in types]
        if any(not fits(types.get(key), item) for key, item in pairs):
            return None
        found = dict(pairs)
        "".join(str(item) for item in found.values()).encode()
    except (ValueError, RecursionError):
        return None
    row = {field.name: found.get(field.name, field.default) for field in JSON_RECORD.fields}
    if any(field.name not in found and not field.has_default for field in JSON_RECORD.fields):
        return None
    return {key: plain_number(types[key], item) for key, item in row.items()}


def fits(field: Field | None, item: Any) -> bool:
    if field is None:
        return False
    if item is None:
        return field.nullable
    if field.kind in ("int", "long"):
        bits = 31 if field.kind == "int" else 63
        return type(item) is int and -(2**bits) <= item < 2**bits
    if field.kind in ("float", "double"):
        return type(item) in (int, float) and abs(item) <= (
            FLOAT_MAX if field.kind == "float" else 1.7976931348623157e308
        )
    return type(item) is {"boolean": bool, "string": str}[field.kind]


def plain_number(field: Field, item: Any) -> Any:
    if item is None or field.kind not in ("float", "double"):
        return item
    number = float(item)
    if number == 0 and not isinstance(item, float):
        number = 0.0
    return float(np.float32(number)) if field.kind == "float" else number


json_values = (
    st.sampled_from(CORPUS) | st.sampled_from(CORPUS).flatmap(mutated) | st.binary(max_size=12)
)
json_objects = st.dictionaries(
    st.sampled_from(["i", "l", "f", "d", "b", "s", "x"]),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.lists(st.integers(), max_size=2),
).map(lambda value: json.dumps(value).encode())


@EXAMPLES
@given(st.lists(json_values | json_objects, max_size=8))
@example(CORPUS)
@example([b'{"i":1,"d":2,"b":true,"s":"x', b'y"}'])
@example([b'{"i":1,"d":2,"b":true', b'"s":"x"}'])
def test_json_in_bulk_is_json_one_by_one_is_json_read_plainly(values: list[bytes]) -> None:
    decoder = Decoder(JSON_RECORD, "json", "reject")
    found = decoder.decode(values)
    rows, rejected = decoded_one_by_one(decoder, values)
    assert same(found.table.to_pylist(), rows)
    assert [(index, error.reason) for index, error in found.rejected] == rejected
    assert sorted(
        [
            *(found.rows if found.rows is not None else range(len(values))),
            *(index for index, _ in rejected),
        ]
    ) == list(range(len(values)))
    assert same(rows, [row for row in map(plainly, values) if row is not None])


@EXAMPLES
@given(st.lists(json_values | json_objects, max_size=8))
@example(CORPUS)
@example([b'{"i":1,"d":2,"b":true,"s":"x","x":{"i":"no"},"i":3}'])
def test_what_is_not_in_the_record_is_ignored(values: list[bytes]) -> None:
    decoder = Decoder(JSON_RECORD, "json")
    found = decoder.decode(values)
    rows, rejected = decoded_one_by_one(decoder, values)
    assert same(found.table.to_pylist(), rows)
    assert [(index, error.reason) for index, error in found.rejected] == rejected
    clear = [value for value in values if value.isascii() and b"\\u" not in value]
    expected = [plainly(value, ignoring=True) for value in clear]
    assert same(
        decoder.decode(clear).table.to_pylist(), [row for row in expected if row is not None]
    )


@EXAMPLES
@given(st.text(max_size=12).map(str.encode) | st.binary(max_size=9).map(base64.b64encode))
def test_bytes_in_json_are_base64(text: bytes) -> None:
    found = Decoder(schema([("bytes", False)]), "json").decode(
        [b'{"c0":' + json.dumps(text.decode()).encode() + b"}"]
    )
    try:
        expected = [base64.b64decode(text, validate=True)]
    except (binascii.Error, ValueError):
        expected = []
    assert found.table.column(0).to_pylist() == expected or not text.isascii()


# -- Avro
# --------------------------------------------------------------------------------------------------


def avro_values(record: RecordSchema, rows: list[dict[str, Any]]) -> list[bytes]:
    parsed, values = fastavro.parse_schema(record.avro), []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, as_fastavro_has(row, record.fields))
        values.append(b"\0\0\0\0\1" + out.getvalue())
    return values


def as_fastavro_has(row: dict[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    return {field.name: as_fastavro(row[field.name], field) for field in fields}


def as_fastavro(value: Any, field: Field) -> Any:
    if value is None or not field.is_nested:
        return value
    if field.kind == "record":
        return as_fastavro_has(value, field.inner)
    if field.kind == "array":
        return [as_fastavro(item, field.inner[0]) for item in value]
    return {key: as_fastavro(item, field.inner[0]) for key, item in value}


@OF_ANY_SCHEMA
@given(rows_of_a_schema(), st.data())
def test_avro_in_bulk_is_avro_one_by_one(
    made: tuple[RecordSchema, list[dict[str, Any]]], data: st.DataObject
) -> None:
    record, rows = made
    values = [data.draw(mutated(value)) for value in avro_values(record, rows)]
    values += data.draw(
        st.lists(st.binary(max_size=12).map(lambda body: b"\0\0\0\0\1" + body), max_size=3)
    )
    decoder = AvroDecoder(record)
    table, rejected = decoder.decode(values)
    table.validate(full=True)
    expected, wrong = [], []
    for index, value in enumerate(values):
        try:
            expected.append(decoder.decode_one(value))
        except RecordRejected as error:
            wrong.append((index, error.reason, str(error)))
    assert same(table.to_pylist(), decoder.table(expected).to_pylist())
    assert [(index, error.reason, str(error)) for index, error in rejected] == wrong


@OF_ANY_SCHEMA
@given(rows_of_a_schema())
def test_avro_says_what_was_written(made: tuple[RecordSchema, list[dict[str, Any]]]) -> None:
    record, rows = made
    table, rejected = AvroDecoder(record).decode(avro_values(record, rows))
    assert rejected == []
    assert same(table.to_pylist(), rows)


# -- both
# --------------------------------------------------------------------------------------------------


@OF_ANY_SCHEMA
@given(rows_of_a_schema(), st.sampled_from(["json", "avro"]))
def test_what_is_encoded_decodes_to_the_same(
    made: tuple[RecordSchema, list[dict[str, Any]]], kind: str
) -> None:
    record, rows = made
    table = table_of(record, rows)
    registered: list[str] = []

    def register(schema: str) -> int:
        registered.append(schema)
        return 1

    encoder = Encoder(table.schema, kind, Key(["c0"]), register=register)
    keys, values = encoder.keys(table), encoder.values(table)
    as_written = from_avro(json.loads(registered[0]), "r") if registered else record
    found = Decoder(as_written, kind).decode(values)
    assert found.rejected == []
    assert same(found.table.to_pylist(), table.to_pylist())
    assert len(keys) == len(values) == len(rows)
    assert (encoder.keys(found.table), encoder.values(found.table)) == (keys, values)
    for shift in range(len(rows)):  # a slice is written as the rows that it has
        assert encoder.keys(table.slice(shift)) == keys[shift:]
        assert encoder.values(table.slice(shift)) == values[shift:]


@OF_ANY_SCHEMA
@given(rows_of_a_schema(), st.data())
def test_json_of_any_schema_in_bulk_is_json_one_by_one(
    made: tuple[RecordSchema, list[dict[str, Any]]], data: st.DataObject
) -> None:
    record, rows = made
    table = table_of(record, rows)
    values = [data.draw(mutated(v)) for v in Encoder(table.schema, "json").values(table)]
    decoder = Decoder(record, "json", data.draw(st.sampled_from(["ignore", "reject"])))
    found = decoder.decode(values)
    found.table.validate(full=True)
    one_by_one, rejected = decoded_one_by_one(decoder, values)
    assert same(found.table.to_pylist(), one_by_one)
    assert [(index, error.reason) for index, error in found.rejected] == rejected


@OF_ANY_SCHEMA
@given(rows_of_a_schema(), st.data())
def test_equal_rows_are_ordered_and_hashed_alike(
    made: tuple[RecordSchema, list[dict[str, Any]]], data: st.DataObject
) -> None:
    """Whatever the order of the rows, and of the pairs of a map."""
    record, rows = made
    columns = record.arrow_schema().append(pa.field("event_time", pa.int64()))
    times = [data.draw(st.integers(1, 2)) for _ in rows]
    timed = [row | {"event_time": time} for row, time in zip(rows, times, strict=True)]
    one = pa.Table.from_pylist(timed, schema=columns)
    shuffled = [backwards(row, record.fields) for row in data.draw(st.permutations(timed))]
    other = pa.Table.from_pylist(shuffled, schema=columns)
    assert digest(decode_block(encode_block(other))) == digest(one)
    encoded = [
        Encoder(record.arrow_schema(), "json").values(canonical_sort(each)) for each in (one, other)
    ]
    assert [len(each) for each in encoded] == [len(rows), len(rows)]
    if not any(has_floats(field) for field in record.fields):
        assert encoded[0] == encoded[1]


def has_floats(field: Field) -> bool:
    return field.kind in ("float", "double") or any(map(has_floats, field.inner))


def backwards(row: dict[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    return row | {field.name: turned(row[field.name], field) for field in fields}


def turned(value: Any, field: Field) -> Any:
    if value is None or not field.is_nested:
        return value
    if field.kind == "record":
        return backwards(value, field.inner)
    if field.kind == "array":
        return [turned(item, field.inner[0]) for item in value]
    return [(key, turned(item, field.inner[0])) for key, item in reversed(value)]


@EXAMPLES
@given(st.lists(st.none() | st.binary(max_size=20), max_size=6), st.sampled_from(["json", "avro"]))
def test_no_bytes_raise_anything(values: list[bytes | None], kind: str) -> None:
    found = Decoder(JSON_RECORD, kind).decode(values)
    assert found.table.num_rows + len(found.rejected) == len(values)
    assert all(math.isfinite(item) for item in found.table.column("f").to_pylist())
