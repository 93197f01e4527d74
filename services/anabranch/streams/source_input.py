"""Description of a source's input topics by the broker: partitions, offsets, identities."""

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
        positions: Where the source goes on. A topic that still has its recorded identity has these
            partitions, whatever the first answer said: metadata may be older than a position.

    Raises:
        Unavailable: no answer, or a partition has no leader at the moment.
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
