"""The benchmark's side of Kafka: topics, backlogs that appear at one instant, results with
their append times.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch.codec import boundary_records
from anabranch.protocol.log.records import BoundaryRecord
from benchmarks.workload import INPUT, OUTPUT, PARTITIONS

_TIMEOUT_S: Final = 30.0
_COMMIT_TIMEOUT_S: Final = 120.0
_BATCH: Final = 10_000


@dataclass(slots=True)
class Results:
    """Result records in the order of reading, each with the broker's append time (ms)."""

    values: list[bytes] = field(default_factory=list)
    appended_ms: list[int] = field(default_factory=list)
    seen_ms: list[float] = field(default_factory=list)


def create_topics(kafka: str, input_topic: str = INPUT, output_topic: str = OUTPUT) -> None:
    """Create the input and the output topic; the broker sets the output's timestamps."""
    topics = [
        NewTopic(input_topic, PARTITIONS, 1),
        NewTopic(output_topic, PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime"}),
    ]
    admin = AdminClient({"bootstrap.servers": kafka})
    for future in admin.create_topics(topics).values():
        future.result(_TIMEOUT_S)


def produce_backlog(
    kafka: str, values: Sequence[str], last: str | None, topic: str = INPUT
) -> float:
    """Write a backlog in one transaction, so that readers of committed records see all of it from
    one instant on. ``last`` ends it in each partition.

    Returns:
        That instant: the wall-clock time (s) just before the commit.
    """
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            # a new broker's coordinator rejects requests for a second, and librdkafka says so
            "log_level": 3,
            "transactional.id": f"backlog-{time.time_ns()}",
            "transaction.timeout.ms": 600_000,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 500_000,
        }
    )
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    for number, value in enumerate(values):
        _produce(producer, topic, value, number % PARTITIONS)
        if number % _BATCH == 0:
            producer.poll(0)
    if last is not None:
        for partition in range(PARTITIONS):
            _produce(producer, topic, last, partition)
    producer.flush(_COMMIT_TIMEOUT_S)
    visible_s = time.time()
    producer.commit_transaction(_COMMIT_TIMEOUT_S)
    return visible_s


def _produce(producer: Producer, topic: str, value: str, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return


class ResultReader:
    """Reads the output topic in pieces and watches its end."""

    def __init__(self, kafka: str, topic: str = OUTPUT) -> None:
        """Start at the beginning of ``topic``."""
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        self._ends = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "benchmark-ends",
                "isolation.level": "read_committed",
            }
        )
        self._positions = dict.fromkeys(range(PARTITIONS), 0)

    def end(self) -> int:
        """Sum of the end offsets (transaction markers count too): changes while something is
        written.
        """
        return sum(
            self._ends.get_watermark_offsets(TopicPartition(self._topic, p), _TIMEOUT_S)[1]
            for p in self._positions
        )

    def position(self) -> int:
        """Sum of the offsets read to."""
        return sum(self._positions.values())

    def read_to_end(self) -> Results:
        """Return the records appended since the last call."""
        results = Results()
        self._consumer.assign(
            [TopicPartition(self._topic, p, offset) for p, offset in self._positions.items()]
        )
        open_partitions = set(self._positions)
        while open_partitions:
            for message in self._consumer.consume(_BATCH, 1.0):
                error = message.error()
                if error is None:
                    results.values.append(message.value() or b"")
                    results.appended_ms.append(message.timestamp()[1])
                    self._positions[message.partition() or 0] = (message.offset() or 0) + 1
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public name for it
                    open_partitions.discard(message.partition() or 0)
                    self._positions[message.partition() or 0] = message.offset() or 0
                else:
                    raise KafkaException(error)
        return results

    def follow(self, until_s: float) -> Results:
        """Return the records appended until ``until_s`` (wall clock), with the time at which a
        consumer received each.
        """
        results = Results()
        self._consumer.assign(
            [TopicPartition(self._topic, p, offset) for p, offset in self._positions.items()]
        )
        while time.time() < until_s:
            messages = self._consumer.consume(_BATCH, 0.02)
            now_ms = time.time() * 1000
            for message in messages:
                if message.error() is None:
                    results.values.append(message.value() or b"")
                    results.appended_ms.append(message.timestamp()[1])
                    results.seen_ms.append(now_ms)
                    self._positions[message.partition() or 0] = (message.offset() or 0) + 1
        return results

    def close(self) -> None:
        """Close both consumers."""
        self._consumer.close()
        self._ends.close()


def part_spans(kafka: str, since_s: float) -> dict[str, tuple[float, float]]:
    """Per stream and writer the seconds after ``since_s`` at which the first and the last blocks
    were named by a boundary record.

    From the boundary logs, which nobody trims within a run: blocks themselves may be trimmed while
    this looks.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "benchmark-boundaries",
            "enable.auto.commit": False,
        }
    )
    spans: dict[str, tuple[float, float]] = {}
    for topic in sorted(
        topic
        for topic in consumer.list_topics(timeout=_TIMEOUT_S).topics
        if topic.endswith(".boundaries")
    ):
        (start,) = consumer.offsets_for_times(
            [TopicPartition(topic, 0, int(since_s * 1000))], _TIMEOUT_S
        )
        low, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), _TIMEOUT_S)
        if start.offset < 0:
            continue
        at = max(start.offset, low)
        consumer.assign([TopicPartition(topic, 0, at)])
        while at < end and (messages := consumer.consume(_BATCH, 1.0)):
            for message in messages:
                at = (message.offset() or 0) + 1
                entry = (
                    None
                    if message.error()
                    else boundary_records.decode(message.value(), message.headers() or ())
                )
                if isinstance(entry, BoundaryRecord) and entry.parts:
                    name, seen_s = (
                        f"{topic.split('.')[-2]}.{entry.replica}",
                        message.timestamp()[1] / 1000 - since_s,
                    )
                    spans[name] = (spans.get(name, (seen_s,))[0], seen_s)
    consumer.close()
    return spans
