"""A federation on a log: topics, participants with keys, and what they say."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.adapters.signing import SigningKey
from anabranch.codec import federation_records
from anabranch.codec.catalog import topic_settings
from anabranch.federation.log_reader import FederationReader
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import EventLog, TopicPartition
from anabranch.protocol.federation.lookup import CatalogEntry
from anabranch.protocol.federation.published_keys import PublishedKey
from anabranch.protocol.federation.statements import Signature, Statement
from harness.markets import CONTRACT


class FederationWorld:
    """Participants north, south and the auditor, with one contract's topic, or several."""

    def __init__(
        self,
        log: EventLog,
        federation: str = "tolls",
        keys: Mapping[str, SigningKey] | None = None,
    ) -> None:
        """``keys``: by participant; None: new ones."""
        self.log, self.topics = log, FederationTopics(federation)
        self.keys = dict(keys or {})
        for name in ("north", "south", "auditor"):
            self.keys.setdefault(name, SigningKey.generate(name, "1"))
        self._contracts: set[str] = set()
        self.open(CONTRACT.contract_id)
        for key in self.keys.values():
            self.publish(key)

    def open(self, contract_id: str) -> None:
        """Create the log of a contract."""
        self._contracts.add(contract_id)
        self.make("contract", self.topics.contract(contract_id))

    def make(self, kind: str, topic: str, **config: str) -> None:
        settings = topic_settings(
            kind, topic, config={name.replace("_", "."): value for name, value in config.items()}
        )
        self.log.admin().create([settings])

    def publish(self, key: SigningKey, *, is_revoked: bool = False) -> None:
        topic = self.topics.keys(key.participant)
        self.make("keys", topic)
        word = PublishedKey(key.participant, key.key_id, key.public, is_revoked)
        self.write(topic, federation_records.encode_key(word))

    def say(self, by: str, *statements: Statement) -> None:
        """In the contract's log, with this participant's signature; where there is no such log, in
        the first one's.
        """
        for statement in statements:
            self.forge(statement, self.keys[by].sign(statement))

    def forge(self, statement: Statement, signature: Signature) -> None:
        name = getattr(statement, "contract_id", "")
        name = name if name in self._contracts else CONTRACT.contract_id
        topic = self.topics.contract(name)
        self.write(topic, federation_records.encode(statement, signature))

    def list_pipeline(
        self, by: str, entry: CatalogEntry, *, where: str = "", key: SigningKey | None = None
    ) -> None:
        """In a participant's catalog, with the signature of ``key``, else its own."""
        topic = self.topics.catalog(where or by)
        self.make("catalog", topic)
        value = federation_records.encode(entry, (key or self.keys[by]).sign(entry))
        self.write(topic, value, key=entry.pipeline.encode())

    def write(self, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
        writer = self.log.writer()
        try:
            for value in values:
                writer.send(TopicPartition(topic, 0), value, key=key)
            writer.flush()
        finally:
            writer.close()

    def reader(self) -> FederationReader:
        return FederationReader(self.log, self.topics, "auditor")
