"""Ed25519 keys: what a participant signs with, and what it checks the others' signatures by.

A participant has several keys over time, each with an id. It publishes the public ones, and revokes
those that it has lost. A signature by a key that is not published, or revoked, counts for nothing,
whenever it was made: whoever has the key could have made it.
"""

from __future__ import annotations

from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.statements import Signature, Statement, signed_bytes

KEY_BYTES = 32


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

    def sign(self, statement: Statement) -> Signature:
        """The participant's signature of a statement."""
        return Signature(
            self.participant, self.key_id, bytes(self._private.sign(signed_bytes(statement)))
        )


class KeyRing:
    """The public keys of all participants. Not thread-safe. Its ``verify`` is what the rules
    ask.
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], Ed25519PublicKey] = {}
        self._bytes: dict[tuple[str, str], bytes] = {}
        self._revoked: set[tuple[str, str]] = set()

    def publish(self, participant: str, key_id: str, public: bytes) -> bool:
        """Takes up a key; whether it counts. An id has one key for ever: another one under
        it, or one that was revoked, does not.
        """
        name = (participant, key_id)
        if (
            name in self._revoked
            or len(public) != KEY_BYTES
            or self._bytes.get(name, public) != public
        ):
            return False
        self._keys[name], self._bytes[name] = Ed25519PublicKey.from_public_bytes(public), public
        return True

    def revoke(self, participant: str, key_id: str) -> None:
        """The key counts no more, nor does any other under its id."""
        self._revoked.add((participant, key_id))
        self._keys.pop((participant, key_id), None)

    def verify(self, signature: Signature, message: bytes) -> bool:
        """Whether a published key of the participant made this signature of these bytes."""
        key = self._keys.get((signature.participant, signature.key_id))
        if key is None:
            return False
        try:
            key.verify(signature.value, message)
        except InvalidSignature:
            return False
        return True
