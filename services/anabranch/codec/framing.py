"""Confluent framing: how a value names the schema of a registry that it was written with.

The framing is a prefix of the value: 0 and four bytes of id, or 1 and sixteen bytes of GUID. Newer
serializers put the same bytes into a header of the record and leave the value as it is; the bytes
of the header before those of the value are a framed value again, which is all that decoders know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from anabranch.codec.guards import Rejected
from anabranch.codec.writer_schema import SchemaKey, WriterSchema, shown_key
from anabranch.protocol.errors import (
    ConfigurationError,
    RecordRejected,
    RejectionReason,
    UnknownSchema,
)

VALUE_SCHEMA_ID: Final = "__value_schema_id"
"""Header with the framing of a record's value."""
KEY_SCHEMA_ID: Final = "__key_schema_id"
"""Header with the framing of a record's key."""
ID_BYTES: Final = 5
GUID_BYTES: Final = 17
HEADER_BYTES_MAX: Final = 128
"""Size of the header, in bytes: the framing, and for Protobuf the path of the message's type, of
which this allows a nesting of dozens.
"""
SCHEMA_IDS_MAX: Final = 1_000
"""Number of ids of a registry that are asked for at once, and of those that are remembered, usable
and others apart: more than the versions of any record. A writer of the topic can make up any number
of them; they must block neither memory nor the ids that producers use.
"""

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


Register = Callable[[str], int]
"""Function that returns the id that a registry gives to an Avro schema, under one subject."""


class SchemaOf(Protocol):
    """Lookup of the schema that a registry has under a key.

    Its ``ConfigurationError`` rejects the records with that key, for good unless it is an
    ``UnknownSchema``; whatever else it raises passes through.
    """

    def __call__(self, key: SchemaKey, /) -> WriterSchema:
        """Return the schema."""


class Use(Protocol[V_co]):
    """Compilation of a writer's schema into what reads its records. ConfigurationError: it cannot
    be read.
    """

    def __call__(self, key: SchemaKey, schema: WriterSchema, /) -> V_co:
        """Return what reads records of ``schema``."""


def framing_of(value: bytes) -> bytes:
    """Return the framing of ``value``; empty: it has none."""
    size = {b"\0": ID_BYTES, b"\1": GUID_BYTES}.get(value[:1], 0)
    return value[:size] if len(value) >= size else b""


def key_of(framing: bytes) -> SchemaKey:
    """Return the key that ``framing`` names."""
    if framing[0] == 0:
        return int.from_bytes(framing[1:], "big")
    digits = framing[1:].hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def framed(
    values: Sequence[bytes], headers: Sequence[bytes | None]
) -> tuple[list[bytes], Rejected]:
    """Return ``values`` with the framing of their headers in front, and (index, why) of each whose
    header is no framing. None: the value has no such header.
    """
    found: list[bytes] = []
    rejected: Rejected = []
    for index, (value, header) in enumerate(zip(values, headers, strict=True)):
        if header is None:
            found.append(value)
        elif framing_of(header) and len(header) <= HEADER_BYTES_MAX:
            found.append(header + value)
        else:
            why = (
                f"the header of its schema has {len(header)} bytes and begins with"
                f" {header[:1].hex() or 'none'}; it must be 00 and an id of 4 bytes, or 01 and a"
                " GUID of 16"
            )
            rejected.append((index, RecordRejected(RejectionReason.UNKNOWN_SCHEMA, why)))
    return found, rejected


class LearnedSchemas(Generic[V]):
    """Schemas of a registry by the framings that name them, each asked for once and compiled once.

    A schema that does not exist, or cannot be read as the record, is no error: records that were
    written with it are rejected. A schema that the registry does not have is asked for again with
    every batch; ``schema_of`` decides how often it asks the registry. Only the last
    ``SCHEMA_IDS_MAX`` unusable ones are remembered; those that the registry does not have are
    forgotten first. Usable ones are never forgotten.
    """

    def __init__(self, schema_of: SchemaOf, use: Use[V]) -> None:
        """Keep the arguments. ``use`` makes of a schema what reads its records."""
        self._schema_of, self._use = schema_of, use
        self.usable: dict[bytes, V] = {}
        self._unusable: dict[bytes, str] = {}
        """Framing -> why records with it are rejected. It stays so: a schema never changes."""
        self._missing: dict[bytes, str] = {}
        """The same of those whose schema the registry did not have when it was asked last."""

    def learn(self, framings: Iterable[bytes]) -> list[bytes]:
        """Ask for the schemas of ``framings`` that are not known yet; return those that are usable
        from now on.

        Raises:
            AnabranchError: as ``schema_of``, for want of an answer.
        """
        found = sorted(set(framings) - self.usable.keys() - self._unusable.keys())
        self._forget(set(found))
        again = [framing for framing in found if framing in self._missing]
        new = [framing for framing in found if framing not in self._missing]
        # Ids grow: those that producers use are below most that are made up, and are asked first.
        asked = new[:SCHEMA_IDS_MAX] if len(self.usable) < SCHEMA_IDS_MAX else []
        learned = []
        # The registry may have learned those that it did not have.
        for framing in [*again, *asked]:
            key = key_of(framing)
            try:
                self.usable[framing] = self._use(key, self._schema_of(key))
            except UnknownSchema as error:
                self._missing[framing] = "; ".join(str(error).splitlines())
                continue
            except ConfigurationError as error:
                self._unusable[framing] = "; ".join(str(error).splitlines())
            else:
                learned.append(framing)
            self._missing.pop(framing, None)
        return learned

    def _forget(self, in_use: set[bytes]) -> None:
        """Forget the oldest of those that are of no use, except ``in_use``, above the limit."""
        above = len(self._missing) + len(self._unusable) - SCHEMA_IDS_MAX
        for kept in (self._missing, self._unusable):
            for framing in [each for each in kept if each not in in_use][: max(0, above)]:
                del kept[framing]
                above -= 1

    def why_not(self, framing: bytes) -> str:
        """Return why records with ``framing``, which is not usable, are rejected."""
        why = {**self._unusable, **self._missing}.get(
            framing, f"{SCHEMA_IDS_MAX} others came with it, more than a source looks up at once"
        )
        return f"{shown_key(key_of(framing))}: {why}"
