"""Ed25519 keys: what a participant signs with, and what it checks the others' signatures by.

A participant has several keys over time, each with an id. Which of the public ones count, and from
when to when, is the business of ``protocol.federation.published_keys``.
"""

from __future__ import annotations

from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.published_keys import KEY_BYTES
from anabranch.protocol.federation.statements import Signature, Statement, signed_bytes


class SigningKey:
    """One private key of a participant. It shows itself nowhere: neither in ``repr`` nor in
    an error.
    """

    def __init__(self, participant: str, key_id: str, secret: bytes) -> None:
        """A key from its 32 bytes.

        Raises:
            ConfigurationError: they are not 32.
        """
        if len(secret) != KEY_BYTES:
            raise ConfigurationError(
                f"signing key {key_id} of {participant}: {len(secret)} bytes, not {KEY_BYTES}"
            )
        self.participant, self.key_id = participant, key_id
        self._private = Ed25519PrivateKey.from_private_bytes(secret)

    @classmethod
    def generate(cls, participant: str, key_id: str) -> Self:
        """A new one."""
        return cls(participant, key_id, Ed25519PrivateKey.generate().private_bytes_raw())

    def __repr__(self) -> str:
        return f"SigningKey({self.participant!r}, {self.key_id!r})"

    @property
    def secret(self) -> bytes:
        """Its 32 bytes, to be kept where nobody else reads."""
        return bytes(self._private.private_bytes_raw())

    @property
    def public(self) -> bytes:
        """What is published, 32 bytes."""
        return bytes(self._private.public_key().public_bytes_raw())

    def sign_message(self, message: bytes) -> Signature:
        """The participant's signature of bytes, such as a boundary record's."""
        return Signature(self.participant, self.key_id, bytes(self._private.sign(message)))

    def sign(self, statement: Statement) -> Signature:
        """The participant's signature of a statement."""
        return self.sign_message(signed_bytes(statement))
