"""The shards of a source or of an output: processes that share its work by the partitions of its
topics.

Theory of operation. Which shard has a partition follows from the partition's number alone, so one
that is added later has its shard, and no two shards have the same one. A source or output of one
shard is the process of its name; the processes of several are called by its name and their number.

A source may get another number of shards (``protocol.edge.handover``). Its *generations* are the
numbers that it has had, in their order. Those of the first are called as said above, and of each
later one they have its number in their names, so no two generations have a process or a log in
common.

Invariants:
    MB1 every partition of a topic is exactly one shard's.
    MB2 the names of processes of several shards are no names that a pipeline file can have, and
        ``whole_of`` finds the source's or output's name in them.
    MB3 the processes of different generations have different names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.protocol.limits import SHARDS_MAX

_DOT: Final = "."
"""No name has one, and Kafka's rights by prefix can end with one."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the ``count`` processes that share a source or output."""

    index: int = 0
    count: int = 1

    def has(self, partition: int) -> bool:
        """Return whether this shard has the topic partition ``partition`` (MB1)."""
        return partition % self.count == self.index


def members(name: str, shards: int, generation: int = 1) -> list[str]:
    """Return the processes of a source or output, by shard."""
    if generation > 1:
        return [f"{name}{_DOT}{generation}-{index}" for index in range(shards)]
    return [name] if shards == 1 else [f"{name}{_DOT}{index}" for index in range(shards)]


def unexpected_members(name: str, shards: int, generation: int = 1) -> list[str]:
    """Return the processes that a source or output would have only with other numbers of shards."""
    own = members(name, shards, generation)
    every = [name, *members(name, SHARDS_MAX)]
    if generation > 1:
        every = members(name, SHARDS_MAX, generation)
    return [each for each in every if each not in own]


def another_number(whose: str, shards: int) -> str:
    """Return the beginning of a message about a source or output that had another number of
    shards.
    """
    count = "no shards" if shards == 1 else f"{shards} shards"
    return f"{whose} has {count} in the pipeline file, but it had another number when it ran before"


def whole_of(member: str) -> str:
    """Return the source or output of one of its processes (MB2)."""
    return member.partition(_DOT)[0]
