"""Inputs that are deleted and created again under the running pipeline: offsets begin anew, and
only the topic's id tells the new topic from the former one.

The checkers keep the former topics. To them a partition of a topic created again is a partition of
its own, so no offset of one topic is taken for the same offset of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from anabranch.ingestion.batches import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from anabranch.adapters.memory.partition import Record
    from anabranch.codec.catalog import TopicSettings
    from simulation.network import Network

APART: Final = 100
"""Distance between the number of a partition and that of the same partition of the topic that was
created next, as the checkers number them. More than any topic has partitions.
"""


@dataclass(frozen=True)
class FormerTopic:
    """Topic that was deleted, and everything that was ever in it."""

    topic_id: str
    settings: TopicSettings
    partitions: Sequence[Sequence[Record]]
    """Records of each partition by offset, those that retention had deleted included."""

    def data_count(self, partition: int) -> int:
        """Return the number of a partition's records that are no heartbeats."""
        return sum(HEARTBEAT not in dict(each.headers) for each in self.partitions[partition])


@dataclass
class FormerTopics:
    """Topics of inputs that were deleted, oldest first, by name."""

    by_name: dict[str, list[FormerTopic]] = field(default_factory=dict)

    def delete(self, network: Network, topic: str) -> None:
        """Delete ``topic``, and keep what was in it for the checkers."""
        settings, partitions = network.log.topics[topic]
        found = [
            [
                network.trimmed.pop((topic, number, offset))
                if offset < partition.start
                else partition.at(offset)
                for offset in range(partition.end)
            ]
            for number, partition in enumerate(partitions)
        ]
        former = FormerTopic(network.log.topic_ids[topic], settings, found)
        self.by_name.setdefault(topic, []).append(former)
        network.log.admin().delete_topics([topic])
        network.wake({topic})

    def create_again(self, network: Network, topic: str) -> None:
        """Create ``topic`` with the settings that it had."""
        assert not network.log.admin().create([self.by_name[topic][-1].settings])
        network.wake({topic})

    def of(self, topic: str) -> Sequence[FormerTopic]:
        """Return the former topics of this name, oldest first."""
        return self.by_name.get(topic, ())

    def number(self, topic: str, topic_id: str, partition: int) -> int:
        """Return the checkers' number of a partition of the topic with this id."""
        ids = [each.topic_id for each in self.of(topic)]
        life = ids.index(topic_id) if topic_id in ids else len(ids)
        return partition + APART * life

    def records(self, topic: str) -> Iterator[tuple[int, int, Record]]:
        """Yield (number of the partition, offset, record) of the former topics, in order."""
        for life, former in enumerate(self.of(topic)):
            for partition, records in enumerate(former.partitions):
                for offset, record in enumerate(records):
                    yield partition + APART * life, offset, record


def predecessors(partitions: Iterable[int]) -> dict[int, int]:
    """Return, for each partition of a topic that was created again, the same one of the topic
    before.
    """
    return {each: each - APART for each in partitions if each >= APART}


def places(counts: Sequence[int], partition: int, first: int) -> Iterator[tuple[int, int]]:
    """Yield the place of each record that producers send to ``partition``, in order: ``counts`` of
    them went to the former topics, all others to the present one, from offset ``first`` on.
    """
    for life, count in enumerate(counts):
        yield from ((partition + APART * life, offset) for offset in range(count))
    offset = first
    while True:
        yield partition + APART * len(counts), offset
        offset += 1
