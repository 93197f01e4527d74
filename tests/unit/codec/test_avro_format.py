from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from anabranch.codec.avro_format import AvroFormat
from anabranch.codec.record_schema import from_avro
from anabranch.codec.writer_schema import SchemaKey, WriterSchema
from anabranch.protocol.errors import Unavailable
from harness.avro_schemas import field, record_of
from harness.registries import alone

AVRO: dict[str, Any] = record_of(
    field("a", "int"), field("s", ["string", "null"], default="none"), schema_id=7
)
RECORD = from_avro(AVRO, "r")
WITHOUT_ID = {key: value for key, value in AVRO.items() if key != "schema_id"}
ROWS = [{"a": 1, "s": "x"}, {"a": -2, "s": None}, {"a": 3, "s": "none"}]
TABLE = pa.Table.from_pylist(ROWS, schema=RECORD.arrow_schema())
LINES = [b'{"a":1,"s":"x"}', b'{"a":-2,"s":null}', b'{"more":[],"a":3}']


class Registry:
    """Gives one id to all schemas."""

    def __init__(self, schema_id: int) -> None:
        self.schema_id = schema_id
        self.registered: list[dict[str, Any]] = []
        self.lookups: list[SchemaKey] = []

    def register(self, schema: str) -> int:
        self.registered.append(json.loads(schema))
        return self.schema_id

    def schema_of(self, key: SchemaKey, /) -> WriterSchema:
        self.lookups.append(key)
        return alone(json.dumps(self.registered[0]))


def test_records_in_json_become_values_that_the_decoder_reads() -> None:
    form, registry = AvroFormat(), Registry(9)
    for register, schema_of, framing in (
        (None, None, b"\0\0\0\0\7"),
        (registry.register, registry.schema_of, b"\0\0\0\0\x09"),
    ):
        made = form.from_json(RECORD, register)
        values = made(LINES)
        assert {value[:5] for value in values} == {framing}
        table, rejected = form.decoder(RECORD, "ignore", schema_of).decode(values)
        assert (table.to_pylist(), rejected) == (ROWS, [])
        assert made([]) == []
    assert (registry.registered, registry.lookups) == ([WITHOUT_ID], [9])


def test_an_outputs_schema_is_registered_without_an_id_of_ours() -> None:
    form, registry = AvroFormat(), Registry(9)
    values = form.encoder(TABLE.schema, "r", registry.register).encode(TABLE)
    assert {value[:5] for value in values} == {b"\0\0\0\0\x09"}
    (schema,) = registry.registered
    assert (schema["name"], "schema_id" in schema) == ("r", False)
    found = form.decoder(RECORD, "ignore", registry.schema_of).decode(values)[0]
    assert found.to_pylist() == ROWS
    assert form.encoder(TABLE.schema, "out", None).encode(TABLE)[0][:5] == b"\0\0\0\0\1"


def test_a_registry_that_does_not_answer_is_not_taken_for_an_answer() -> None:
    lookups = []

    def away(schema_id: SchemaKey, /) -> WriterSchema:
        lookups.append(schema_id)
        raise Unavailable("away")

    decoder = AvroFormat().decoder(RECORD, "ignore", away)
    for _ in range(2):
        with pytest.raises(Unavailable):
            decoder.decode([b"\0\0\0\0\5\2\0\2x"])
    assert lookups == [5, 5]
