"""Views of a live topic: with a consumer of their own, or fed by any other consumer."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Final

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.client.values import time_of
from anabranch.codec import live_records
from anabranch.ports import EventLog, TopicPartition
from anabranch.protocol.edge import views
from anabranch.protocol.edge.origins import Origin
from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError
from anabranch.protocol.log.reading_to_end import ReadingToEnd

BUCKETS_KEPT: Final = 1_000
"""Number of newest stable buckets whose records ``follow`` keeps. Bounded, so that a program may
follow a topic for months.
"""

_FETCH_RECORDS: Final = 10_000
_WAIT_MS: Final = 200


class LiveView(views.LiveView):
    """Current answer of one live topic, fed by any consumer. Not thread-safe.

    ``records`` is the answer as a sequence, and ``by_key`` the newest record of each key.
    ``stable_ms`` is the event time up to which the answer is stable, and ``shown_ms`` the one up to
    which there are any results.
    """

    def __init__(self, partitions: int, *, buckets_kept: int | None = None) -> None:
        """Begin without records.

        Args:
            partitions: Number of partitions of the topic.
            buckets_kept: Number of newest stable buckets whose records ``records`` returns; None:
                all that were read. ``by_key`` returns every key in any case.
        """
        super().__init__(partitions, buckets_kept=buckets_kept)
        self.foreign = 0
        """Number of records that were skipped because no pipeline wrote them."""

    def apply(
        self,
        partition: int,
        headers: Sequence[tuple[str, bytes | None]],
        key: bytes | None,
        value: bytes | None,
    ) -> bool:
        """Apply the next record of a partition, and return whether the answer has changed.

        Records must be given in the order of their partition. Only boundaries change the answer.
        """
        try:
            record = live_records.decode(headers, key, value)
            Origin.parse(record.origin)
            time_of(record.event_time_ms or 0)
        except RemoteProtocolError:
            self.foreign += 1
            return False
        return self.take(partition, record)


class Follower:
    """Consumer of a live topic with its view, for callers with a loop of their own.

    Not thread-safe. The caller closes it.
    """

    def __init__(
        self,
        kafka: str | EventLog,
        topic: str,
        *,
        from_beginning: bool = True,
        buckets_kept: int | None = BUCKETS_KEPT,
    ) -> None:
        """Open the consumer. Arguments and errors are those of ``follow``."""
        log = KafkaEventLog(kafka) if isinstance(kafka, str) else kafka
        places = places_of(log, topic)
        self.view = LiveView(len(places), buckets_kept=buckets_kept)
        self._reader = log.reader(committed=True, headers=True, follows=True)
        ends = {at: self._reader.offsets(at) for at in places}
        self._ends = {at: end for at, (_, end) in ends.items()}
        self._reader.assign(
            {at: start if from_beginning else end for at, (start, end) in ends.items()}
        )

    def poll(self, wait_ms: int = 0) -> bool:
        """Apply the records that have arrived, and return whether the answer has changed.

        Waits up to ``wait_ms`` for the first record.

        Raises:
            DataMissing: the records to be read next were deleted, by retention or with their topic.
            AdapterError: the broker does not answer, or rejects the request.
        """
        changed = False
        for chunk in self._reader.fetch(_FETCH_RECORDS, wait_ms):
            for headers, key, value in zip(chunk.headers, chunk.keys, chunk.values, strict=True):
                changed |= self.view.apply(chunk.at.partition, headers, key, value)
        return changed

    @property
    def caught_up(self) -> bool:
        """Whether all records were read that existed when the consumer was opened."""
        return all(self._reader.position(at) >= end for at, end in self._ends.items())

    def catch_up(self) -> None:
        """Apply all records that existed when the consumer was opened.

        Raises:
            DataMissing, AdapterError: as ``poll``; also if no record arrives for a while.
        """
        reading = ReadingToEnd(self._ends, self._reader.position)
        while not reading.is_over():
            self.poll(_WAIT_MS)

    def close(self) -> None:
        """Close the consumer. Idempotent."""
        self._reader.close()


def follow(
    kafka: str | EventLog,
    topic: str,
    *,
    stopping: threading.Event | None = None,
    from_beginning: bool = True,
    buckets_kept: int | None = BUCKETS_KEPT,
    wait_ms: int = 200,
) -> Iterator[LiveView]:
    """Yield the view of a live topic after every change of the answer.

    It is always the same object, which changes: copy what you keep.

    Args:
        kafka: Address of the broker, ``host:port``.
        topic: The live topic.
        stopping: Event that ends the iteration; None: it lasts until the caller leaves the loop.
        from_beginning: Whether to read the existing records first; otherwise keys without new
            records are unknown.
        buckets_kept: Number of newest stable buckets, of those that have records, whose records
            ``view.records`` returns; None: all, kept in memory. ``view.by_key`` returns every key
            in any case.
        wait_ms: Timeout of a fetch, in ms.

    Raises:
        ConfigurationError: the topic does not exist.
        DataMissing: the records to be read next were deleted, by retention or with their topic.
        AdapterError: the broker does not answer, or rejects the request.
    """
    follower = Follower(kafka, topic, from_beginning=from_beginning, buckets_kept=buckets_kept)
    try:
        while stopping is None or not stopping.is_set():
            if follower.poll(wait_ms):
                yield follower.view
    finally:
        follower.close()


def current(kafka: str | EventLog, topic: str, *, buckets_kept: int | None = None) -> LiveView:
    """Read a live topic to its present end, and return the view.

    Arguments and errors are those of ``follow``.
    """
    follower = Follower(kafka, topic, buckets_kept=buckets_kept)
    try:
        follower.catch_up()
    finally:
        follower.close()
    return follower.view


def places_of(log: EventLog, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic.

    Raises:
        ConfigurationError: the topic does not exist.
    """
    admin = log.admin()
    try:
        count = admin.partitions([topic]).get(topic)
    finally:
        admin.close()
    if count is None:
        raise ConfigurationError(
            f"topic {topic} does not exist on this broker: check its name and the broker's address"
        )
    return [TopicPartition(topic, number) for number in range(count)]
