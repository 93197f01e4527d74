"""Judges of signatures in the boundary log of another owner's stream: by keys that the pipeline
file names, or by keys that the federation's participants have published.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from anabranch.codec.signed_records import by_one_of
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import EventLog
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.federation.statements import Signature
from anabranch.protocol.federation.stream_signers import OwnedStream
from anabranch.streams.key_reader import KeyReader, is_dated


class NamedKeys:
    """Judge that accepts records signed with any of the given keys, at any time."""

    def __init__(self, keys: Collection[bytes]) -> None:
        """Read the Ed25519 ``keys``.

        Raises:
            ConfigurationError: one is not a valid key.
        """
        self._verify = by_one_of(keys)

    def refresh(self) -> None:
        """Do nothing: the keys never change."""

    def why_not(
        self, signature: Signature, message: bytes, at_ms: int, *, is_snapshot: bool
    ) -> str:
        """Return why the record does not count, as ``Judge.why_not``; time and kind do not
        matter.
        """
        del at_ms, is_snapshot
        if self._verify(message, signature.value):
            return ""
        return "its signature is by none of the keys that the binding names"

    def close(self) -> None:
        """Do nothing: nothing is open."""


class PublishedSigners:
    """Judge that accepts records of the owner, and of participants that it has named, by their
    published keys (``protocol.federation.stream_signers``). Not thread-safe.
    """

    def __init__(self, log: EventLog, topics: FederationTopics, stream: OwnedStream) -> None:
        """Read the present statements.

        Raises:
            Unavailable: the broker does not answer, or the owner's key log does not exist, may not
                be read or has lost its first records.
            ConfigurationError: the broker does not set the times of the owner's key log.
        """
        owners = topics.keys(stream.owner)
        check_dated(log, owners)
        self._topics, self._stream = topics, stream
        self._admin = log.admin()
        self._reader = KeyReader(log, topics)
        try:
            self._reader.follow([owners])
            self.refresh()
        except BaseException:
            self.close()
            raise
        why = self._reader.left_out.get(owners)
        if why is not None:
            self.close()
            raise Unavailable(f"topic {owners} is ignored: {why}")

    def refresh(self) -> None:
        """Read the new statements of the owner and of the participants that it has named.

        Raises:
            Unavailable: no answer.
        """
        self._reader.read_to_end()
        signers = self._reader.signers.ever_named(self._stream)
        # What is left out is not asked for again: this runs before each fetch is judged.
        known = self._reader.topics | self._reader.left_out.keys()
        missing = {self._topics.keys(signer) for signer in signers} - known
        if missing and self._reader.follow(self._admin.partitions(sorted(missing))):
            self._reader.read_to_end()

    def may_sign(self, participant: str, at_ms: int) -> bool:
        """Return whether records of ``participant`` count at ``at_ms``, by the statements read
        so far.
        """
        return self._reader.signers.may_sign(self._stream, participant, at_ms)

    def why_not(
        self, signature: Signature, message: bytes, at_ms: int, *, is_snapshot: bool
    ) -> str:
        """Return why the record does not count, as ``Judge.why_not``."""
        return self._reader.signers.why_not(
            self._stream, signature, message, at_ms, is_snapshot=is_snapshot
        )

    def close(self) -> None:
        """Close the reader. Idempotent."""
        self._reader.close()
        self._admin.close()


def check_dated(log: EventLog, topic: str) -> None:
    """Check that the broker sets the timestamps of a boundary log, or of a log of keys. Otherwise
    a stolen key could sign records dated back to before its revocation, and an owner could revoke a
    key from before what it has signed.

    Raises:
        ConfigurationError: the writers set the timestamps.
        Unavailable: no answer, the topic does not exist, or its settings may not be read.
    """
    with closing(log.admin()) as admin:
        if not is_dated(admin, topic):
            raise ConfigurationError(
                f"topic {topic} lacks message.timestamp.type=LogAppendTime: its writers could date"
                " records at will, so published keys cannot be checked against them. Its owner must"
                f" set it: kafka-configs.sh --alter --entity-type topics --entity-name {topic}"
                " --add-config message.timestamp.type=LogAppendTime"
            )
