"""Administration of topics in memory: an implementation of ``ports.LogAdmin``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.adapters.memory.partition import Partition
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.topic_rules import differences
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import RECORD_BYTES_ON_BROKER_MAX

if TYPE_CHECKING:
    from anabranch.adapters.memory.cluster import LocalCluster


_DEFAULTS: Final = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": str(RECORD_BYTES_ON_BROKER_MAX),
}


class LocalLogAdmin:
    """Administrator of the topics of a ``LocalCluster``."""

    def __init__(self, log: LocalCluster) -> None:
        self._log = log

    def create(self, topics: Sequence[TopicSettings]) -> list[str]:
        """Create the missing ones of ``topics``; return how existing ones differ from the wanted
        settings, as sentences.
        """
        sentences: list[str] = []
        with self._log.changed:
            for topic in topics:
                if topic.partitions < 1:
                    message = f"topic {topic.name}: {topic.partitions} partitions"
                    raise Unavailable(message)
                if topic.name not in self._log.topics:
                    self._log.topics[topic.name] = (
                        topic,
                        [Partition() for _ in range(topic.partitions)],
                    )
                    self._log.topics_created += 1
                    self._log.topic_ids[topic.name] = f"{topic.name}.{self._log.topics_created}"
                    continue
                _, partitions = self._log.topics[topic.name]
                sentences += differences(topic, len(partitions), None, self._settings(topic.name))
        return sentences

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """Return the number of partitions of each topic that exists; missing topics are
        left out.
        """
        with self._log.changed:
            return {
                topic: len(self._log.topics[topic][1])
                for topic in topics
                if topic in self._log.topics
            }

    def copies(self, topics: Sequence[str]) -> dict[str, int]:
        """Return the number of copies that each topic was created with; missing topics are left
        out. The cluster's own number is one.
        """
        with self._log.changed:
            return {
                topic: max(1, self._log.topics[topic][0].replication)
                for topic in topics
                if topic in self._log.topics
            }

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the identity of each topic that exists."""
        with self._log.changed:
            return {
                topic: self._log.topic_ids[topic] for topic in topics if topic in self._log.topics
            }

    def named(self, prefix: str) -> list[str]:
        """Return the topics whose names begin with ``prefix``."""
        with self._log.changed:
            return sorted(topic for topic in self._log.topics if topic.startswith(prefix))

    def settings(self, topic: str) -> dict[str, str]:
        """Return the topic's configuration; of the defaults only those that this project reads.

        Raises:
            Unavailable: no such topic.
        """
        with self._log.changed:
            return self._settings(topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic until it has ``partitions``.

        Raises:
            Unavailable: no such topic.
        """
        with self._log.changed:
            self._settings(topic)
            _, existing = self._log.topics[topic]
            existing += [Partition() for _ in range(len(existing), partitions)]

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records below these offsets.

        Raises:
            Unavailable: no such partition, or an offset is beyond its end.
        """
        with self._log.changed:
            for at, offset in offsets.items():
                partition = self._log.partition(at)
                if offset > partition.end:
                    raise Unavailable(
                        f"delete records of {at.topic}[{at.partition}] below {offset}: it ends at"
                        f" {partition.end}"
                    )
                partition.trim(offset)

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete these topics with all their records."""
        with self._log.changed:
            for topic in topics:
                self._log.topics.pop(topic, None)

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _settings(self, topic: str) -> dict[str, str]:
        if topic not in self._log.topics:
            message = f"unknown topic {topic}"
            raise Unavailable(message)
        return {**_DEFAULTS, **self._log.topics[topic][0].config}
