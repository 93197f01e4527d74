"""Ed25519 keys with which a participant signs, and the signatures that it makes.

A participant has several keys over time, each with an id. ``protocol.federation.published_keys``
decides which of the public ones count, and from when to when.
"""

from __future__ import annotations

from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.published_keys import KEY_BYTES
from anabranch.protocol.federation.statements import Signature, Statement, signed_bytes


class SigningKey:
    """Private key of a participant. Neither ``repr`` nor an error shows it."""

    def __init__(self, participant: str, key_id: str, secret: bytes) -> None:
        """Create a key from its 32 bytes.

        Raises:
            ConfigurationError: there are not 32 bytes.
        """
        if len(secret) != KEY_BYTES:
            raise ConfigurationError(
                f"signing key {key_id} of {participant}: {len(secret)} bytes, not {KEY_BYTES}"
            )
        self.participant, self.key_id = participant, key_id
        self._private = Ed25519PrivateKey.from_private_bytes(secret)

    @classmethod
    def generate(cls, participant: str, key_id: str) -> Self:
        """Create a random key."""
        return cls(participant, key_id, Ed25519PrivateKey.generate().private_bytes_raw())

    def __repr__(self) -> str:
        return f"SigningKey({self.participant!r}, {self.key_id!r})"

    @property
    def secret(self) -> bytes:
        """Secret of the key, 32 bytes, to be kept where only its owner reads."""
        return bytes(self._private.private_bytes_raw())

    @property
    def public(self) -> bytes:
        """Public key, 32 bytes."""
        return bytes(self._private.public_key().public_bytes_raw())

    def sign_message(self, message: bytes) -> Signature:
        """Sign bytes, such as a boundary record's."""
        return Signature(self.participant, self.key_id, bytes(self._private.sign(message)))

    def sign(self, statement: Statement) -> Signature:
        """Sign a statement."""
        return self.sign_message(signed_bytes(statement))
