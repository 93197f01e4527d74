"""Writes a log snapshot and deletes what came before, at once: who begins to read then begins
at the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.codec import boundary_records
from anabranch.ports import EventLog, TopicPartition
from anabranch.streams.boundary_reader import BoundaryReader


def trim_below_snapshot(
    log: EventLog, topic: str, writers: Iterable[str], forgotten: int = 0
) -> int:
    """``forgotten``: buckets up to this one are not described. Returns the first offset that
    is left.
    """
    reader = BoundaryReader(log, topic, writers)
    reader.read_to_end()
    value, headers = boundary_records.encode(
        reader.log_state.snapshot(reader.offset_next, forgotten)
    )
    reader.close()
    writer = log.writer()
    admin = log.admin()
    at = TopicPartition(topic, 0)
    writer.send(at, value, headers=headers)
    writer.flush()
    writer.close()
    admin.delete_before({at: reader.offset_next})
    admin.close()
    return reader.offset_next
