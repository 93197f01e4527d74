"""Readers of topics: ordinary clients that see committed records only."""

from __future__ import annotations

import json
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from demo.comparing import Delivered, result
from demo.traffic import Rejected

_WHOLE_S: Final = 90.0
"""Timeout for reading a whole topic, in seconds: a transaction that its writer left open ends after
a minute.
"""
_IDLE_S: Final = 20.0
"""Time without a record after which the client is replaced, in seconds: after a broker's restart
librdkafka sometimes stops reading without an error (its issue 5153). It may stop reading one
partition and read the others: of one without a record for so long the broker is asked for the end,
and if the client is still before it as long afterwards, it is replaced, too.
"""
_MESSAGES_MAX: Final = 1_000


class TopicReader(threading.Thread):
    """Thread that reads one topic from its beginning until ``stop`` and passes every record to
    ``take``.

    It waits for a topic that does not exist yet. ``error`` is the error that ended the thread
    early.
    """

    def __init__(self, kafka: str, topic: str, take: Callable[[Message], None]) -> None:
        super().__init__(name=f"reads {topic}", daemon=True)
        self._topic = topic
        self._take = take
        self._stopping = threading.Event()
        self._next: dict[int, int] = {}
        """Next offset of each partition that had a record."""
        self._heard_s: dict[int, float] = {}
        """Time of each partition's last record, or of the assignment."""
        self._ends: dict[TopicPartition, Future[ListOffsetsResultInfo]] = {}
        """Answers of the broker to the last question for ends, and to come."""
        self._asked_s = 0.0
        """Time of that question, or of the assignment."""
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": kafka,
            "group.id": f"toll-road-demo-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "enable.partition.eof": False,
            "log_level": 2,
        }
        self._consumer = Consumer(self._settings)
        # A client of its own does not wait behind a fetch, and nobody waits for it.
        self._admin = AdminClient({"bootstrap.servers": kafka, "log_level": 2})
        self.error: Exception | None = None

    def run(self) -> None:
        """Read until ``stop``."""
        try:
            partitions = self._partitions()
            self._assign(partitions)
            while not self._stopping.is_set():
                messages = self._consumer.consume(_MESSAGES_MAX, 0.1)
                for message in messages:
                    error = message.error()
                    if error is None:
                        self._take(message)
                        partition = message.partition() or 0
                        self._next[partition] = (message.offset() or 0) + 1
                        self._heard_s[partition] = time.monotonic()
                    elif error.fatal():
                        self.error = KafkaException(error)
                        return
                # Only once the client has handed over all that it holds: in a backlog the records
                # of one partition wait behind those of another.
                if len(messages) < _MESSAGES_MAX and self._has_stopped():
                    self._consumer.close()
                    self._consumer = Consumer(self._settings)
                    self._assign(partitions)
        except Exception as error:  # noqa: BLE001 - the demo's main thread raises it again
            self.error = error
        finally:
            self._consumer.close()

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        self.join()

    def _has_stopped(self) -> bool:
        """Return whether the client has had no record for long, or none of a partition of which
        there are some.
        """
        least_s = time.monotonic() - _IDLE_S
        idle = [number for number, heard_s in self._heard_s.items() if heard_s <= least_s]
        if len(idle) == len(self._heard_s):
            return bool(idle)
        if not idle or self._asked_s > least_s:
            return False
        places = [TopicPartition(self._topic, number) for number in idle]
        # The position also passes transaction markers, which are not messages.
        passed = {
            place.partition: max(place.offset, self._next.get(place.partition, 0))
            for place in self._consumer.position(places)
        }
        behind = [
            place
            for place, end in self._ends.items()
            if place.partition in passed
            and end.done()
            and end.exception() is None
            and end.result().offset > passed[place.partition]
        ]
        self._ends = self._admin.list_offsets(
            dict.fromkeys(places, OffsetSpec.latest()),
            isolation_level=IsolationLevel.READ_COMMITTED,
        )
        self._asked_s = time.monotonic()
        return bool(behind)

    def _assign(self, partitions: list[int]) -> None:
        self._asked_s = time.monotonic()
        self._heard_s = dict.fromkeys(partitions, self._asked_s)
        self._ends = {}
        self._consumer.assign(
            [
                TopicPartition(self._topic, number, self._next.get(number, OFFSET_BEGINNING))
                for number in partitions
            ]
        )

    def _partitions(self) -> list[int]:
        while not self._stopping.is_set():
            try:
                metadata = self._consumer.list_topics(self._topic, timeout=5).topics[self._topic]
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                if metadata.error is None and metadata.partitions:
                    return sorted(metadata.partitions)
            self._stopping.wait(0.5)
        return []


