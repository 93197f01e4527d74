"""End offsets of many partitions by one request to each leader: a reader that watches hundreds of
partitions cannot wait for one answer after the other.

The requests go by the call that finds offsets for times, which accepts the end as a time.
librdkafka's own call for ends (``ListOffsets`` of its administrator) looks up leaders in the
caller's thread and in its own at once (2.16): if one is not known it may free the request twice.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from anabranch.ports import TopicPartition

_NO_LEADER: Final = -1


class EndOffsets:
    """Requests for end offsets, with the leaders of partitions as far as the client that was asked
    last knows them. Not thread-safe.
    """

    def __init__(self) -> None:
        """Start without any known leader."""
        self._client: Consumer | None = None
        self._leaders: dict[TopicPartition, int] = {}

    def ask(
        self, client: Consumer, places: Collection[TopicPartition], wait_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the end offsets of those of ``places`` whose leader answers within ``wait_ms``,
        under the isolation level of ``client``.

        librdkafka fails a request as a whole if one partition has no leader. So partitions without
        a leader are left out, and each leader gets its own request and a share of the time.
        """
        deadline = time.monotonic() + wait_ms / 1000
        if client is not self._client:
            # A new client must find the leaders first, else it looks them up within the request.
            self._client, self._leaders = client, {}
        self._find(client, {at.topic for at in places if at not in self._leaders}, deadline)
        by_leader: dict[int, list[TopicPartition]] = {}
        for at in places:
            if at in self._leaders:
                by_leader.setdefault(self._leaders[at], []).append(at)
        found: dict[TopicPartition, int] = {}
        for done, group in enumerate(by_leader.values()):
            ends = _ends(client, group, _left_s(deadline) / (len(by_leader) - done))
            found |= ends
            for at in set(group) - set(ends):
                del self._leaders[at]  # the leader may have moved: look it up the next time
        return found

    def _find(self, client: Consumer, topics: Iterable[str], deadline: float) -> None:
        """Look up the leaders of ``topics``."""
        for topic in sorted(topics):
            try:
                answer = client.list_topics(topic, timeout=_left_s(deadline))
            except KafkaException:
                return
            described = answer.topics.get(topic)
            for number, partition in described.partitions.items() if described is not None else ():
                if partition.leader != _NO_LEADER:
                    self._leaders[TopicPartition(topic, number)] = partition.leader


def _ends(
    client: Consumer, group: list[TopicPartition], wait_s: float
) -> dict[TopicPartition, int]:
    try:
        answers = client.offsets_for_times(
            [KafkaPartition(at.topic, at.partition, OFFSET_END) for at in group], timeout=wait_s
        )
    except KafkaException:
        return {}
    return {
        TopicPartition(answer.topic, answer.partition): answer.offset
        for answer in answers
        if answer.error is None
    }


def _left_s(deadline: float) -> float:
    """Return the time left until ``deadline``, in s; never zero, which means no limit to the
    client.
    """
    return max(0.001, deadline - time.monotonic())
