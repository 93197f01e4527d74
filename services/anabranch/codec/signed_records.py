"""Signatures of records of a boundary log, for readers of other owners: the rights on a topic say
which participant may write it, not which one did, and whoever runs the cluster may do anything.

Signed is a record's value together with the name of its topic, so it counts in no other one. What
a record says of its blocks - how many rows, which digest - is signed with it. A record that is
written a second time changes nothing by the rules of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from anabranch.codec.boundary_records import Headers
from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError

SIGNATURE_HEADER = "anabranch-signature"
SIGNATURE_BYTES = 64
"""Of Ed25519."""

Sign = Callable[[bytes], bytes]
"""message -> signature."""
Verify = Callable[[bytes, bytes], bool]
"""(message, signature) -> whether one of the expected keys made it."""


def signed(topic: str, value: bytes, sign: Sign) -> tuple[str, bytes]:
    """The header to write with ``value``."""
    return SIGNATURE_HEADER, sign(_message(topic, value))


def check_signature(topic: str, value: bytes | None, headers: Headers, verify: Verify) -> None:
    """That the record of ``topic`` was signed by its owner.

    Raises:
        RemoteProtocolError: it was not.
    """
    found = [signature for name, signature in headers if name == SIGNATURE_HEADER]
    if len(found) != 1 or found[0] is None or len(found[0]) != SIGNATURE_BYTES:
        raise RemoteProtocolError("it is not signed")
    if not verify(_message(topic, value or b""), found[0]):
        raise RemoteProtocolError("its signature is none of the keys that the binding names")


def by_one_of(keys: Collection[bytes]) -> Verify:
    """Whether one of these public keys of Ed25519 made a signature.

    Raises:
        ConfigurationError: one of them is no key.
    """
    # Here, not above: of the many who read boundary logs few have to do with another owner's.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        known = [Ed25519PublicKey.from_public_bytes(key) for key in keys]
    except ValueError as error:
        raise ConfigurationError(f"a key of a binding is none: {error}") from None

    def verify(message: bytes, signature: bytes) -> bool:
        for key in known:
            try:
                key.verify(signature, message)
            except InvalidSignature:
                continue
            return True
        return False

    return verify


def _message(topic: str, value: bytes) -> bytes:
    return b"anabranch.boundary.1\0" + topic.encode() + b"\0" + value
