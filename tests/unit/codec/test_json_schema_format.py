"""JSON with a JSON Schema as a format of sources."""

from __future__ import annotations

import pytest

from anabranch.codec.formats import FORMATS
from anabranch.codec.json_schema_format import JsonSchemaFormat
from anabranch.codec.record_schema import from_avro
from anabranch.protocol.errors import ConfigurationError
from harness.registries import alone

RECORD = from_avro({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}, "r")


def test_it_reads_with_a_registry() -> None:
    form = FORMATS["json_schema"]
    assert isinstance(form, JsonSchemaFormat)
    assert form.schema_kind == "JSON"
    decoder = form.decoder(RECORD, "ignore", lambda _: alone("{}"))
    table, rejected = decoder.decode([b"\0\0\0\0\7" + b'{"a":1}'])
    assert (table.to_pylist(), rejected) == ([{"a": 1}], [])


def test_it_does_not_read_without_one() -> None:
    with pytest.raises(ConfigurationError, match="format json_schema needs the registry"):
        JsonSchemaFormat().decoder(RECORD, "ignore", None)
