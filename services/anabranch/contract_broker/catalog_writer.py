"""Writer of a pipeline's entry in its participant's catalog. It renews the entry before its lease
expires.

It does not read the catalog: a lost entry, or one of another process that is newer, is followed by
the next. After a crash the lease runs on until a new process writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.codec import federation_records
from anabranch.pipeline.catalog_entry import LEASE_MS, entry_of
from anabranch.ports import LogWriter, TopicPartition
from anabranch.protocol.errors import LocalProtocolError, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from anabranch.adapters.signing import SigningKey
    from anabranch.federation.log_reader import FederationReader
    from anabranch.pipeline.model import Federation
    from anabranch.process.frame import ServiceContext

EVERY_MS: Final = LEASE_MS // 3
"""Interval between writes of the entry, in ms: a third of the lease, so that two may be lost."""


class CatalogWriter:
    """Writer of one pipeline's entry. Not thread-safe."""

    def __init__(
        self, context: ServiceContext, federation: Federation, topic: str, key: SigningKey
    ) -> None:
        """Prepare the writer; no broker is contacted yet."""
        self._context = context
        self._federation = federation
        self._key = key
        self._at = TopicPartition(topic, 0)
        self._writer: LogWriter | None = None
        self._next_ms = 0
        self._last_ms = 0
        """Time in the last entry; the time of the next entry is later."""
        self.waiting_for = ""
        """Reason why the pipeline is not listed; empty if it is."""

    def refresh(self, reader: FederationReader) -> None:
        """Write the entry, if it is due. ``reader``: knows the valid keys."""
        now_ms = self._context.clock.monotonic_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + EVERY_MS
        before, self.waiting_for = self.waiting_for, self._write(reader)
        if self.waiting_for and self.waiting_for != before:
            self._context.logger.warning("not_listed", why=self.waiting_for)

    def close(self) -> None:
        """Close the writer. Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, reader: FederationReader) -> str:
        """Write the entry. Return why it was not written; empty if it was."""
        now_ms = self._context.clock.now_ms()
        key, topic = self._key, self._at.topic
        pipeline = self._context.pipeline
        self._last_ms = max(now_ms, self._last_ms + 1)
        entry = entry_of(pipeline, self._federation, key.public, self._last_ms)
        try:
            reader.read_keys()
            if reader.keys.find(key.participant, key.key_id, now_ms) is None:
                return (
                    f"key {key.key_id} of {key.participant} is not published, or revoked (anabranch"
                    " keys publish)"
                )
            # A producer blocks on a missing topic.
            if self._writer is None and not self._exists(topic):
                return (
                    f"there is no topic {topic}, which `anabranch keys publish` creates, or this"
                    " principal may not see it"
                )
            value = federation_records.encode(entry, key.sign(entry))
            self._writer = self._writer or self._context.log.writer()
            self._writer.send(self._at, value, key=pipeline.name.encode())
            self._writer.flush()
        except (OutcomeUnknown, Unavailable, LocalProtocolError) as error:
            self.close()
            return str(error)
        return ""

    def _exists(self, topic: str) -> bool:
        """Return whether the topic exists."""
        admin = self._context.log.admin()
        try:
            return bool(admin.partitions([topic]))
        finally:
            admin.close()
