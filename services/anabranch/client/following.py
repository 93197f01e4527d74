"""Following a live topic with a consumer of its own, or with records of any other one."""

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

BUCKETS_KEPT: Final = 1_000
"""Stable buckets with records that ``follow`` keeps the records of: a program that follows a
topic for months must not keep all of it.
"""

_FETCH_RECORDS: Final = 10_000


class LiveView(views.LiveView):
    """The current answer of one live topic, from the records of whatever consumer. Not thread-safe.

    ``records`` is the answer as a sequence, ``by_key`` the newest record of each key; ``stable_ms``
    says up to which event time it is stable, ``shown_ms`` up to which it reaches.
    """

    def __init__(self, partitions: int, *, buckets_kept: int | None = None) -> None:
        """``buckets_kept``: stable buckets whose records ``records`` still tells; None: all
        that were read. ``by_key`` keeps every key.
        """
        super().__init__(partitions, buckets_kept=buckets_kept)
        self.foreign = 0
        """Records that are none of a live topic; they were left out."""

    def apply(
        self,
        partition: int,
        headers: Sequence[tuple[str, bytes | None]],
        key: bytes | None,
        value: bytes | None,
    ) -> bool:
        """Take the next record of a partition, in its order; whether the answer changed,
        which only boundaries do.
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
    """Reads a live topic with a consumer of its own: for callers with a loop of their own.
    Not thread-safe; close it.
    """

    def __init__(
        self,
        kafka: str | EventLog,
        topic: str,
        *,
        from_beginning: bool = True,
        buckets_kept: int | None = BUCKETS_KEPT,
    ) -> None:
        """See ``follow``."""
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
        """Take what is there, waiting up to ``wait_ms`` for the first record; whether the answer
        changed.

        Raises:
            AdapterError: the broker rejects the request, or retention has removed what was to be
                read next.
        """
        changed = False
        for chunk in self._reader.fetch(_FETCH_RECORDS, wait_ms):
            for headers, key, value in zip(chunk.headers, chunk.keys, chunk.values, strict=True):
                changed |= self.view.apply(chunk.at.partition, headers, key, value)
        return changed

    @property
    def caught_up(self) -> bool:
        """Everything was read that was there when this began."""
        return all(self._reader.position(at) >= end for at, end in self._ends.items())

    def close(self) -> None:
        """Give the consumer back. Idempotent."""
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
    """The view after every change of the answer, until ``stopping`` is set. It is one object that
    moves on: take from it what you keep.

    Args:
        kafka: Address of the broker, ``host:port``.
        topic: The live topic.
        stopping: Ends the iteration; None: it goes on until the caller leaves the loop.
        from_beginning: Everything that is there, then what comes; else only what comes, so that
            older keys are unknown.
        buckets_kept: Newest stable buckets (of those that have records) that ``view.records`` still
            tells; None: all that were ever read, in memory. ``view.by_key`` has every key either
            way.
        wait_ms: How long one look waits for records.

    Raises:
        ConfigurationError: there is no such topic.
        AdapterError: the broker rejects the request, or retention has removed what was to be read
            next.
    """
    follower = Follower(kafka, topic, from_beginning=from_beginning, buckets_kept=buckets_kept)
    try:
        while stopping is None or not stopping.is_set():
            if follower.poll(wait_ms):
                yield follower.view
    finally:
        follower.close()


def current(kafka: str | EventLog, topic: str, *, buckets_kept: int | None = None) -> LiveView:
    """The answer as it is now, in whole (``buckets_kept`` None). Raises as ``follow``."""
    follower = Follower(kafka, topic, buckets_kept=buckets_kept)
    try:
        while not follower.caught_up:
            follower.poll(200)
    finally:
        follower.close()
    return follower.view


def places_of(log: EventLog, topic: str) -> list[TopicPartition]:
    """The partitions of a topic.

    Raises:
        ConfigurationError: there is none of that name.
    """
    admin = log.admin()
    try:
        count = admin.partitions([topic]).get(topic)
    finally:
        admin.close()
    if count is None:
        raise ConfigurationError(f"topic {topic} does not exist on this broker")
    return [TopicPartition(topic, number) for number in range(count)]
