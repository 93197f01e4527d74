"""Writer of a benchmark's input to Kafka: records and heartbeats, of which each must arrive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

HEARTBEAT_HEADER: Final = "anabranch-heartbeat"

_FLUSH_S: Final = 60.0


class InputWriter:
    """Producer for as many records as the broker takes, with what went wrong."""

    def __init__(self, kafka: str, *, linger_ms: int) -> None:
        """``linger_ms``: how long a record may wait for others of its batch."""
        self._errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                "compression.type": "lz4",
                "linger.ms": linger_ms,
                "log_level": 2,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
            }
        )

    def write(self, topic: str, partition: int, value: bytes) -> None:
        """Write a record, once the queue has room for it."""
        while True:
            try:
                self._producer.produce(
                    topic, value, partition=partition, on_delivery=self._note_error
                )
            except BufferError:  # the queue is full: let some of it go out
                self._producer.poll(0.05)
            else:
                return

    def heartbeat(self, topic: str, partitions: Iterable[int], time_ms: int) -> None:
        """Write a heartbeat with the event time ``time_ms`` to each of ``partitions``."""
        for partition in partitions:
            self._producer.produce(
                topic,
                None,
                partition=partition,
                headers=[(HEARTBEAT_HEADER, str(time_ms).encode())],
                on_delivery=self._note_error,
            )

    def poll(self, timeout_s: float) -> None:
        """Send what is queued, for at most ``timeout_s``."""
        self._producer.poll(timeout_s)

    def flush(self) -> None:
        """Wait until everything is written.

        Raises:
            KafkaException: the broker did not take a record.
        """
        left = self._producer.flush(_FLUSH_S)
        if self._errors:
            raise KafkaException(self._errors[0])
        if left:
            raise KafkaException(
                KafkaError(KafkaError._MSG_TIMED_OUT, f"{left} records are not written")  # noqa: SLF001 - the client's only name for it
            )

    def _note_error(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._errors.append(error)
