"""Every option that the Kafka clients are given, explicit and in one place.

Sizes are bytes unless a name says otherwise. Options that decide about safety are set even where
today's default is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import MIB, RECORD_BYTES_ON_BROKER_MAX

Options = dict[str, str | int | float | bool]

_FETCH_BYTES_MAX: Final = 16 * MIB
_FETCH_PARTITION_BYTES: Final = 2 * MIB
"""Of one partition in one answer. A larger record comes all the same, alone; more only makes
the answers slow to unpack.
"""
_RANGE_PARTITION_BYTES: Final = 256 * 1024
"""The same for a reader of ranges: about as much is fetched beyond each, and in vain where
others read on.
"""
_LOCAL_QUEUE_KIB: Final = 64 * 1024
_RANGE_QUEUE_KIB: Final = 4 * 1024
_RESPONSE_HEAD_BYTES: Final = 64 * 1024
FOLLOWER_WAIT_MS: Final = 500
"""So long a broker keeps the fetch of a reader that follows, if there is nothing to answer. It
answers the requests of a connection in turn, so questions go by another one.
"""
_SECURITY_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "https.")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach a cluster and how long to wait for it.

    ``security`` are client options of librdkafka that start with ``security.``, ``sasl.`` or
    ``ssl.``; nothing else may be changed by it.
    """

    address: str
    """``host:port``, or several with commas."""
    client_id: str = "anabranch"
    delivery_timeout_ms: int = 30_000
    """A record that the broker did not acknowledge by then has an unknown outcome."""
    request_timeout_ms: int = 10_000
    """For questions: offsets, topics, settings."""
    transaction_timeout_ms: int = 60_000
    """The broker aborts a transaction that is open longer: bounds how long a dead writer can
    hold committed readers back.
    """
    topic_appears_ms: int = 5_000
    """How long readers and writers wait for a topic they do not know: a topic just made needs
    a moment to be known by all brokers.
    """
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    security_variable: str = "ANABRANCH_KAFKA_SECURITY_PROTOCOL"
    """For people: what turns security on for this cluster."""

    def __post_init__(self) -> None:
        """Reject what cannot be meant.

        Raises:
            ConfigurationError: no address, or an option in ``security`` that has nothing to do with
                security.
        """
        if not self.address.strip():
            message = "the Kafka address is empty: give host:port"
            raise ConfigurationError(message)
        for option in self.security:
            if not option.startswith(_SECURITY_PREFIXES):
                message = (
                    f"Kafka option {option!r} cannot be set: only"
                    f" {', '.join(p + '*' for p in _SECURITY_PREFIXES)}"
                )
                raise ConfigurationError(message)

    def _connection(self) -> Options:
        return {
            "bootstrap.servers": self.address,
            "client.id": self.client_id,
            "socket.keepalive.enable": True,
            "socket.nagle.disable": True,
            "socket.connection.setup.timeout.ms": 5_000,
            # A broker that comes back is found again within a second; the default is ten.
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "retry.backoff.ms": 100,
            "allow.auto.create.topics": False,
            "log.connection.close": False,
            "enable.metrics.push": False,  # what the client measures of itself stays here
            **self.security,
        }

    def consumer(self, *, committed: bool, follows: bool = False, ranges: bool = False) -> Options:
        """A reader of hand-assigned partitions that never joins a group and never commits.

        ``follows``: it stays where it is. ``ranges``: it reads one stretch here and another there,
            so what it fetches ahead is mostly for nothing.
        """
        return {
            **self._connection(),
            "group.id": f"{self.client_id}.unused",  # librdkafka demands one; nothing joins it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # a missing offset is missing data, never "go on elsewhere"
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "check.crcs": True,
            "enable.partition.eof": False,
            "topic.metadata.propagation.max.ms": self.topic_appears_ms,
            "fetch.min.bytes": 1,
            # The broker answers at once when there are records; a reader that is sent elsewhere
            # waits for its last empty answer first. One that stays need not ask so often: the empty
            # answers of some twenty readers took a tenth of a core.
            "fetch.wait.max.ms": FOLLOWER_WAIT_MS if follows else 10 if ranges else 100,
            "fetch.max.bytes": _FETCH_BYTES_MAX,
            "max.partition.fetch.bytes": (
                _RANGE_PARTITION_BYTES if ranges else _FETCH_PARTITION_BYTES
            ),
            "message.max.bytes": RECORD_BYTES_ON_BROKER_MAX,
            "receive.message.max.bytes": (
                _FETCH_BYTES_MAX + RECORD_BYTES_ON_BROKER_MAX + _RESPONSE_HEAD_BYTES
            ),
            "queued.max.messages.kbytes": _RANGE_QUEUE_KIB if ranges else _LOCAL_QUEUE_KIB,
            "queued.min.messages": 200_000,
            # How long a full local queue pauses fetching: the default of a second starves a fast
            # reader, and a small queue is soon empty.
            "fetch.queue.backoff.ms": 2 if ranges else 20,
            "fetch.error.backoff.ms": 100,
        }

    def producer(self) -> Options:
        """An idempotent writer: no duplicates and no reordering by retries within its life."""
        return {
            **self._connection(),
            "acks": "all",
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": 5,
            "compression.type": "lz4",
            "message.max.bytes": RECORD_BYTES_ON_BROKER_MAX,
            "delivery.timeout.ms": self.delivery_timeout_ms,
            "request.timeout.ms": min(self.request_timeout_ms, self.delivery_timeout_ms),
            "topic.metadata.propagation.max.ms": self.topic_appears_ms,
            "linger.ms": 5,
            "batch.size": MIB,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 128 * 1024,
            "delivery.report.only.error": False,
        }

    def transactional_producer(self, transactional_id: str) -> Options:
        """As ``producer``, with transactions and fencing by ``transactional_id``."""
        # A record must fail before its transaction does, else the transaction's fate decides about
        # records still in flight.
        timeout_ms = min(self.delivery_timeout_ms, self.transaction_timeout_ms)
        return {
            **self.producer(),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": self.transaction_timeout_ms,
            "delivery.timeout.ms": timeout_ms,
            "request.timeout.ms": min(self.request_timeout_ms, timeout_ms),
        }

    def administrator(self) -> Options:
        """For topics."""
        return {**self._connection(), "request.timeout.ms": self.request_timeout_ms}
