"""Signatures of records of a boundary log, for readers of other owners: the rights on a topic say
which participant may write it, not which one did, and whoever runs the cluster may do anything.

Signed is a record's value together with the name of its topic, so it counts in no other one. What
a record says of its blocks - how many rows, which digest - is signed with it. A record that is
written a second time changes nothing by the rules of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from anabranch.codec.boundary_records import Headers
from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError
from anabranch.protocol.federation.contract_log import VerifyAt
from anabranch.protocol.federation.published_keys import PublishedKeys
from anabranch.protocol.federation.statements import SIGNATURE_BYTES, Signature

SIGNATURE_HEADER: Final = "anabranch-signature"
SIGNER_HEADER: Final = "anabranch-signed-by"
"""Header with the participant and the id of the key that verifies the signature. A record whose
header names another participant's key counts as unsigned.
"""
_SIGNER_BYTES_MAX: Final = 400

Sign = Callable[[bytes], Signature]
"""Function from a message to its signature."""


def signed(topic: str, value: bytes, sign: Sign) -> list[tuple[str, bytes]]:
    """Return the headers to write with ``value``."""
    made = sign(signed_message(topic, value))
    return [
        (SIGNER_HEADER, f"{made.participant}/{made.key_id}".encode()),
        (SIGNATURE_HEADER, made.value),
    ]


def signature_of(headers: Headers) -> Signature:
    """Return the signature in the headers, which is not verified yet.

    Raises:
        RemoteProtocolError: no signature, or more than one.
    """
    found = [header for header in headers if header[0] in (SIGNER_HEADER, SIGNATURE_HEADER)]
    values = dict(found)
    signer, value = values.get(SIGNER_HEADER), values.get(SIGNATURE_HEADER)
    if len(found) != 2 or signer is None or value is None or len(value) != SIGNATURE_BYTES:
        raise RemoteProtocolError("it is not signed")
    if len(signer) > _SIGNER_BYTES_MAX:
        raise RemoteProtocolError("it is signed by a name that is longer than any of ours")
    participant, _, key_id = signer.decode(errors="replace").partition("/")
    return Signature(participant, key_id, value)


def signed_message(topic: str, value: bytes | None) -> bytes:
    """Return the bytes that a record's signature covers."""
    return b"anabranch.boundary.1\0" + topic.encode() + b"\0" + (value or b"")


def verifier(keys: PublishedKeys) -> VerifyAt:
    """Return the function by which the rules check whether a key that was valid at a time made a
    signature.
    """

    def verify(signature: Signature, message: bytes, at_ms: int) -> bool:
        public = keys.find(signature.participant, signature.key_id, at_ms)
        return public is not None and by_one_of([public])(message, signature.value)

    return verify


def by_one_of(keys: Collection[bytes]) -> Callable[[bytes, bytes], bool]:
    """Return a function (message, signature) that tells whether one of these Ed25519 public keys
    made the signature.

    Raises:
        ConfigurationError: one of them is no key.
    """
    # Here, not above: of the many who read boundary logs few have to do with another owner's.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        known = [Ed25519PublicKey.from_public_bytes(key) for key in keys]
    except ValueError as error:
        raise ConfigurationError(f"a key of a binding is not valid: {error}") from None

    def verify(message: bytes, signature: bytes) -> bool:
        for key in known:
            try:
                key.verify(signature, message)
            except InvalidSignature:
                continue
            return True
        return False

    return verify
