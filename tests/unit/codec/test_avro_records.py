from __future__ import annotations

import io
import json
import re
from typing import Any

import fastavro
import pytest

from anabranch.codec.avro_records import AvroDecoder
from anabranch.codec.avro_schema import WRITER_SCHEMA_BYTES_MAX
from anabranch.codec.framing import SCHEMA_IDS_MAX
from anabranch.codec.record_schema import RecordSchema, from_avro
from anabranch.codec.writer_schema import SchemaKey, WriterSchema
from anabranch.protocol.errors import (
    RecordRejected,
    RejectionReason,
    UnknownSchema,
)
from harness.avro_schemas import array_of, field, record_of
from harness.registries import alone

AVRO: dict[str, Any] = record_of(
    field("l", "long"),
    field("i", "int"),
    field("f", "float"),
    field("d", "double"),
    field("b", "boolean"),
    field("s", "string"),
    field("y", "bytes"),
    field("n", ["null", "int"], default=None),
    field("m", ["string", "null"]),
    field("x", ["null", "double"]),
)
ROW = {
    "l": 2**40,
    "i": -5,
    "f": 0.5,
    "d": 1e300,
    "b": True,
    "s": "\u00e9",
    "y": b"\0",
    "n": 7,
    "m": None,
    "x": None,
}
SMALL: dict[str, Any] = record_of(field("a", "int"), field("b", ["null", "int"], default=None))


def record(avro: dict[str, Any] = AVRO, version: int = 1, *older: RecordSchema) -> RecordSchema:
    made = from_avro(avro, "r", version)
    return RecordSchema(made.name, version, avro, made.fields, made.schema_id, older)


def body(avro: dict[str, Any], row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(avro), row)
    return out.getvalue()


def framed(row: dict[str, Any], avro: dict[str, Any] = AVRO, schema_id: int = 1) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body(avro, row)


def single(row: dict[str, Any], avro: dict[str, Any] = AVRO) -> bytes:
    canonical = fastavro.schema.to_parsing_canonical_form(avro)
    return (
        b"\xc3\x01"
        + bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
        + body(avro, row)
    )


def decoded(
    schema: RecordSchema, *values: bytes
) -> tuple[list[dict[str, Any]], list[tuple[int, RejectionReason]]]:
    table, rejected = AvroDecoder(schema).decode(values)
    assert table.schema == schema.arrow_schema()
    table.validate(full=True)
    return table.to_pylist(), [(index, error.reason) for index, error in rejected]


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        {
            **ROW,
            "n": None,
            "m": "x",
            "x": -0.5,
            "s": "",
            "y": b"\xff" * 300,
            "l": -(2**63),
            "b": False,
        },
    ],
)
def test_both_framings_are_read(row: dict[str, Any]) -> None:
    assert decoded(record(), framed(row), single(row)) == ([row, row], [])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\0", "not_avro"),
        (b"\0\0\0\0", "not_avro"),
        (b"\xc3\x01", "not_avro"),
        (b"\xc3\x01" + b"x" * 7, "not_avro"),
        (b"{}", "not_avro"),
        (b"Obj\x01" + b"x" * 50, "not_avro"),
        (framed(ROW, schema_id=2), "unknown_schema"),
        (b"\xc3\x01" + b"x" * 8 + body(AVRO, ROW), "unknown_schema"),
        (framed(ROW)[:5], "not_avro"),
        (framed(ROW)[:-1], "not_avro"),
        (framed(ROW) + b"\0", "not_avro"),
        (framed({**ROW, "d": float("nan")}), "not_finite"),
        (framed({**ROW, "f": float("-inf")}), "not_finite"),
        (framed({**ROW, "x": float("inf")}), "not_finite"),
    ],
)
def test_what_does_not_fit_is_rejected_with_its_reason(value: bytes, reason: str) -> None:
    rows, rejected = decoded(record(), framed(ROW), value, framed(ROW))
    assert (rows, rejected) == ([ROW, ROW], [(1, RejectionReason(reason))])


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("int", b"\x80\x80\x80\x80\x10"),
        ("long", b"\x80" * 11),
        ("long", b"\x80" * 10),
        ("long", b""),
        ("boolean", b"\x02"),
        ("string", b"\x04\xff\xfe"),
        ("string", b"\x01"),
        ("bytes", b"\x06ab"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("float", b"abc"),
        (["null", "int"], b"\x04\x02"),
        (["null", "int"], b"\x01\x02"),
        (["int", "null"], b"\x00"),
        ("string", b""),
    ],
)
def test_each_kind_is_read_strictly(kind: object, data: bytes) -> None:
    avro = record_of(field("a", kind))
    assert decoded(record(avro), b"\0\0\0\0\1" + data) == ([], [(0, RejectionReason.NOT_AVRO)])


