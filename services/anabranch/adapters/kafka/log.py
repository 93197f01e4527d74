"""Kafka cluster as an event log: the implementation of ``ports.EventLog``."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from anabranch.adapters.kafka.admin import KafkaLogAdmin
from anabranch.adapters.kafka.reader import KafkaLogReader
from anabranch.adapters.kafka.security import KafkaSecurity, security_from_environment
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.adapters.kafka.transactional import KafkaTransactionalWriter
from anabranch.adapters.kafka.writer import KafkaLogWriter


class KafkaEventLog:
    """Kafka cluster. Every reader and writer has connections of its own.

    A new idempotent producer cannot write for half a second: it asks a broker for a producer id,
    has no connection yet, and asks again after 500 ms. A caller that must not wait for this opens
    writers ahead (``open_ahead``).
    """

    def __init__(
        self,
        address: str,
        *,
        client_id: str = "anabranch",
        delivery_timeout_ms: int = 30_000,
        request_timeout_ms: int = 10_000,
        transaction_timeout_ms: int = 60_000,
        security: Mapping[str, str] | KafkaSecurity | None = None,
    ) -> None:
        """Check the settings. Nothing is contacted yet.

        ``address`` is ``host:port``, or several with commas; the other arguments are those of
        ``KafkaSettings``. ``security`` None: the environment's (``adapters.kafka.security``).

        Raises:
            ConfigurationError: an empty address, an unknown security option, or a mistake in the
                environment.
        """
        security = security_from_environment() if security is None else security
        self._security = security if isinstance(security, KafkaSecurity) else None
        self._settings = KafkaSettings(
            address,
            client_id=client_id,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            transaction_timeout_ms=transaction_timeout_ms,
            security={} if isinstance(security, KafkaSecurity) else dict(security),
        )
        self._ahead: deque[KafkaLogWriter] = deque()
        self.settings()  # mistakes are reported now

    def settings(self) -> KafkaSettings:
        """Return the settings of a client that is created now. Password files are read anew for
        each, so that a changed password takes effect.

        Raises:
            ConfigurationError: a file of the security settings cannot be read any more.
        """
        return (
            self._settings
            if self._security is None
            else replace(
                self._settings,
                security=self._security.options(),
                security_variable=self._security.variable("security_protocol"),
            )
        )

    def reader(
        self,
        *,
        committed: bool = True,
        headers: bool = True,
        timestamps: bool = True,
        follows: bool = False,
        ranges_of: str = "",
    ) -> KafkaLogReader:
        """Return a new reader.

        Args:
            committed: Hide the records of aborted and open transactions.
            headers: Read headers; reading without is faster.
            timestamps: Read timestamps; reading without is faster.
            follows: Whether the reader follows the log's end (``ports.EventLog``). If it is
                assigned to another position, it starts to read there up to half a second later.
            ranges_of: Name of the stream of which it reads ranges (``ports.EventLog``): part of its
                client id, by which brokers limit how fast it fetches.
        """
        return KafkaLogReader(
            self.settings if not ranges_of else lambda: self.settings().of_stream(ranges_of),
            committed=committed,
            headers=headers,
            timestamps=timestamps,
            follows=follows,
            ranges=bool(ranges_of),
        )

    def writer(self) -> KafkaLogWriter:
        """Return a new idempotent writer with acks=all, or one that was opened ahead."""
        try:
            return self._ahead.popleft()
        except IndexError:
            return KafkaLogWriter(self.settings())

    def open_ahead(self, writers: int) -> None:
        """Open writers ahead, see the port. Those that are open already log what has happened to
        their connections.
        """
        for writer in list(self._ahead):
            writer.serve()
        while len(self._ahead) < writers:
            self._ahead.append(KafkaLogWriter(self.settings()))

    def transactional_writer(self, transactional_id: str) -> KafkaTransactionalWriter:
        """Return a new transactional writer. Older ones of the id are fenced before this
        returns.

        Raises:
            Unavailable: the broker did not answer.
        """
        return KafkaTransactionalWriter(self.settings(), transactional_id)

    def admin(self) -> KafkaLogAdmin:
        """Return an administrator of topics."""
        return KafkaLogAdmin(self.settings())
