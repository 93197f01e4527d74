"""Lookups in other servers: the index in Redis, and the schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from anabranch.codec.writer_schema import SchemaKey, SchemaKind, WriterSchema


class Index(Protocol):
    """Fast lookups for people and tools, never the truth: every method may find nothing, and every
    caller must do without (docs/adr/0004). No service reads what an entry holds.

    All methods raise Unavailable if the index cannot be reached within a fraction of a second.
    """

    def put(self, key: str, fields: Mapping[str, str], *, expire_ms: int | None = None) -> None:
        """Replace the hash at ``key`` as a whole."""

    def delete(self, key: str) -> None:
        """Delete ``key``."""

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that start with ``prefix``, sorted."""

    def close(self) -> None:
        """Close the connection. Idempotent."""


class SchemaRegistry(Protocol):
    """Registry of record schemas by id and GUID, kept by others. A schema never changes."""

    def schema(self, key: SchemaKey, kind: SchemaKind) -> WriterSchema:
        """Return the schema under ``key``, with all that it refers to.

        Raises:
            UnknownSchema: the registry has none at present, or lacks one that it refers to.
            ConfigurationError: the schema is not of ``kind``, or exceeds a limit; the text says
                what it is.
            Unavailable: no answer.
        """

    def register(self, subject: str, schema: str) -> int:
        """Register an Avro schema under ``subject`` and return its id. Equal schemas get the same
        id.

        Raises:
            ConfigurationError: the registry rejects the schema, for example by the subject's
                compatibility rule.
            Unavailable: no answer.
        """
