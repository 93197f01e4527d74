"""Nested values in Avro, one at a time."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from anabranch.codec.avro_binary import Reader
from anabranch.codec.avro_values import missing, reader_of, record_writer, writer_of
from anabranch.codec.edge import Decoder
from anabranch.codec.field_types import Field
from anabranch.codec.record_schema import RecordSchema, from_avro
from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError, RejectionReason


@pytest.mark.parametrize("count", [limits.RECORD_ITEMS_MAX, limits.RECORD_ITEMS_MAX + 1])
def test_too_many_items_are_too_large(count: int) -> None:
    fields = [{"name": "list", "type": {"type": "array", "items": "int"}}]
    record = from_avro({"type": "record", "name": "r", "fields": fields}, "r")
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
    inner = {"type": "record", "name": "inner", "fields": list(fields)}
    outer = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "all", "type": {"type": "array", "items": inner}}],
    }
    made = from_avro(outer, "r", number)
    return RecordSchema("r", number, made.avro, made.fields, number, older)


def test_an_older_version_of_a_nested_record_is_read_as_the_newest() -> None:
    gone, wider = {"name": "gone", "type": "string"}, {"name": "n", "type": "double"}
    new = {"name": "new", "type": ["null", "int"], "default": None}
    first = version(1, gone, {"name": "n", "type": "int"})
    newest = version(2, new, wider, older=(first,))
    body = io.BytesIO()
    rows = {"all": [{"gone": "x", "n": 7}]}
    fastavro.schemaless_writer(body, fastavro.parse_schema(first.avro), rows)
    found = Decoder(newest, "avro").decode([b"\0\0\0\0\1" + body.getvalue()])
    assert found.table.to_pylist() == [{"all": [{"new": None, "n": 7.0}]}]
    with pytest.raises(
        ConfigurationError, match=r"field all\[\].n was double and cannot become int"
    ):
        Decoder(version(2, {"name": "n", "type": "int"}, older=(version(1, wider),)), "avro")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (Field("f", "long"), [0, -1, 2**63 - 1, -(2**63)]),
        (Field("f", "timestamp-millis"), [0, -1_000]),
        (Field("f", "double", nullable=True), [None, 0.5]),
        (Field("f", "string", nullable=True, null_first=True), [None, "\u00e9"]),
        (Field("f", "decimal", precision=5, scale=2, size=4), [-99_999, 99_999]),
        (Field("f", "array", inner=(Field("", "boolean"),)), [[], [True, False]]),
        (Field("f", "record", inner=(Field("a", "date"), Field("b", "bytes"))), [(3, b"x")]),
    ],
)
def test_what_is_written_is_read(field: Field, values: list[Any]) -> None:
    for value in values:
        out = bytearray()
        writer_of(field)(out, value)
        reader = Reader(bytes(out), 0, 10)
        assert reader_of(field, field, "f")(reader) == value
        reader.end()


def test_a_null_that_may_not_be_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="column a holds null"):
        record_writer((Field("a", "int"),))(bytearray(), (None,))


@pytest.mark.parametrize(
    ("written", "wanted", "says"),
    [
        (Field("a", "timestamp-millis"), Field("a", "timestamp-micros"), None),
        (Field("a", "timestamp-micros"), Field("a", "timestamp-millis"), "cannot become"),
        (Field("a", "long"), Field("a", "timestamp-micros"), "was long and cannot become"),
        (
            Field("a", "decimal", precision=4, scale=2),
            Field("a", "decimal", precision=9, scale=2),
            None,
        ),
        (
            Field("a", "decimal", precision=4, scale=2),
            Field("a", "decimal", precision=9, scale=3),
            "was decimal(4, 2) and cannot become decimal(9, 3)",
        ),
        (Field("b", "int"), Field("a", "int"), "field a is new and has no default"),
        (Field("a", "int", nullable=True), Field("a", "int"), "could be null and now cannot"),
    ],
)
def test_what_a_version_may_become(written: Field, wanted: Field, says: str | None) -> None:
    found = missing((written,), (wanted,))
    assert found is None if says is None else says in (found or "")


def test_items_within_records_count() -> None:
    half = limits.RECORD_ITEMS_MAX // 2 + 1
    items = {"type": "array", "items": "int"}
    inner = {"type": "record", "name": "inner", "fields": [{"name": "list", "type": items}]}
    fields = [{"name": "one", "type": inner}, {"name": "other", "type": "inner"}]
    record = from_avro({"type": "record", "name": "r", "fields": fields}, "r")
    value = json.dumps({name: {"list": [1] * half} for name in ("one", "other")}).encode()
    ((_, error),) = Decoder(record, "json").decode([value]).rejected
    assert error.reason is RejectionReason.TOO_LARGE
