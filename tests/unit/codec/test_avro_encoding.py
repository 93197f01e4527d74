"""Columns of Arrow as records in Avro, read by another library."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json

import fastavro
import pyarrow as pa
import pytest

from anabranch.codec.avro_encoding import AvroEncoder
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError


def test_other_columns_become_what_avro_has() -> None:
    table = pa.table(
        {
            "t": pa.array([1_500_999, None], pa.timestamp("us", "UTC")),
            "day": [dt.date(1970, 1, 3), None],
            "n": [decimal.Decimal("1.50"), None],
            "small": pa.array([1, -1], pa.int8()),
            "u": pa.array([2**32 - 1, 0], pa.uint32()),
            "h": pa.array([0.5, None], pa.float32()),
            "ls": pa.array(["a", None], pa.large_string()),
            "lb": pa.array([b"a", None], pa.large_binary()),
            "flag": [True, None],
            "none": pa.array([None, None], pa.string()),
        }
    )
    encoder = AvroEncoder(table.schema, "r", 1)
    types = {field["name"]: field["type"][1] for field in encoder.avro["fields"]}
    assert types["t"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert types["day"] == {"type": "int", "logicalType": "date"}
    assert types["n"] == {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": 3,
        "scale": 2,
    }
    assert [types[name] for name in ("small", "u", "h", "ls", "lb", "flag")] == [
        "int",
        "long",
        "float",
        "string",
        "bytes",
        "boolean",
    ]
    found = [
        fastavro.schemaless_reader(io.BytesIO(value[5:]), encoder.avro, None)
        for value in encoder.encode(table)
    ]
    assert found[0]["t"] == dt.datetime(1970, 1, 1, 0, 0, 1, 500_999, tzinfo=dt.UTC)
    assert found[0] | {"t": 0} == {
        "t": 0,
        "day": dt.date(1970, 1, 3),
        "n": decimal.Decimal("1.50"),
        "small": 1,
        "u": 2**32 - 1,
        "h": 0.5,
        "ls": "a",
        "lb": b"a",
        "flag": True,
        "none": None,
    }
    assert found[1] == {**dict.fromkeys(found[0]), "small": -1, "u": 0}


def test_columns_whose_paths_look_alike_become_records_of_different_names() -> None:
    inner = pa.struct([("x", pa.int32())])
    table = pa.table(
        {
            "a": pa.array(
                [{"b": {"x": 1}, "a": {"x": 2}}], pa.struct([("b", inner), ("a", inner)])
            ),
            "a_b": pa.array([{"x": 3}], inner),
            "b": pa.array([[{"x": 4}]], pa.list_(inner)),
        }
    )
    encoder = AvroEncoder(table.schema, "a", 1)
    [value] = encoder.encode(table)
    # Parsed anew from its text, as a registry does: a name used twice is an error there.
    parsed = fastavro.parse_schema(json.loads(json.dumps(encoder.avro)))
    assert fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None) == {
        "a": {"b": {"x": 1}, "a": {"x": 2}},
        "a_b": {"x": 3},
        "b": [{"x": 4}],
    }


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (pa.schema([("a", pa.map_(pa.int32(), pa.int32()))]), "use format: json"),
        (pa.schema([("a", pa.list_(pa.time64("us")))]), r"column a\[\] of type time64"),
        (pa.schema([("a", pa.struct([]))]), "use format: json"),
        (pa.schema([("a", pa.struct([("b-c", pa.int32())]))]), "no name that Avro allows"),
        (pa.schema([("a", pa.decimal256(50, 2))]), "use format: json"),
        (pa.schema([("a b", pa.int32())]), "has no name that Avro allows"),
        (pa.schema([("a", pa.int32()), ("a", pa.int32())]), "without names of their own"),
        (pa.schema([]), "none"),
    ],
)
def test_columns_that_cannot_become_avro_are_rejected(schema: pa.Schema, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        AvroEncoder(schema, "r", 1)


def test_null_where_none_may_be_is_not_written() -> None:
    schema = pa.schema([pa.field("a", pa.int32(), nullable=False)])
    with pytest.raises(LocalProtocolError, match="column a holds null"):
        AvroEncoder(schema, "r", 1).encode(pa.table({"a": pa.array([1, None], pa.int32())}))


def test_nested_columns_are_what_another_library_reads() -> None:
    inner = pa.struct([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = pa.table(
        {
            "r": pa.array([{"n": -1, "at": 1_500_000}, None, {"n": 2**40, "at": None}], inner),
            "a": pa.array([[None, [1, 2]], [], None], pa.list_(pa.list_(pa.int32()))),
            "m": pa.array(
                [[("b", decimal.Decimal("-1.28")), ("a", None)], [], None],
                pa.map_(pa.string(), pa.decimal128(5, 2)),
            ),
            "local": pa.array([1, None, -1], pa.timestamp("us")),
        }
    )
    encoder = AvroEncoder(table.schema, "out", 1)
    schema = fastavro.parse_schema(encoder.avro)
    second = dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC)
    values = encoder.encode(table)
    found = [fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None) for value in values]
    assert [row["r"] for row in found] == [{"n": -1, "at": second}, None, {"n": 2**40, "at": None}]
    assert [row["a"] for row in found] == [[None, [1, 2]], [], None]
    assert [row["m"] for row in found] == [{"a": None, "b": decimal.Decimal("-1.28")}, {}, None]
    assert list(found[0]["m"]) == ["a", "b"], "pairs are in the order of their keys"
    assert found[0]["local"] == dt.datetime(1970, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001
    assert encoder.encode(table.slice(2)) == values[2:]
