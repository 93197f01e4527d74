"""Cleaner of the broker: deletes from topics at any moment what their settings allow. Retention
deletes old records, compaction those that a newer record of the same key replaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.memory.partition import Partition, Record
from anabranch.ports import TopicPartition
from simulation.committed import is_committed
from simulation.network import Network

RETENTION: Final = 0
"""Control topics keep their newest records alone."""
COMPACTION: Final = 1
"""Compacted topics keep the newest record of each key."""
INPUT: Final = 2
"""Input partitions lose what their source has recorded as read."""
KINDS: Final = (RETENTION, COMPACTION, INPUT)


def clean(network: Network, kind: int, retained: int, read: Mapping[tuple[str, int], int]) -> None:
    """Do what ``kind`` says.

    Args:
        network: With the log.
        kind: One of ``KINDS``.
        retained: Number of newest records of each partition that stay whatever they are, as
            those in a segment that is being written do.
        read: (topic, partition) of the inputs -> offset up to which its source has read.
    """
    log = network.log
    if kind == COMPACTION:
        for topic in _with_policy(log, "compact"):
            for number, partition in enumerate(log.topics[topic][1]):
                for offset, record in compact(partition, retained):
                    network.trimmed[topic, number, offset] = record
        network.history.reached("topics compacted")
        return
    if kind == RETENTION:
        ends = {
            at: log.partition(at).end - retained
            for topic in _with_policy(log, "compact,delete")
            for at in [TopicPartition(topic, 0)]
        }
    else:
        ends = {TopicPartition(*at): offset for at, offset in read.items()}
    network.delete({at: max(0, end) for at, end in ends.items()}, log.admin())


def _with_policy(log: LocalEventLog, policy: str) -> list[str]:
    """Return the topics whose ``cleanup.policy`` has ``policy`` in it."""
    return [
        topic
        for topic, (settings, _) in log.topics.items()
        if policy in settings.config.get("cleanup.policy", "")
    ]


def compact(partition: Partition, retained: int) -> Iterator[tuple[int, Record]]:
    """Delete each record that a newer one of its key replaces, of those that committed readers see
    and that are below the newest ``retained``; yield it with its offset, which stays empty.
    """
    end = max(partition.start, partition.readable_end(committed=True) - retained)
    newest: dict[bytes | None, int] = {}
    records = partition._records
    for offset in range(partition.start, end):
        record = partition.at(offset)
        if record.control or record.key is None:
            continue
        counts = is_committed(record)
        place = newest.get(record.key) if counts else offset
        if counts:
            newest[record.key] = offset
        if place is not None:
            gone = records[place - partition.start]
            records[place - partition.start] = replace(gone, value=None, headers=(), control=True)
            if counts:
                yield place, gone
