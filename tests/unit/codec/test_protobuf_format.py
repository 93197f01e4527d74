"""Protobuf as a format of sources."""

from __future__ import annotations

import pytest

from anabranch.codec.formats import FORMATS
from anabranch.codec.protobuf_format import ProtobufFormat
from anabranch.codec.record_schema import from_avro
from anabranch.protocol.errors import ConfigurationError
from harness.protobuf_messages import schema_of

RECORD = from_avro({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}, "r")
SCHEMA = schema_of('syntax = "proto3"; message r { int32 a = 1; }')


def test_it_reads_with_a_registry() -> None:
    form = FORMATS["protobuf"]
    assert isinstance(form, ProtobufFormat)
    assert form.schema_kind == "PROTOBUF"
    decoder = form.decoder(RECORD, "ignore", lambda _: SCHEMA)
    table, rejected = decoder.decode([b"\0\0\0\0\7" + b"\0\x08\1"])
    assert (table.to_pylist(), rejected) == ([{"a": 1}], [])


def test_it_does_not_read_without_one() -> None:
    with pytest.raises(ConfigurationError, match="format protobuf needs the registry"):
        ProtobufFormat().decoder(RECORD, "ignore", None)
