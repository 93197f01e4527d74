"""Log whose records are all deleted, as by retention or by hand, until a person restores them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.ports import TopicPartition


@contextmanager
def emptied(log: LocalEventLog, topic: str) -> Iterator[None]:
    """Delete all records of ``topic``, which has one partition; put them back in the end."""
    partition = log.partition(TopicPartition(topic, 0))
    gone = [partition.at(offset) for offset in range(partition.start, partition.end)]
    partition.trim(partition.end)
    yield
    partition._records[:0] = gone
    partition.start -= len(gone)
