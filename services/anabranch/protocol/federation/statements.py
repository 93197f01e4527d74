"""The bytes that a participant signs.

Theory of operation. A signature is over bytes, a record is made of values. Each value has exactly
one encoding, which says its type and its length, so no two statements share their bytes. A
statement begins with what it is, so a signature of an offer is none of a contract. Each field goes
with its name, so a field that is added or moved makes other bytes. Keys and curves are the
adapter's business: here a signature is bytes, and verifying is a function that is passed in.

Encoding of a value: one letter for its type, its length as eight bytes (the most significant
first), then its content.
    N  none, empty
    B  boolean, one byte
    I  whole number, decimal digits with ``-`` where negative
    S  text as UTF-8
    Y  bytes
    T  sequence, its encoded values one after the other
A statement is the sequence of its kind and, field by field, name and value; a record inside it has
no kind, since its field says what it is.

Invariants:
    FS1  equal statements have equal bytes, and different ones different bytes.
    FS2  a signature counts for one kind of statement only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from anabranch.protocol.errors import LocalProtocolError

PREFIX: Final = b"anabranch statement 1\n"
"""Beginning of the bytes that are signed. No other protocol that uses the same key signs bytes with
it.
"""

# Of Ed25519.
SIGNATURE_BYTES: Final = 64


class Statement(Protocol):
    """Frozen dataclass that names the kind of statement it is."""

    SIGNED_AS: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature with the participant and the key that made it."""

    participant: str
    key_id: str
    value: bytes


Verify = Callable[[Signature, bytes], bool]
"""Whether a key that the participant had published, and had not revoked, made this signature
of these bytes.
"""


def signed_bytes(statement: Statement) -> bytes:
    """Return the bytes that a signature of ``statement`` covers (FS1, FS2)."""
    return PREFIX + _framed(b"T", _value(statement.SIGNED_AS) + _fields(statement))


def is_signed(statement: Statement, participant: str, signature: Signature, verify: Verify) -> bool:
    """Return whether ``signature`` is that of ``participant`` under ``statement``."""
    if signature.participant != participant or len(signature.value) != SIGNATURE_BYTES:
        return False
    return verify(signature, signed_bytes(statement))


def _fields(record: object) -> bytes:
    """Return the names and values of a dataclass's fields, in its order."""
    named = [(field.name, getattr(record, field.name)) for field in dataclasses.fields(record)]  # type: ignore[arg-type]
    return b"".join(_value(name) + _value(value) for name, value in named)


def _value(value: object) -> bytes:
    match value:
        case None:
            return _framed(b"N", b"")
        case bool():
            return _framed(b"B", b"\x01" if value else b"\x00")
        case int():
            return _framed(b"I", str(value).encode())
        case str():
            return _framed(b"S", value.encode())
        case bytes():
            return _framed(b"Y", value)
        case tuple():
            return _framed(b"T", b"".join(map(_value, value)))
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _framed(b"T", _fields(value))
        case _:
            raise LocalProtocolError(f"{type(value).__name__} has no encoding to be signed")


def _framed(letter: bytes, content: bytes) -> bytes:
    return letter + len(content).to_bytes(8, "big") + content
