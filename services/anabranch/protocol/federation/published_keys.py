"""Public keys of participants, and the time for which each counts.

Theory of operation. Each participant has a log of its own, which only it may write. It publishes a
key there under an id, and revokes a key that it has lost. A signature is judged by the time at
which the broker appended the signed record: the key must have been published by then, and not
revoked. So all readers of the logs, now or years later, judge it alike, and settled sums
stay settled. The revocation stops a thief of the key; the participant answers for all that was
signed before it.

Invariants:
    FG1  a key counts from its publication on until its revocation, by the logs' times.
    FG2  an id has one key for ever, and a revoked one never counts again.
    FG3  a participant's log says nothing about keys of others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

KEY_BYTES: Final = 32
"""Length of a public key of Ed25519."""

KEY_ID_CHARACTERS_MAX: Final = 63
KEYS_MAX: Final = 1_000
"""Maximum number of keys of one participant: bounds what a foreign log can make a reader hold."""


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """Statement of a participant about a key of its own."""

    participant: str
    key_id: str
    public: bytes
    is_revoked: bool = False


@dataclass(frozen=True, slots=True)
class _Term:
    """Time for which a key counts, by the logs' times."""

    public: bytes
    from_ms: int
    until_ms: int | None = None


class PublishedKeys:
    """Log state of all logs of keys. Not thread-safe. A replay restores it after a crash."""

    def __init__(self) -> None:
        self._terms: dict[str, dict[str, _Term]] = {}

    def add(self, participant: str, word: PublishedKey, appended_ms: int) -> str:
        """Count a word in the log of ``participant``, in its order. Return why it does not count,
        or an empty text.
        """
        terms = self._terms.setdefault(participant, {})
        there = terms.get(word.key_id)
        if word.participant != participant:
            return "a key of somebody else"
        if len(word.public) != KEY_BYTES or not 0 < len(word.key_id) <= KEY_ID_CHARACTERS_MAX:
            return "not a key"
        if there is None and len(terms) >= KEYS_MAX:
            return "more keys than a participant has"
        if there is not None and there.public != word.public:
            return "another key has this id"
        if there is not None and there.until_ms is not None:
            return "revoked already"
        if there is not None and not word.is_revoked:
            return "published already"
        new = there or _Term(word.public, appended_ms)
        terms[word.key_id] = replace(new, until_ms=appended_ms) if word.is_revoked else new
        return ""

    def forget(self, participant: str) -> None:
        """Forget all statements of a participant: some of them can no longer be read, and one of
        these may have revoked a key.
        """
        self._terms.pop(participant, None)

    def find(self, participant: str, key_id: str, at_ms: int) -> bytes | None:
        """Return the key under this id that counted at this time (FG1)."""
        term = self._terms.get(participant, {}).get(key_id)
        if term is None or at_ms < term.from_ms:
            return None
        return term.public if term.until_ms is None or at_ms < term.until_ms else None

    def participants(self) -> list[str]:
        """Return the participants that have made statements about their keys."""
        return sorted(self._terms)

    def ids(self, participant: str, at_ms: int) -> list[str]:
        """Return the keys of a participant that counted at this time."""
        known = self._terms.get(participant, {})
        return sorted(key_id for key_id in known if self.find(participant, key_id, at_ms))
