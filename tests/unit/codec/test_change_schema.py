"""``codec.change_schema``: an envelope has a row, and a row an envelope."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.codec.change_schema import change_schema, is_envelope
from anabranch.codec.record_schema import RecordSchema, from_avro
from anabranch.protocol.errors import ConfigurationError
from harness.avro_schemas import field, record_of
from harness.debezium import avro_schema

ROW = [field("id", "long"), field("name", "string")]


def record(*fields: dict[str, Any]) -> RecordSchema:
    return from_avro(record_of(*fields), "r")


def test_a_row_gets_an_envelope() -> None:
    row = record(*ROW)
    found = change_schema(row)
    assert not is_envelope(row)
    assert [field.name for field in found.envelope.fields] == ["before", "after", "op", "source"]
    assert found.envelope.fields[1].inner == row.fields
    assert [field.name for field in found.rows.fields] == ["id", "name", "op"]
    # A delete may lack all but the key.
    assert [field.nullable for field in found.rows.fields] == [True, True, False]
    assert all(field.has_default for field in found.envelope.fields[0].inner)
    assert found.has_time


def test_an_envelope_as_it_is_registered_has_a_row() -> None:
    envelope = from_avro(avro_schema(), "customers")
    found = change_schema(envelope)
    assert is_envelope(envelope)
    assert [field.name for field in found.rows.fields] == ["id", "name", "city", "op"]
    assert [field.name for field in found.envelope.fields] == ["before", "after", "op", "source"]
    assert [field.name for field in found.envelope.fields[3].inner] == ["ts_ms"]
    assert found.has_time


@pytest.mark.parametrize("source", [[], [field("source", record_of(*ROW, name="s"))]])
def test_an_envelope_may_have_no_time(source: list[dict[str, Any]]) -> None:
    after = field("after", record_of(*ROW, name="v"))
    found = change_schema(record(after, field("op", "string"), *source))
    assert not found.has_time
    assert [field.name for field in found.envelope.fields] == ["before", "after", "op"]


def test_a_field_after_alone_makes_no_envelope() -> None:
    assert not is_envelope(record(field("after", "long"), field("op", "int")))
    nested = record_of(*ROW, name="v")
    assert not is_envelope(record(field("after", nested)))


def test_a_row_has_no_column_of_the_name_that_is_added() -> None:
    with pytest.raises(ConfigurationError, match="the row has a column op, which `cdc` adds"):
        change_schema(record(*ROW, field("OP", "string")))
