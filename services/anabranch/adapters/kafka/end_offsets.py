"""The ends of many partitions, asked all at once: a reader that watches hundreds cannot wait for one answer after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.ports import TopicPartition

_logger = logging.getLogger("anabranch.adapters.kafka")

_NO_LEADER: Final = -1


class EndOffsets:
    """Asks each leader for all of its partitions in one request. Not thread-safe."""

    def __init__(self, settings: KafkaSettings, *, committed: bool) -> None:
        """Contacts the brokers, without waiting for them."""
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._client = AdminClient(dict(settings.administrator()), logger=_logger)
        self._leaders: dict[TopicPartition, int] = {}

    def ask(self, places: Collection[TopicPartition], wait_ms: int) -> dict[TopicPartition, int]:
        """The end offsets of those of ``places`` whose leader answers within ``wait_ms``.

        The client gives up a request as a whole where one partition has no leader, so those are left out, and each leader has its own request.
        """
        deadline = time.monotonic() + wait_ms / 1000
        self._find({at.topic for at in places if at not in self._leaders}, deadline)
        by_leader: dict[int, list[TopicPartition]] = {}
        for at in places:
            if at in self._leaders:
                by_leader.setdefault(self._leaders[at], []).append(at)
        asked = [pair for group in by_leader.values() for pair in self._request(group, deadline)]
        found: dict[TopicPartition, int] = {}
        for at, answer in asked:
            try:
                found[at] = int(answer.result(timeout=_left_s(deadline)).offset)
            except (KafkaException, TimeoutError):
                self._leaders.pop(at, None)  # it may have another one by now
        return found

    def _find(self, topics: Iterable[str], deadline: float) -> None:
        """Learn the leaders of ``topics``."""
        for topic in sorted(topics):
            try:
                answer = self._client.list_topics(topic, timeout=_left_s(deadline))
            except KafkaException:
                return
            described = answer.topics.get(topic)
            for number, partition in described.partitions.items() if described is not None else ():
                if partition.leader != _NO_LEADER:
                    self._leaders[TopicPartition(topic, number)] = partition.leader

    def _request(self, group: list[TopicPartition], deadline: float) -> list[tuple[TopicPartition, Future[Any]]]:
        wanted = {KafkaPartition(at.topic, at.partition): OffsetSpec.latest() for at in group}
        try:
            futures = self._client.list_offsets(wanted, isolation_level=self._isolation, request_timeout=_left_s(deadline))
        except KafkaException:
            return []
        return [(TopicPartition(place.topic, place.partition), future) for place, future in futures.items()]


def _left_s(deadline: float) -> float:
    """Until then; never nothing, which to the client means no limit at all."""
    return max(0.001, deadline - time.monotonic())
