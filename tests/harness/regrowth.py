"""Loss of a partition of blocks, which then grows past the offsets that it had."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from anabranch.adapters.memory.cluster import LocalCluster
from anabranch.adapters.memory.partition import Record
from anabranch.codec.blocks import BlockHeaders
from anabranch.ports import TopicPartition

_OTHER: Final = "f" * 16
"""Attempt of the blocks that are written after the loss."""


def lose_and_grow(log: LocalCluster, at: TopicPartition) -> list[Record]:
    """Lose all records of a partition of blocks, as with the only disk that had them, and write as
    many blocks of another attempt, of the same buckets, with other rows. Return the lost records.
    """
    partition = log.partition(at)
    lost = [partition.at(offset) for offset in range(partition.start, partition.end)]
    partition.cut(partition.start)
    for number, record in enumerate(lost):
        head = replace(BlockHeaders.decode(record.headers), attempt=_OTHER)
        value = lost[number - 1].value
        partition.append(replace(record, value=value, headers=head.encode()))
    return lost
