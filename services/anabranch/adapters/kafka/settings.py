"""Options of the Kafka clients, all of them explicit and in this module.

Sizes are in bytes unless a name says otherwise. Options that safety depends on are set even where
today's default is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from anabranch.pipeline.topic_names import block_reader_id
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import MIB, RANGE_PARTITION_BYTES, RECORD_BYTES_ON_BROKER_MAX

Options = dict[str, str | int | float | bool]

LEAST_WAIT_S: Final = 0.001
"""Least time, in s, for which a client can wait for an answer. The request is sent all the same."""
_FETCH_BYTES_MAX: Final = 16 * MIB
"""``fetch.max.bytes``: maximum size of an answer to a fetch."""
_FETCH_PARTITION_BYTES: Final = 2 * MIB
"""``max.partition.fetch.bytes``: share of one partition in an answer. A larger record is sent all
the same, alone; a larger share only makes answers slow to unpack.
"""
_LOCAL_QUEUE_KIB: Final = 64 * 1024
"""``queued.max.messages.kbytes``: fetched records that wait in the client, in KiB."""
_RANGE_QUEUE_KIB: Final = 4 * 1024
"""``queued.max.messages.kbytes`` of readers of ranges, in KiB."""
_RESPONSE_HEAD_BYTES: Final = 64 * 1024
"""Allowance for the head of an answer beside its records."""
FOLLOWER_WAIT_MS: Final = 500
"""``fetch.wait.max.ms`` of followers: how long the broker may hold a fetch when no data is
available. A broker answers the requests of a connection in turn, so a follower's questions go by
another connection.
"""
_SECURITY_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "https.")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Address of a cluster, timeouts for its requests, and security options.

    ``security`` holds client options of librdkafka that start with ``security.``, ``sasl.`` or
    ``ssl.``; it cannot change any other option.
    """

    address: str
    """Brokers as ``host:port``, or several with commas."""
    client_id: str = "anabranch"
    delivery_timeout_ms: int = 30_000
    """Time after which a record without the broker's acknowledgement has an unknown
    outcome, in ms.
    """
    request_timeout_ms: int = 10_000
    """Timeout of requests for offsets, topics and settings, in ms."""
    transaction_timeout_ms: int = 60_000
    """Time after which the broker aborts an open transaction, in ms. Bounds how long a dead writer
    can block committed readers.
    """
    topic_appears_ms: int = 5_000
    """Time for which readers and writers wait for an unknown topic, in ms: it takes a moment until
    all brokers know a new topic.
    """
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    security_variable: str = "ANABRANCH_KAFKA_SECURITY_PROTOCOL"
    """Environment variable that turns security on for this cluster, for messages."""

    def __post_init__(self) -> None:
        """Reject an empty address and options that do not concern security.

        Raises:
            ConfigurationError: no address, or an option in ``security`` that does not concern
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

    def of_stream(self, stream: str) -> KafkaSettings:
        """Return the settings of a client that reads the blocks of ``stream``. Its client id names
        the stream, so that a quota on the brokers applies to these reads alone, never to boundary
        logs and heartbeats: those are few bytes, and late they look like a failure.
        """
        return replace(self, client_id=block_reader_id(stream))

    def _connection(self) -> Options:
        return {
            "bootstrap.servers": self.address,
            "client.id": self.client_id,
            "socket.keepalive.enable": True,
            "socket.nagle.disable": True,
            "socket.connection.setup.timeout.ms": 5_000,
            # Reconnects to a restarted broker within a second; the default is ten.
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "retry.backoff.ms": 100,
            "allow.auto.create.topics": False,
            "log.connection.close": False,
            "enable.metrics.push": False,  # the client must not send its own metrics to brokers
            **self.security,
        }

    def consumer(self, *, committed: bool, follows: bool = False, ranges: bool = False) -> Options:
        """Return the options of a reader of hand-assigned partitions, which never joins a group and
        never commits.

        ``follows``: the reader stays at the end of its partitions. ``ranges``: it reads one range
        here and another there, so that most of what it fetches ahead is wasted.
        """
        return {
            **self._connection(),
            # librdkafka demands a group. No reader joins it, but each asks for its coordinator, a
            # right that `anabranch acls` grants by this name: it is the same for every client.
            "group.id": "anabranch.unused",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # A missing offset is missing data: reading must fail, never continue elsewhere.
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "check.crcs": True,
            "enable.partition.eof": False,
            "topic.metadata.propagation.max.ms": self.topic_appears_ms,
            "fetch.min.bytes": 1,
            # The broker answers at once when there are records. A reader that is assigned to
            # another position first waits for the empty answer to its last fetch, so only a
            # follower waits long: the empty answers of some twenty readers took a tenth of a core.
            "fetch.wait.max.ms": FOLLOWER_WAIT_MS if follows else 10 if ranges else 100,
            "fetch.max.bytes": _FETCH_BYTES_MAX,
            "max.partition.fetch.bytes": (
                RANGE_PARTITION_BYTES if ranges else _FETCH_PARTITION_BYTES
            ),
            "message.max.bytes": RECORD_BYTES_ON_BROKER_MAX,
            "receive.message.max.bytes": (
                _FETCH_BYTES_MAX + RECORD_BYTES_ON_BROKER_MAX + _RESPONSE_HEAD_BYTES
            ),
            "queued.max.messages.kbytes": _RANGE_QUEUE_KIB if ranges else _LOCAL_QUEUE_KIB,
            "queued.min.messages": 200_000,
            # Pause of fetching while the local queue is full: the default of a second starves a
            # fast reader, and a small queue is soon empty.
            "fetch.queue.backoff.ms": 2 if ranges else 20,
            "fetch.error.backoff.ms": 100,
        }

    def producer(self) -> Options:
        """Return the options of an idempotent writer. Its retries do not repeat records, except
        where librdkafka (2.16) begins a new epoch: if the leader of one partition refuses a batch,
        batches of other partitions whose answers were lost are written again, without an error
        (its issue 4953). Whoever reads them counts each once.
        """
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
        """Return the options of a writer with transactions, fenced by ``transactional_id``;
        otherwise as ``producer``.
        """
        # A record must time out before its transaction does; otherwise the broker's abort decides
        # about records still in flight.
        timeout_ms = min(self.delivery_timeout_ms, self.transaction_timeout_ms)
        return {
            **self.producer(),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": self.transaction_timeout_ms,
            "delivery.timeout.ms": timeout_ms,
            "request.timeout.ms": min(self.request_timeout_ms, timeout_ms),
        }

    def administrator(self) -> Options:
        """Return the options of an administrator of topics."""
        return {**self._connection(), "request.timeout.ms": self.request_timeout_ms}