class TopicReaders:
    """Readers of several topics, each in a thread of its own."""

    def __init__(self, kafka: str, takers: Mapping[str, Callable[[Message], None]]) -> None:
        """``takers``: what takes the records of each topic, on the topic's thread."""
        self._readers = [TopicReader(kafka, topic, take) for topic, take in takers.items()]

    def start(self) -> None:
        """Begin to read."""
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """End reading.

        Raises:
            Exception: reading failed.
        """
        for reader in self._readers:
            reader.stop()
        self.check()

    def check(self) -> None:
        """Check that all of them still read.

        Raises:
            Exception: reading failed. What waits for records would wait in vain.
        """
        for reader in self._readers:
            if reader.error is not None:
                raise reader.error


def read_whole(
    kafka: str, topic: str, take: Callable[[Message], None], *, committed: bool = True
) -> None:
    """Pass every record that a topic holds now to ``take``; without ``committed`` those of aborted
    transactions, too.

    Raises:
        KafkaException: the broker rejects the request, or not everything could be read within a
            minute and a half: a transaction that its writer left open is over after a minute.
    """
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": kafka,
        "group.id": "unused",
        "enable.auto.commit": False,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "log_level": 2,
    }
    consumer = Consumer(settings)
    try:
        metadata = consumer.list_topics(topic, timeout=10).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        places = [TopicPartition(topic, number) for number in sorted(metadata.partitions)]
        ends = {
            place.partition: consumer.get_watermark_offsets(place, timeout=10) for place in places
        }
        open_ends = {number: high for number, (low, high) in ends.items() if high > low}
        consumer.assign(
            [TopicPartition(topic, place.partition, OFFSET_BEGINNING) for place in places]
        )
        end_s = time.monotonic() + _WHOLE_S
        while open_ends:
            if time.monotonic() >= end_s:
                raise KafkaException(
                    KafkaError(
                        KafkaError._TIMED_OUT,  # noqa: SLF001 - as the client names it
                        f"{topic} was not read to its end: {open_ends}",
                    )
                )
            for message in consumer.consume(1_000, 0.1):
                error = message.error()
                if error is None:
                    take(message)
                elif not error.retriable():
                    raise KafkaException(error)
            # The position also passes transaction markers, which are not messages.
            for place in consumer.position(places):
                if place.offset >= open_ends.get(place.partition, math.inf):
                    del open_ends[place.partition]
    finally:
        consumer.close()


def header(message: Message, name: str) -> str:
    """Return the last header of that name; empty if there is none."""
    found = ""
    for key, value in message.headers() or []:
        if key == name and isinstance(value, bytes):
            found = value.decode(errors="replace")
    return found


def delivered(message: Message) -> Delivered:
    """Parse a record of an output topic.

    Raises:
        ValueError: value or headers do not have the form of delivered records.
    """
    bucket, _, position = header(message, "anabranch-id").partition(".")
    event_time_ms = int(header(message, "anabranch-event-time"))
    value = json.loads(message.value() or b"")
    return Delivered(
        (int(bucket), int(position)),
        result(value, event_time_ms, message.key(), message.partition() or 0),
        received_ms(),
    )


def received_ms() -> int:
    """Return the wall clock, in ms since 1970."""
    return time.time_ns() // 1_000_000


def rejected(message: Message) -> Rejected:
    """Parse a dead letter as the rejected input record.

    Raises:
        ValueError: headers are missing, or it has a key or a header of its sender, which no record
            of the traffic has.
    """
    if message.key() is not None:
        raise ValueError(f"a dead letter has the key {message.key()!r}")
    senders = [name for name, _ in message.headers() or [] if not name.startswith("anabranch-")]
    if senders:
        raise ValueError(f"a dead letter has the headers {senders} of its sender")
    return Rejected(
        header(message, "anabranch-topic"),
        int(header(message, "anabranch-partition")),
        int(header(message, "anabranch-offset")),
        header(message, "anabranch-reason"),
        message.value(),
    )
