"""One writer of a boundary log, by itself. As a part of the log's state: test_boundary_log.py."""

from __future__ import annotations

import dataclasses

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord
from anabranch.protocol.log.writer_state import WriterState
from harness.boundary_logs import part, record, started


def after(*records: BoundaryRecord) -> WriterState:
    """Return a writer that has begun and taken these records, each of which counts."""
    writer = WriterState()
    writer.begin(0, started())
    for each in records:
        assert writer.rewind(each, 0) == ""
        writer.take(each, 0)
        writer.know(each.id)
    return writer


def test_a_record_that_closes_nothing_says_so_and_one_may_close_what_is_forgotten() -> None:
    writer = WriterState()
    assert not writer.take(record(0, 0, 0, (part(2), part(3))), 0)
    assert writer.take(record(0, 1, 3), 2)
    assert writer.closed_parts.between(0, 9) == [3]


def test_bl2_an_id_is_known_until_the_next_epoch() -> None:
    writer = after(record(0, 0, 1), record(0, 1, 2))
    assert writer.knows(BatchId("l", 0))
    assert writer.knows(BatchId("l", 1))
    assert not writer.knows(BatchId("l", 2))
    assert not writer.knows(BatchId("other", 0))
    writer.begin(7, started())
    assert not writer.knows(BatchId("l", 1))
    assert writer.path[-1] == BatchId("l", 1), "the chain goes on"


def test_bl6_what_a_base_covers_is_not_its_own() -> None:
    writer = after(record(0, 0, 0, (part(2),)))
    copied = dataclasses.replace(record(0, 1, 8), base=8, prev=BatchId("peer", 3))
    assert writer.rewind(copied, 0) == ""
    assert (writer.base, writer.closed, len(writer.pending)) == (8, 8, 0)
    assert writer.path == [BatchId("peer", 3)]
    assert not writer.take(copied, 0), "nothing beyond the base"
