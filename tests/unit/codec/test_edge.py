from __future__ import annotations

import json

import pyarrow as pa
import pytest

from anabranch.codec.edge import Decoder, Encoder, Key
from anabranch.codec.record_schema import from_avro
from anabranch.protocol.errors import ConfigurationError, RejectionReason
from anabranch.protocol.limits import RECORD_BYTES_MAX
from harness.avro_schemas import field, record_of
from harness.registries import alone

RECORD = from_avro(record_of(field("a", "int"), field("s", "string")), "r")
TABLE = pa.table({"a": [1, 2, 3], "s": ["x", "y", "z"]}, schema=RECORD.arrow_schema())


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_all_values_or_the_places_of_those_that_are_rows(kind: str) -> None:
    values = Encoder(TABLE.schema, kind).values(TABLE)
    decoder = Decoder(RECORD, kind)
    found = decoder.decode(values)
    assert (found.table, found.rows, found.rejected) == (TABLE, None, [])
    found = decoder.decode([values[0], b"?", values[1]])
    assert (found.table, found.rows) == (TABLE.slice(0, 2), [0, 2])
    found = decoder.decode(
        [None, values[0], b"", b"?", values[1], b"x" * (RECORD_BYTES_MAX + 1), values[2]]
    )
    assert (found.table, found.rows) == (TABLE, [1, 4, 6])
    assert [(index, error.reason.value) for index, error in found.rejected] == [
        (0, "null_value"),
        (2, "empty_value"),
        (3, f"not_{kind}"),
        (5, "too_large"),
    ]
    assert decoder.decode([]).table.num_rows == 0
    nothing = decoder.decode([None])
    assert (nothing.table.num_rows, nothing.rows, nothing.rejected[0][1].reason) == (
        0,
        [],
        RejectionReason.NULL_VALUE,
    )


def test_a_key_is_a_compact_object_of_its_columns() -> None:
    encoder = Encoder(TABLE.schema, "json", Key(["s", "a"]))
    assert (encoder.keys(TABLE)[0], encoder.values(TABLE)[0]) == (
        b'{"s":"x","a":1}',
        b'{"a":1,"s":"x"}',
    )
    keys = Encoder(TABLE.schema, "avro", Key(["a"])).keys(TABLE)
    assert keys == [b'{"a":1}', b'{"a":2}', b'{"a":3}']
    assert Encoder(TABLE.schema, "avro").keys(TABLE) == [None, None, None]


def test_columns_that_are_not_asked_for_are_left_out() -> None:
    wide = TABLE.append_column("event_time", pa.array([1, 2, 3]))
    assert Encoder(TABLE.schema, "json").values(wide) == Encoder(TABLE.schema, "json").values(TABLE)


def test_a_key_column_that_is_not_there_is_rejected() -> None:
    with pytest.raises(
        ConfigurationError, match="key column b is not a column of the output; there are a, s"
    ):
        Encoder(TABLE.schema, "json", Key(["a", "b"]))


def test_the_schema_id_may_stand_in_a_header_and_others_are_not_disturbed() -> None:
    schemas: dict[int, str] = {}

    def register(schema: str) -> int:
        schemas[9] = schema
        return 9

    first, second, third = Encoder(TABLE.schema, "avro", name="r", register=register).values(
        pa.concat_tables([TABLE, TABLE.slice(0, 1)]).slice(0, 3)
    )
    decoder = Decoder(RECORD, "avro", schema_of=lambda key: alone(schemas[int(key)]))
    values = [first, None, second[5:], b"", third[5:], third]
    ids = [None, b"\0\0\0\0\x09", second[:5], None, b"x", None]
    decoded = decoder.decode(values, ids)
    assert decoded.rows == [0, 2, 5]
    assert decoded.size_bytes == sum(len(value or b"") for value in values)
    assert [(index, why.reason.value) for index, why in decoded.rejected] == [
        (1, "null_value"),
        (3, "empty_value"),
        (4, "unknown_schema"),
    ]
    all_good = decoder.decode([first[5:], second[5:]], [first[:5], second[:5]])
    assert (all_good.table.num_rows, all_good.rejected) == (2, [])
    assert Decoder(RECORD, "json").decode([b'{"a":1,"s":"x"}'], [b"\0\0\0\0\x09"]).rows is None


def test_a_key_has_a_format_and_a_schema_of_its_own() -> None:
    schemas: list[str] = []

    def register(schema: str) -> int:
        schemas.append(schema)
        return len(schemas) + 8

    encoder = Encoder(TABLE.schema, "json", Key(["a"], "avro", register), name="o-1")
    assert encoder.keys(TABLE) == [b"\0\0\0\0\x09" + body for body in (b"\2", b"\4", b"\6")]
    (schema,) = map(json.loads, schemas)
    assert (schema["name"], [field["name"] for field in schema["fields"]]) == ("o_1_key", ["a"])
    assert encoder.values(TABLE)[0] == b'{"a":1,"s":"x"}'