def test_a_text_that_is_not_utf8_disturbs_no_other() -> None:
    avro = record_of(field("a", ["null", "string"]))
    head = b"\0\0\0\0\1"
    rows, rejected = decoded(
        record(avro),
        head + b"\x02\x04\xc3\xa9",
        head + b"\x02\x04\xc3\x28",
        head + b"\0",
        head + b"\x02\x02x",
        head + b"\x02\x02\xc3",
    )
    assert ([row["a"] for row in rows], [index for index, _ in rejected]) == (
        ["\u00e9", None, "x"],
        [1, 4],
    )


def test_halves_of_letters_in_two_records_do_not_make_one() -> None:
    """Joined, the two texts would be valid."""
    avro = record_of(field("a", "string"))
    head = b"\0\0\0\0\1"
    assert decoded(record(avro), head + b"\x02\xc3", head + b"\x02\xa9")[0] == []


def test_an_older_version_is_read_as_the_newest() -> None:
    old_avro = record_of(
        field("gone", "string"),
        field("a", "int"),
        field("c", "float"),
        field("e", ["null", "long"]),
    )
    new_avro = record_of(
        field("a", "long"),
        field("new", "string", default="?"),
        field("c", "double"),
        field("e", ["null", "double"]),
        field("y", ["null", "bytes"], default=None),
    )
    old = record(old_avro, 1)
    new = record(new_avro, 2, old)
    old_row = {"gone": "x", "a": 5, "c": 0.5, "e": 3}
    new_row = {"a": 2**40, "new": "n", "c": 1.5, "e": None, "y": b"z"}
    as_new = {"a": 5, "new": "?", "c": 0.5, "e": 3.0, "y": None}
    values = [
        framed(new_row, new_avro, 2),
        framed(old_row, old_avro, 1),
        b"\0\0\0\0\3x",
        single(old_row, old_avro),
        single(new_row, new_avro),
    ]
    rows, rejected = decoded(new, *values)
    assert rows == [new_row, as_new, as_new, new_row]
    assert rejected == [(2, RejectionReason.UNKNOWN_SCHEMA)]
    assert AvroDecoder(new).decode_one(values[1]) == list(as_new.values())


def test_no_records_are_an_empty_table() -> None:
    assert decoded(record()) == ([], [])
    assert decoded(record(), b"x") == ([], [(0, RejectionReason.NOT_AVRO)])


def test_a_value_that_one_reader_alone_rejects_still_has_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = AvroDecoder(record())
    monkeypatch.setattr(decoder, "decode_one", lambda _: [])
    assert decoder.rejection(b"x").reason is RejectionReason.NOT_AVRO


def test_decode_one_says_the_same() -> None:
    decoder = AvroDecoder(record())
    assert decoder.decode_one(framed(ROW)) == list(ROW.values())
    assert decoder.decode_one(single(ROW)) == list(ROW.values())
    with pytest.raises(RecordRejected, match="not r v1: 1 bytes too many"):
        decoder.decode_one(framed(ROW) + b"\0")
    with pytest.raises(RecordRejected, match="not r v1: branch 2"):
        AvroDecoder(record(SMALL)).decode_one(framed({"a": 1, "b": None}, SMALL)[:-1] + b"\x04")


