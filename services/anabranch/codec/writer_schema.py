"""Schemas of a registry, as the registry hands them out, with the schemas that they refer to."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]
"""Kind of a schema, by its name in registries."""

SchemaKey = int | str
"""Name of a schema within a registry: its id, or its GUID as text with hyphens."""

REFERENCES_MAX: Final = 100
"""Maximum number of schemas that one schema refers to, indirectly too: each takes a request, and
all are parsed. More than the imports of any published schema that was seen.
"""


class SchemaDocument(NamedTuple):
    """Document of a schema: the schema itself, or one that it refers to.

    Attributes:
        name: Name by which other parts refer to it; of the schema itself it has no meaning.
        content: Text in UTF-8 of an Avro or JSON schema; of Protobuf a serialized
            ``FileDescriptorProto``.
    """

    name: str
    content: bytes


class WriterSchema(NamedTuple):
    """Schema that records were written with.

    Attributes:
        parts: Documents of the schema, each after those that it refers to; the last is the schema
            itself.
    """

    parts: tuple[SchemaDocument, ...]

    @property
    def size_bytes(self) -> int:
        """Total size of the documents, in bytes."""
        return sum(len(part.content) for part in self.parts)


def shown_key(key: SchemaKey) -> str:
    """Return ``key`` in words."""
    return f"schema id {key}" if isinstance(key, int) else f"schema GUID {key}"
