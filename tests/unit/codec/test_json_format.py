from __future__ import annotations

from typing import NoReturn

import pyarrow as pa

from anabranch.codec.json_format import JsonFormat
from anabranch.codec.record_schema import from_avro
from harness.avro_schemas import field, record_of

RECORD = from_avro(record_of(field("a", "int")), "r")


def unasked(_: object) -> NoReturn:
    raise AssertionError


def test_a_registry_has_no_part_in_it() -> None:
    form = JsonFormat()
    decoder = form.decoder(RECORD, "ignore", unasked)
    table = decoder.decode([b'{"a":1,"b":2}'])[0]
    assert table.to_pylist() == [{"a": 1}]
    assert form.encoder(table.schema, "out", unasked).encode(table) == [b'{"a":1}']


def test_records_in_json_stay_as_they_are() -> None:
    lines = [b'{"a": 1}', b'{"b":2, "a":1}']
    assert JsonFormat().from_json(RECORD, unasked)(lines) == lines


def test_what_a_record_has_not_is_rejected_where_that_is_wanted() -> None:
    assert JsonFormat.has_extra_fields
    table, rejected = JsonFormat().decoder(RECORD, "reject", None).decode([b'{"a":1,"b":2}'])
    assert (table, [index for index, _ in rejected]) == (
        pa.table({"a": []}, schema=RECORD.arrow_schema()),
        [0],
    )
