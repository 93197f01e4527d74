"""Partitions, offsets and topic ids of a source's input, as the broker reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.ports import TopicPartition
from anabranch.protocol.edge.missing_input import InputState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch.ports import LogAdmin, LogReader
    from anabranch.protocol.edge.shards import Shard
    from anabranch.protocol.log.records import InputPosition


def input_state(
    admin: LogAdmin,
    reader: LogReader,
    topics: Iterable[str],
    shard: Shard,
    positions: Iterable[InputPosition] = (),
) -> InputState:
    """Ask the broker for the input of ``shard``.

    Args:
        admin: Administration of the log, asked for partitions and topic ids.
        reader: Reader asked for offsets. It must see open transactions, since their records may
            still become visible.
        topics: Topics of the source; those that do not exist are left out.
        shard: Only its partitions count.
        positions: Positions from which the source continues. A topic that still has its recorded
            id has at least these partitions, even if the broker's metadata, which may be older
            than a position, does not list them.

    Raises:
        Unavailable: the broker does not answer, or a partition has no leader at the moment.
    """
    counts = dict(admin.partitions(list(topics)))
    ids = admin.topic_ids(sorted(counts))
    for each in positions:
        if each.topic in counts and each.topic_id in ("", ids.get(each.topic, "")):
            counts[each.topic] = max(counts[each.topic], each.partition + 1)
    offsets = {
        (topic, number): reader.offsets(TopicPartition(topic, number))
        for topic, count in counts.items()
        for number in range(count)
        if shard.has(number)
    }
    return InputState(offsets, ids)