class Registry:
    """Schemas, as text, by id."""

    def __init__(self, **schemas: str) -> None:
        self._schemas: dict[SchemaKey, str] = {
            int(name[1:]): text for name, text in schemas.items()
        }
        self.lookups: list[SchemaKey] = []

    def learn(self, schema_id: int, text: str) -> None:
        self._schemas[schema_id] = text

    def schema_of(self, key: SchemaKey, /) -> WriterSchema:
        self.lookups.append(key)
        if key not in self._schemas:
            raise UnknownSchema("not\nthere")
        return alone(self._schemas[key])


class TestRegistry:
    """Ids that a registry has given."""

    def test_what_the_registry_learns_later_is_read_from_then_on(self) -> None:
        registry = Registry()
        decoder = AvroDecoder(record(SMALL), registry.schema_of)
        row = {"a": 1, "b": 2}
        ((_, error),) = decoder.decode([framed(row, SMALL, 7)])[1]
        assert error.reason is RejectionReason.UNKNOWN_SCHEMA
        registry.learn(7, json.dumps(SMALL))
        for _ in range(2):
            assert decoder.decode([framed(row, SMALL, 7)])[0].to_pylist() == [row]
        assert registry.lookups == [7, 7]
        ((_, error),) = decoder.decode([framed(row, SMALL, 8)])[1]
        registry.learn(8, "{")
        for _ in range(2):
            ((_, error),) = decoder.decode([framed(row, SMALL, 8)])[1]
            assert "it is not JSON" in str(error)
        assert registry.lookups == [7, 7, 8, 8]

    def test_what_is_known_is_asked_for_once(self) -> None:
        registry = Registry(_7=json.dumps(SMALL))
        decoder = AvroDecoder(record(SMALL), registry.schema_of)
        row = {"a": 1, "b": 2}
        values = [framed(row, SMALL, 70), framed(row, SMALL, 7), framed(row, SMALL, 70)]
        for lookups in ([7, 70], [7, 70, 70]):
            table, rejected = decoder.decode([*values, b"\0\0\0", single(row, SMALL)])
            assert registry.lookups == lookups
            assert table.to_pylist() == [row, row]
            assert [(index, error.reason.value, str(error)) for index, error in rejected] == [
                (0, "unknown_schema", "schema id 70: not; there"),
                (2, "unknown_schema", "schema id 70: not; there"),
                (3, "not_avro", "neither Confluent framing (00) nor a single object (C3 01)"),
            ]

    def test_the_ids_of_files_count_for_nothing(self) -> None:
        other = {**SMALL, "fields": [*reversed(SMALL["fields"])]}
        registry = Registry(_1=json.dumps(other))
        decoder = AvroDecoder(record(SMALL, 1), registry.schema_of)
        swapped = framed({"a": 1, "b": 2}, other, 1)
        assert decoder.decode([swapped])[0].to_pylist() == [{"a": 1, "b": 2}]
        assert decoder.decode([single({"a": 3, "b": 4}, SMALL), swapped])[0].to_pylist() == [
            {"a": 3, "b": 4},
            {"a": 1, "b": 2},
        ]
        assert registry.lookups == [1]

    def test_versions_of_other_tools_are_read_as_the_newest(self) -> None:
        written = {
            "type": "record",
            "name": "r",
            "namespace": "com.example",
            "connect.version": 3,
            "fields": [
                {"name": "b", "type": ["null", "int"], "default": None, "connect.index": 1},
                field("more", {"type": "string", "avro.java.string": "String"}),
                field("a", "int"),
                field("deep", array_of(record_of(field("x", "long", vendor={}), name="Deep"))),
            ],
        }
        decoder = AvroDecoder(record(SMALL), Registry(_3=json.dumps(written)).schema_of)
        row = {"b": None, "more": "m", "a": 5, "deep": [{"x": 1}]}
        assert decoder.decode([framed(row, written, 3)])[0].to_pylist() == [{"a": 5, "b": None}]

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("{", "it is not JSON"),
            ("[" * 100_000, "it is larger|it is not JSON"),
            ('"int"', "of type int, not a record"),
            ('{"type": "record", "name": "r", "fields": ["a"]}', "is not a field"),
            ('{"type": "record", "name": "R", "fields": []}', "it is a record R, not r"),
            (json.dumps({**SMALL, "fields": [field("a", "string")]}), "cannot read"),
            (" " * (WRITER_SCHEMA_BYTES_MAX + 1), "it is larger than"),
        ],
    )
    def test_a_schema_that_is_of_no_use_rejects_its_records(self, text: str, says: str) -> None:
        registry = Registry(_5=text)
        decoder = AvroDecoder(record(SMALL), registry.schema_of)
        value = framed({"a": 1, "b": 2}, SMALL, 5)
        decoder.decode([value])
        ((_, error),) = decoder.decode([value])[1]
        assert registry.lookups == [5]
        assert error.reason is RejectionReason.UNKNOWN_SCHEMA
        assert re.search(says, str(error))

    def test_a_guid_names_a_schema_like_an_id(self) -> None:
        asked: list[SchemaKey] = []

        def schema_of(key: SchemaKey, /) -> WriterSchema:
            asked.append(key)
            return alone(json.dumps(SMALL))

        decoder = AvroDecoder(record(SMALL), schema_of)
        row = {"a": 1, "b": 2}
        body = framed(row, SMALL, 7)[5:]
        guid = b"\1" + bytes(range(16))
        for values in ([guid + body], [guid + body, framed(row, SMALL, 7)]):
            table, rejected = decoder.decode(values)
            assert (table.to_pylist(), rejected) == ([row] * len(values), [])
        assert asked == ["00010203-0405-0607-0809-0a0b0c0d0e0f", 7]
        ((_, error),) = AvroDecoder(record(SMALL)).decode([guid + body])[1]
        assert str(error).startswith(
            "schema GUID 00010203-0405-0607-0809-0a0b0c0d0e0f is not known"
        )

    def test_ids_without_end_are_not_looked_up_at_once(self) -> None:
        registry = Registry()
        decoder = AvroDecoder(record(SMALL), registry.schema_of)
        values = [b"\0" + number.to_bytes(4, "big") for number in range(SCHEMA_IDS_MAX + 50)]
        rejected = decoder.decode(values)[1]
        assert registry.lookups == list(range(SCHEMA_IDS_MAX))
        assert str(rejected[-1][1]) == (
            f"schema id {SCHEMA_IDS_MAX + 49}: {SCHEMA_IDS_MAX} others came with it, more than a"
            " source looks up at once"
        )


class TestBare:
    """Records without framing."""

    @pytest.mark.parametrize("row", [{"a": 0, "b": 2}, {"a": -1, "b": 0}, {"a": 7, "b": None}])
    @pytest.mark.parametrize("has_registry", [False, True])
    def test_the_reason_says_that_there_is_no_framing(
        self, row: dict[str, Any], has_registry: bool
    ) -> None:
        """Whatever its first byte is: 0 and 1 begin framings, too."""
        texts = record_of(
            field("a", "long"), field("b", ["null", "long"], default=None), field("c", "string")
        )
        value = framed({**row, "c": "text of some length"}, texts, 1)[5:]
        decoder = AvroDecoder(record(texts), Registry().schema_of if has_registry else None)
        ((_, error),) = decoder.decode([value])[1]
        assert error.reason is RejectionReason.NOT_AVRO
        assert "v1 without framing; the producer must write Confluent framing" in str(error)
