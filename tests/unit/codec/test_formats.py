from __future__ import annotations

import pytest

from anabranch.codec.formats import FORMATS
from anabranch.codec.record_schema import from_avro
from harness.avro_schemas import field, record_of

RECORD = from_avro(record_of(field("a", "int"), field("s", "string")), "r")


@pytest.mark.parametrize("name", [name for name, each in FORMATS.items() if each.is_written])
def test_what_is_sent_and_what_is_written_is_read_again(name: str) -> None:
    form = FORMATS[name]
    sent = form.from_json(RECORD, None)([b'{"a":1,"s":"x"}', b'{"a":-2,"s":""}'])
    decoder = form.decoder(RECORD, "ignore", None)
    table, rejected = decoder.decode(sent)
    assert rejected == []
    assert table.to_pylist() == [{"a": 1, "s": "x"}, {"a": -2, "s": ""}]
    assert decoder.decode(form.encoder(table.schema, "out", None).encode(table)) == (table, [])
