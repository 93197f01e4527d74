"""Who is believed in the boundary log of another owner's stream: who has one of the keys that the
pipeline file names, or who has one that the federation's participants have published.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from anabranch.codec.signed_records import by_one_of
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import EventLog
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.statements import Signature
from anabranch.protocol.federation.stream_signers import OwnedStream
from anabranch.runtime.key_reader import KeyReader


class NamedKeys:
    """These keys, for ever, whosever they are."""

    def __init__(self, keys: Collection[bytes]) -> None:
        """Of Ed25519.

        Raises:
            ConfigurationError: one is no key.
        """
        self._verify = by_one_of(keys)

    def refresh(self) -> None:
        """There is nothing to be read."""

    def why_not(
        self, signature: Signature, message: bytes, at_ms: int, *, is_snapshot: bool
    ) -> str:
        """As of ``Judge``; time and kind do not matter."""
        del at_ms, is_snapshot
        if self._verify(message, signature.value):
            return ""
        return "its signature is none of the keys that the binding names"

    def close(self) -> None:
        """There is nothing to be closed."""


class PublishedSigners:
    """The owner, and those whom it has named, with the keys that they have published
    (``protocol.federation.stream_signers``). Not thread-safe.
    """

    def __init__(self, log: EventLog, topics: FederationTopics, stream: OwnedStream) -> None:
        """Reads what there is.

        Raises:
            Unavailable: no answer, or the owner has no log of keys, or it may not be seen.
        """
        self._topics, self._stream = topics, stream
        self._admin = log.admin()
        self._reader = KeyReader(log, topics)
        try:
            self._reader.follow([topics.keys(stream.owner)])
            self.refresh()
        except BaseException:
            self.close()
            raise

    def refresh(self) -> None:
        """Take the statements of the owner, and of those whom it has named, by now.

        Raises:
            Unavailable: no answer.
        """
        self._reader.read_to_end()
        signers = self._reader.signers.ever_named(self._stream)
        missing = {self._topics.keys(signer) for signer in signers} - self._reader.topics
        if missing and self._reader.follow(self._admin.partitions(sorted(missing))):
            self._reader.read_to_end()

    def may_sign(self, participant: str, at_ms: int) -> bool:
        """Whether records of this participant count at this time, as far as was read."""
        return self._reader.signers.may_sign(self._stream, participant, at_ms)

    def why_not(
        self, signature: Signature, message: bytes, at_ms: int, *, is_snapshot: bool
    ) -> str:
        """As of ``Judge``."""
        return self._reader.signers.why_not(
            self._stream, signature, message, at_ms, is_snapshot=is_snapshot
        )

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()
        self._admin.close()


def check_dated(log: EventLog, topic: str) -> None:
    """That the broker sets the times of a boundary log: else a thief could date records back to
    before the key was revoked.

    Raises:
        ConfigurationError: the writers set them.
        Unavailable: no answer, or there is no such topic, or its settings may not be seen.
    """
    with closing(log.admin()) as admin:
        if admin.settings(topic).get("message.timestamp.type") != "LogAppendTime":
            raise ConfigurationError(
                f"topic {topic} has not message.timestamp.type=LogAppendTime: whoever writes could"
                " date records at will, so no published key can be judged by them. Its owner has it"
                f" set: kafka-configs.sh --alter --entity-type topics --entity-name {topic}"
                " --add-config message.timestamp.type=LogAppendTime"
            )
