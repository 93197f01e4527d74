"""Schemas of a registry."""

from __future__ import annotations

from anabranch.codec.writer_schema import SchemaDocument, WriterSchema, shown_key


def test_a_schema_has_the_size_of_all_its_parts() -> None:
    assert WriterSchema((SchemaDocument("a", b"12"), SchemaDocument("", b"345"))).size_bytes == 5


def test_a_key_is_shown_as_what_it_is() -> None:
    assert shown_key(7) == "schema id 7"
    assert shown_key("0-1") == "schema GUID 0-1"
