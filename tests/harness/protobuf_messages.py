"""Protobuf schemas from the text of ``.proto`` files, and messages of them."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from anabranch.adapters.protobuf_files import file_of, with_built_in
from anabranch.codec.writer_schema import SchemaDocument, WriterSchema


@cache
def schema_of(text: str, *imported: tuple[str, str]) -> WriterSchema:
    """Return the schema of ``text``, which imports the files (name, text) of ``imported``."""
    before: list[SchemaDocument] = []
    for name, content in imported:
        before.append(file_of(name, content, before))
    return WriterSchema(with_built_in([*before, file_of("schema.proto", text, before)]))


@cache
def message_class(schema: WriterSchema, name: str) -> Any:
    """Return the class of the message type ``name``."""
    pool = DescriptorPool()
    for part in schema.parts:
        pool.AddSerializedFile(part.content)
    return GetMessageClass(pool.FindMessageTypeByName(name))
