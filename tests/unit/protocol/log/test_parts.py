"""A record with too many parts, as several."""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.codec import boundary_records
from anabranch.protocol.errors import TooManyParts
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import (
    CHAIN_RECORDS_MAX,
    CHECKPOINT_BATCHES_RETAINED,
    PARTS_PER_RECORD_MAX,
)
from anabranch.protocol.log import boundary_log
from anabranch.protocol.log import parts as parts_module
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.parts import PIECES_MAX, pieces
from anabranch.protocol.log.records import BoundaryRecord
from harness.boundary_logs import part, record, started, state_after


@pytest.fixture(autouse=True)
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "PARTS_PER_RECORD_MAX", 2)


def stable(log_state: LogState) -> list[tuple[int, list[str]]]:
    return [
        (bucket, sorted(p.attempt for p in parts))
        for bucket, _, parts in log_state.stable(log_state.forgotten + 1, log_state.upto)
    ]


WHOLE = record(
    0,
    1,
    9,
    tuple(part(bucket, f"{n}") for n, bucket in enumerate((9, 3, 4, 4, 4, 7, 12, 12, 11))),
    prev=BatchId("l", 0),
)


def test_rp1_a_record_that_is_small_enough_stays_as_it_is() -> None:
    small = dataclasses.replace(WHOLE, parts=WHOLE.parts[:2])
    assert list(pieces(small)) == [small]


def test_rp1_rp2_rp4_the_pieces_together_say_what_the_record_says() -> None:
    cut = list(pieces(WHOLE))
    assert [[p.bucket for p in piece.parts] for piece in cut] == [
        [3, 4],
        [4, 4],
        [7, 9],
        [11, 12],
        [12],
    ]
    assert [piece.closed for piece in cut] == [3, 6, 9, 9, 9]
    idents = [piece.id for piece in cut]
    assert idents == [*(BatchId("l.pieces", PIECES_MAX + n) for n in (1, 2, 3, 4)), WHOLE.id]
    assert [piece.prev for piece in cut] == [WHOLE.prev, *idents[:-1]]
    whole, log_state = (
        state_after(started(), record(0, 0, 2), WHOLE),
        state_after(started(), record(0, 0, 2), *cut),
    )
    assert stable(log_state) == stable(whole)
    assert (log_state.upto, log_state.tip("0"), log_state.pending_count("0")) == (
        whole.upto,
        whole.tip("0"),
        3,
    )
    following = record(0, 2, 12)
    assert log_state.apply(99, following).accepted
    assert stable(log_state)[-1] == (12, ["6", "7"])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_rp3_a_batch_that_is_run_again_cuts_off_the_pieces_of_the_first_run(count: int) -> None:
    log_state = state_after(started(), record(0, 0, 2), *list(pieces(WHOLE))[:count], started())
    again = dataclasses.replace(WHOLE, epoch=count + 2, id=BatchId("m", 1))
    for number, piece in enumerate(pieces(again)):
        assert log_state.apply(count + 3 + number, piece).accepted
    assert stable(log_state) == stable(state_after(started(), record(0, 0, 2), WHOLE))
    assert (log_state.tip("0"), log_state.pending_count("0")) == (BatchId("m", 1), 3)


def test_a_piece_that_comes_twice_is_known() -> None:
    cut = list(pieces(WHOLE))
    log_state = state_after(started(), record(0, 0, 2), cut[0], cut[1])
    assert [log_state.apply(9, piece).reason for piece in (cut[0], cut[1])] == ["known", "known"]


def test_rp4_a_late_copy_of_the_record_before_is_known_however_many_pieces_came_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(boundary_log, "TIMELINES_MAX", 2)
    before = record(0, 0, 2)
    log_state = state_after(started(), before, *pieces(WHOLE))
    assert (log_state.apply(9, before).reason, log_state.apply(10, WHOLE).reason) == (
        "known",
        "known",
    )
    following = dataclasses.replace(
        WHOLE,
        id=BatchId("l", 2),
        prev=WHOLE.id,
        closed=20,
        parts=tuple(part(bucket) for bucket in (13, 14, 15, 16, 17)),
    )
    assert [
        log_state.apply(11 + number, piece).reason for number, piece in enumerate(pieces(following))
    ] == ["accepted"] * 3


def test_rp5_a_batch_has_so_few_pieces_that_the_record_before_it_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert PIECES_MAX < CHAIN_RECORDS_MAX - CHECKPOINT_BATCHES_RETAINED
    monkeypatch.setattr(parts_module, "PIECES_MAX", 4)
    with pytest.raises(TooManyParts, match="in 9 parts, more than 4 records name"):
        next(pieces(WHOLE))
    assert len(list(pieces(dataclasses.replace(WHOLE, parts=WHOLE.parts[1:])))) == 4


def test_the_first_piece_begins_the_branch() -> None:
    begins = dataclasses.replace(
        record(
            0,
            5,
            4,
            tuple(part(bucket) for bucket in (3, 4, 4, 8)),
            timeline="b",
            branch=(0, 1),
            base=2,
            prev=BatchId("l", 0),
        ),
        missing=("x",),
    )
    cut = list(pieces(begins))
    assert [(piece.base, piece.branch, piece.missing) for piece in cut] == [
        (2, (0, 1), ("x",)),
        (None, (0, 1), ("x",)),
    ]
    log_state = state_after(started(), record(0, 0, 2), *cut)
    found = log_state.tentative("0", 4)
    assert found is not None
    assert (
        log_state.tentative_upto("0"),
        len(found.parts),
        log_state.accepted("0", begins.id),
    ) == (4, 2, True)


def test_a_backlog_of_sliding_windows_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three days of readings, one a minute, in windows of five minutes that slide by ten
    seconds: 24 575 buckets.
    """
    monkeypatch.undo()
    every = tuple(part(20 * n) for n in range(1, 24_576))
    whole = BoundaryRecord(
        "0", 0, BatchId("000000000000-000000", 2), None, closed=20 * 24_575, parts=every
    )
    cut = list(pieces(whole))
    assert [len(piece.parts) for piece in cut] == [
        PARTS_PER_RECORD_MAX,
        24_575 - PARTS_PER_RECORD_MAX,
    ]
    log_state = LogState(["0"])
    log_state.apply(0, started())
    for offset, piece in enumerate(cut):
        assert log_state.apply(
            offset + 1, boundary_records.decode(boundary_records.encode(piece)[0])
        ).accepted
    assert (log_state.upto, log_state.stable_parts) == (whole.closed, 24_575)
