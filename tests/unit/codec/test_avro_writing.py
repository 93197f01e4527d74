"""Values written one at a time, and read back."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from anabranch.codec.avro_format import AvroFormat
from anabranch.codec.avro_records import AvroDecoder
from anabranch.codec.avro_schema import of_notation
from anabranch.codec.avro_writing import writer_of
from anabranch.codec.edge import Decoder
from anabranch.codec.field_types import Field
from anabranch.codec.record_schema import RecordSchema, from_avro
from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError, RejectionReason
from harness.avro_schemas import array_of, enum_of, field, fixed_of, logical, map_of, record_of

UUID = "123e4567-e89b-12d3-a456-42661417400f"


@pytest.mark.parametrize("count", [limits.RECORD_ITEMS_MAX, limits.RECORD_ITEMS_MAX + 1])
def test_too_many_items_are_too_large(count: int) -> None:
    fields = [field("list", array_of("int"))]
    record = from_avro(record_of(*fields), "r")
    texts = [json.dumps({"list": [1] * count}).encode()]
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(record.avro), {"list": [1] * count})
    for found in (
        Decoder(record, "json").decode(texts),
        Decoder(record, "avro").decode([b"\0\0\0\0\1" + body.getvalue()]),
    ):
        fits = count == limits.RECORD_ITEMS_MAX
        assert [error.reason for _, error in found.rejected] == (
            [] if fits else [RejectionReason.TOO_LARGE]
        )
        assert found.table.num_rows == fits


def version(number: int, *fields: Any, older: tuple[RecordSchema, ...] = ()) -> RecordSchema:
    inner = record_of(*fields, name="inner")
    outer = record_of(field("all", array_of(inner)))
    made = from_avro(outer, "r", number)
    return RecordSchema("r", number, made.avro, made.fields, number, older)


def test_an_older_version_of_a_nested_record_is_read_as_the_newest() -> None:
    gone, wider = field("gone", "string"), field("n", "double")
    new = field("new", ["null", "int"], default=None)
    first = version(1, gone, field("n", "int"))
    newest = version(2, new, wider, older=(first,))
    body = io.BytesIO()
    rows = {"all": [{"gone": "x", "n": 7}]}
    fastavro.schemaless_writer(body, fastavro.parse_schema(first.avro), rows)
    found = Decoder(newest, "avro").decode([b"\0\0\0\0\1" + body.getvalue()])
    assert found.table.to_pylist() == [{"all": [{"new": None, "n": 7.0}]}]
    with pytest.raises(
        ConfigurationError, match=r"field all\[\].n was double and cannot become int"
    ):
        Decoder(version(2, field("n", "int"), older=(version(1, wider),)), "avro")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("long", [0, -1, 2**63 - 1, -(2**63)]),
        (logical("timestamp-millis"), ["1970-01-01T00:00:00Z", "1969-12-31T23:59:59.001Z"]),
        (logical("timestamp-micros"), ["1969-12-31T23:59:59.000001Z"]),
        (logical("local-timestamp-millis"), ["2026-05-01T14:00:00.250"]),
        (logical("timestamp-nanos"), [1]),
        (logical("date", "int"), ["2026-05-01"]),
        (["double", "null"], [None, 0.5]),
        (["null", "string"], [None, "\u00e9"]),
        (
            logical("decimal", "fixed", name="f", size=4, precision=5, scale=2),
            ["-999.99", "999.99"],
        ),
        (logical("decimal", "bytes", precision=5, scale=2), ["1.28"]),
        (array_of("boolean"), [[], [True, False]]),
        (map_of(["null", "int"]), [{}, {"a": None, "b": 1}]),
        (enum_of("e", "A", "B"), ["B", "A"]),
        (fixed_of("f", 3), ["YWJj"]),
        (logical("uuid", "fixed", name="f", size=16), [UUID]),
        (logical("uuid", "string"), [UUID]),
        (
            logical("duration", "fixed", name="f", size=12),
            [{"months": 1, "days": 0, "millis": 2**32 - 1}],
        ),
        (["int", "string"], [{"member_int": 5}, {"member_string": "x"}]),
        (["int", "null", "string"], [None, {"member_string": "x"}]),
        (["int", "long"], [2**40]),
        (["null", "float", "double"], [None, 0.1]),
    ],
)
def test_what_is_sent_is_what_another_library_and_the_source_read(
    kind: Any, values: list[Any]
) -> None:
    avro = record_of(field("a", kind))
    record = from_avro(json.loads(json.dumps(avro)), "r")
    lines = [json.dumps({"a": value}).encode() for value in values]
    sent = AvroFormat().from_json(record, None)(lines)
    found, rejected = AvroDecoder(record).decode(sent)
    assert (found, rejected) == (Decoder(record, "json").decode(lines).table, [])
    for value in sent:
        source = io.BytesIO(value[5:])
        fastavro.schemaless_reader(
            source, fastavro.parse_schema(json.loads(json.dumps(avro))), None
        )
        assert source.tell() == len(value) - 5


def test_what_may_not_be_null_is_not_written_as_null() -> None:
    with pytest.raises(LocalProtocolError, match="column a holds null"):
        writer_of(of_notation("int"), Field("a", "int"))(None)
    union = from_avro(record_of(field("a", ["int", "string"])), "r")
    with pytest.raises(LocalProtocolError, match="column a is a union that holds none"):
        AvroFormat().from_json(union, None)([b'{"a":{}}'])


def test_items_within_records_count() -> None:
    half = limits.RECORD_ITEMS_MAX // 2 + 1
    items = array_of("int")
    inner = record_of(field("list", items), name="inner")
    fields = [field("one", inner), field("other", "inner")]
    record = from_avro(record_of(*fields), "r")
    value = json.dumps({name: {"list": [1] * half} for name in ("one", "other")}).encode()
    ((_, error),) = Decoder(record, "json").decode([value]).rejected
    assert error.reason is RejectionReason.TOO_LARGE
