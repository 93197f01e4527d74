"""What is asked of others and kept by them: the index in Redis, the schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Index(Protocol):
    """Quick look-ups, never the truth: every method may find nothing, and every caller must do
    without (docs/adr/0004).

    All methods raise Unavailable when the index cannot be reached within a fraction of a second.
    """

    def put(self, key: str, fields: Mapping[str, str], *, expire_ms: int | None = None) -> None:
        """Replace the hash at ``key`` as a whole."""

    def get(self, key: str) -> dict[str, str]:
        """The hash at ``key``; empty if there is none."""

    def delete(self, key: str) -> None:
        """Forget ``key``."""

    def keys(self, prefix: str) -> list[str]:
        """Keys that start with ``prefix``, sorted."""

    def rank(self, key: str, member: str, score: float) -> None:
        """Add or move ``member`` in the sorted set at ``key``."""

    def ranked(
        self, key: str, low: float, high: float, *, count_max: int = 1_000
    ) -> list[tuple[str, float]]:
        """Members with ``low <= score <= high``, ascending."""

    def unrank_below(self, key: str, score: float) -> int:
        """Remove members with a score below ``score``; how many."""

    def close(self) -> None:
        """Idempotent."""


class SchemaRegistry(Protocol):
    """Schemas of records by id, kept by somebody else. What it says of an id never changes."""

    def schema(self, schema_id: int) -> str:
        """The Avro schema under ``schema_id``, as text.

        Raises:
            UnknownSchema: there is none now.
            ConfigurationError: it does not stand for itself, or is not Avro; the text says which.
            Unavailable: no answer.
        """

    def register(self, subject: str, schema: str) -> int:
        """The id of an Avro schema under ``subject``; the same for the same schema, whoever asks.

        Raises:
            ConfigurationError: the registry rejects it, as by the subject's compatibility rule.
            Unavailable: no answer.
        """
