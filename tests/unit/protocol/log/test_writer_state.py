"""One writer of a boundary log, by itself. As a part of the log's state: test_boundary_log.py."""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log import writer_state
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


def test_a_bucket_has_the_parts_that_were_named_until_it_was_closed() -> None:
    writer = after(record(0, 0, 0, (part(2, "a"),)), record(0, 1, 5, (part(2, "b"), part(9))))
    assert writer.closed == 5
    assert writer.closed_parts.get(2) == (part(2, "a"), part(2, "b"))
    assert [each for _, each in writer.pending.items()] == [part(9)]
    assert writer.path == [BatchId("l", 0), BatchId("l", 1)]


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


def test_bl2_the_oldest_timeline_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_state, "TIMELINES_MAX", 2)
    writer = WriterState()
    for name in "abc":
        writer.know(BatchId(name, 0))
    assert list(writer.timelines) == ["b", "c"]


def test_bl3_a_record_cuts_off_what_lies_behind_the_one_that_it_continues() -> None:
    writer = after(
        record(0, 0, 0, (part(2, "a"),)),
        record(0, 1, 0, (part(2, "b"),)),
        record(0, 2, 0, (part(3),)),
    )
    again = dataclasses.replace(record(0, 1, 0), id=BatchId("m", 1), prev=BatchId("l", 0))
    assert writer.rewind(again, 0) == ""
    assert writer.path == [BatchId("l", 0)]
    assert [each for _, each in writer.pending.items()] == [part(2, "a")]


def test_bl3_a_record_that_continues_nothing_known_changes_nothing() -> None:
    writer = after(record(0, 0, 0, (part(2),)))
    stray = dataclasses.replace(record(0, 9, 4), prev=BatchId("x", 8))
    assert writer.rewind(stray, 0) == "off_chain"
    assert (writer.path, writer.closed, len(writer.pending)) == ([BatchId("l", 0)], 0, 1)


def test_bl6_what_a_base_covers_is_not_its_own() -> None:
    writer = after(record(0, 0, 0, (part(2),)))
    copied = dataclasses.replace(record(0, 1, 8), base=8, prev=BatchId("peer", 3))
    assert writer.rewind(copied, 0) == ""
    assert (writer.base, writer.closed, len(writer.pending)) == (8, 8, 0)
    assert writer.path == [BatchId("peer", 3)]
    assert not writer.take(copied, 0), "nothing beyond the base"


def test_bl13_a_writer_has_no_more_open_parts_than_all_readers_can_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer_state, "PENDING_PARTS_MAX", 2)
    writer = after(record(0, 0, 0, (part(2), part(3))))
    assert writer.rewind(record(0, 1, 0, (part(4),)), 0) == "pending"
    assert writer.rewind(record(0, 1, 3), 0) == "", "it closes what is open"


def test_bl13_parts_behind_a_hole_count_as_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_state, "PENDING_PARTS_MAX", 1)
    writer = WriterState(base=5, closed=5)
    writer.take(record(0, 0, 9, (part(7), part(8))), 0)
    assert writer.rewind(record(0, 1, 10), 4) == "pending", "what lies before bucket 5 is missing"
    assert writer.rewind(record(0, 1, 10), 5) == ""


def test_bl8_it_comes_back_from_its_snapshot() -> None:
    writer = after(
        record(0, 0, 0, (part(2, "a"), part(2, "b"), part(9))), record(0, 1, 5, (part(4),))
    )
    again = WriterState.from_snapshot(writer.snapshot("0", [2, 4]))
    assert again.snapshot("0", [2, 4]) == writer.snapshot("0", [2, 4])
    assert again.closed_parts.get(2) == (part(2, "a"), part(2, "b"))
    assert again.rewind(record(0, 2, 6), 5) == ""
