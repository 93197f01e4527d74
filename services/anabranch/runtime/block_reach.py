"""Are the blocks still there that come after a position? Asked before a start, so that it does not end in the middle of its first batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.ports import LogReader, TopicPartition
from anabranch.protocol.boundary_log import StreamFold

_BUCKETS: Final = 1_000
"""So many non-empty buckets after the position are looked at: what is deleted is deleted from the front."""


def missing_blocks(reader: LogReader, topic_of: Callable[[str], str], fold: StreamFold, after: int) -> int | None:
    """The first stable bucket after ``after`` of which blocks are gone; None: none of them is.

    Args:
        reader: Of the log, to ask for the beginnings of partitions.
        topic_of: (writer) -> its block topic.
        fold: The stream, read to its end.
        after: What was read already.

    Raises:
        Unavailable: the log does not answer.
    """
    if fold.upto <= after:
        return None
    begins: dict[TopicPartition, int] = {}
    for bucket, writer, parts in fold.stable(max(after, fold.forgotten) + 1, fold.upto, _BUCKETS):
        for part in parts:
            at = TopicPartition(topic_of(writer), part.partition)
            if at not in begins:
                begins[at] = reader.offsets(at)[0]
            if part.offset_first < begins[at]:
                return bucket
    return None
