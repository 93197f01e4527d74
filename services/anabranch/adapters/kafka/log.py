"""``ports.EventLog`` over a real Kafka."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.adapters.kafka.admin import KafkaLogAdmin
from anabranch.adapters.kafka.reader import KafkaLogReader
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.adapters.kafka.transactional import KafkaTransactionalWriter
from anabranch.adapters.kafka.writer import KafkaLogWriter


class KafkaEventLog:
    """A Kafka cluster. Holds no connection itself: every reader and writer has its own."""

    def __init__(
        self,
        address: str,
        *,
        client_id: str = "anabranch",
        delivery_timeout_ms: int = 30_000,
        request_timeout_ms: int = 10_000,
        transaction_timeout_ms: int = 60_000,
        security: Mapping[str, str] | None = None,
    ) -> None:
        """``address`` is ``host:port``, or several with commas; the rest as in ``KafkaSettings``. Nothing is contacted yet.

        Raises:
            ConfigurationError: an empty address, or a security option that is none.
        """
        self.settings = KafkaSettings(
            address,
            client_id=client_id,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            transaction_timeout_ms=transaction_timeout_ms,
            security=dict(security or {}),
        )

    def reader(self, *, committed: bool = True, headers: bool = True, timestamps: bool = True) -> KafkaLogReader:
        """A new reader. ``committed``: hides aborted and open transactions. Without ``headers`` and ``timestamps`` reading is faster."""
        return KafkaLogReader(self.settings, committed=committed, headers=headers, timestamps=timestamps)

    def writer(self) -> KafkaLogWriter:
        """A new idempotent writer, acks=all."""
        return KafkaLogWriter(self.settings)

    def transactional_writer(self, transactional_id: str) -> KafkaTransactionalWriter:
        """A new transactional writer; fences older ones of the id before it returns.

        Raises:
            Unavailable: the broker did not answer.
        """
        return KafkaTransactionalWriter(self.settings, transactional_id)

    def admin(self) -> KafkaLogAdmin:
        """Topics."""
        return KafkaLogAdmin(self.settings)
