"""Values sorted by the schemas of a registry."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.codec.framed_records import FramedDecoder, ReadBodies
from anabranch.codec.guards import Rejected
from anabranch.codec.record_schema import from_avro
from anabranch.codec.writer_schema import SchemaKey, WriterSchema
from anabranch.protocol.errors import RecordRejected, RejectionReason, UnknownSchema
from harness.avro_schemas import field, record_of
from harness.registries import alone

RECORD = from_avro(record_of(field("a", "string")), "r")


NO_FRAMING = (
    "the value has no Confluent framing: it must begin with 00 and the schema id, unless a"
    " header has the id"
)


def schema_of(key: SchemaKey, /) -> WriterSchema:
    if key == 3:
        raise UnknownSchema("not there")
    return alone(str(key))


def use(_: SchemaKey, schema: WriterSchema, /) -> ReadBodies:
    mark = schema.parts[0].content.decode()

    def read(bodies: Sequence[bytes]) -> tuple[pa.Table, Rejected]:
        rejected = [
            (index, RecordRejected(RejectionReason.WRONG_TYPE, "bad"))
            for index, body in enumerate(bodies)
            if body == b"bad"
        ]
        texts = [mark + body.decode() for body in bodies if body != b"bad"]
        return pa.table({"a": texts}, schema=RECORD.arrow_schema()), rejected

    return read


def of(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


def test_each_value_is_read_by_its_schema_and_keeps_its_place() -> None:
    decoder = FramedDecoder(RECORD, schema_of, use)
    values = [of(2, b"a"), of(1, b"b"), of(2, b"bad"), of(3, b"c"), b"{}", of(2, b"d"), of(1, b"e")]
    table, rejected = decoder.decode(values)
    assert table.column("a").to_pylist() == ["2a", "1b", "2d", "1e"]
    assert [(index, why.reason.value, str(why)) for index, why in rejected] == [
        (2, "wrong_type", "bad"),
        (3, "unknown_schema", "schema id 3: not there"),
        (4, "unknown_schema", NO_FRAMING),
    ]


def test_one_schema_or_no_values_make_one_table() -> None:
    decoder = FramedDecoder(RECORD, schema_of, use)
    assert decoder.decode([of(1, b"a"), of(1, b"b")])[0].to_pylist() == [{"a": "1a"}, {"a": "1b"}]
    assert decoder.decode([]) == (RECORD.arrow_schema().empty_table(), [])
