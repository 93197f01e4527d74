"""Confluent framing: the bytes by which a value names the registry schema that it was written with.

The framing is a prefix of the value: 0 and four bytes of id, or 1 and sixteen bytes of GUID. Newer
serializers put the same bytes into a header of the Kafka record and leave the value unframed.
``framed`` puts the header's bytes before the value again, so that decoders know only one form.
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
"""Maximum number of registry ids that are looked up at once, and of usable and of unusable ids that
are remembered: more than the versions of any record. Writers can invent any number of ids, which
must neither exhaust memory nor displace the ids that producers use.
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
    """Function that compiles a writer's schema into a reader of its records. Raises
    ConfigurationError if the schema cannot be read as the record.
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
    """Registry schemas by the framings that name them, each looked up and compiled once.

    A schema that does not exist, or cannot be read as the record, is no error: records that were
    written with it are rejected. A schema that the registry does not have is asked for again with
    every batch; ``schema_of`` decides how often it asks the registry. Only the last
    ``SCHEMA_IDS_MAX`` unusable ones are remembered; those that the registry does not have are
    forgotten first. Usable ones are never forgotten.
    """

    def __init__(self, schema_of: SchemaOf, use: Use[V]) -> None:
        """Keep the arguments. ``use`` compiles a schema into a reader of its records."""
        self._schema_of, self._use = schema_of, use
        self.usable: dict[bytes, V] = {}
        self._unusable: dict[bytes, str] = {}
        """Reason to reject records, by framing. It never changes, since a schema never changes."""
        self._missing: dict[bytes, str] = {}
        """Reason to reject records, by framing, for schemas that the registry did not have at the
        last lookup.
        """

    def learn(self, framings: Iterable[bytes]) -> list[bytes]:
        """Look up the schemas of ``framings`` that are not known yet. Return the framings that have
        become usable.

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
        """Forget the oldest unusable framings above the limit, except those ``in_use``."""
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
