"""``ports.EventLog`` over a real Kafka."""

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
    """A Kafka cluster. Every reader and writer has connections of its own.

    A new idempotent client cannot write for half a second: it looks for a broker to have a producer
    id from, has no connection yet, and looks again after 500 ms. Who must not wait for that opens
    writers ahead.
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
        """``address`` is ``host:port``, or several with commas; the rest as in ``KafkaSettings``.
        Nothing is contacted yet.

        ``security`` None: as the environment says (``adapters.kafka.security``).

        Raises:
            ConfigurationError: an empty address, a security option that is none, or something wrong
                in the environment.
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
        """Of a client that is made now: a password's file is read anew for each.

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
        ranges: bool = False,
    ) -> KafkaLogReader:
        """A new reader. ``committed``: hides aborted and open transactions. Without ``headers`` and
        ``timestamps`` reading is faster.

        ``follows``: as in ``ports.EventLog``; sent elsewhere all the same, it begins to read there
            up to half a second later. ``ranges``: as there.
        """
        return KafkaLogReader(
            self.settings,
            committed=committed,
            headers=headers,
            timestamps=timestamps,
            follows=follows,
            ranges=ranges,
        )

    def writer(self) -> KafkaLogWriter:
        """A new idempotent writer, acks=all; one that was opened ahead, if there is one."""
        try:
            return self._ahead.popleft()
        except IndexError:
            return KafkaLogWriter(self.settings())

    def open_ahead(self, writers: int) -> None:
        """See the port. They log now what they have to report of their connections."""
        for writer in list(self._ahead):
            writer.serve()
        while len(self._ahead) < writers:
            self._ahead.append(KafkaLogWriter(self.settings()))

    def transactional_writer(self, transactional_id: str) -> KafkaTransactionalWriter:
        """A new transactional writer; fences older ones of the id before it returns.

        Raises:
            Unavailable: the broker did not answer.
        """
        return KafkaTransactionalWriter(self.settings(), transactional_id)

    def admin(self) -> KafkaLogAdmin:
        """Topics."""
        return KafkaLogAdmin(self.settings())
