"""Where a stage begins that is added to a pipeline whose blocks were deleted in part."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.origins import says_late_start
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, EpochStarted, Part
from anabranch.protocol.stage.late_start import LateStart, live_begins_after, output_begins_after

FIRST = BoundaryRecord("0", 0, BatchId("l", 0), None, 7, missing=("a",), made_from=(("a", 7),))
PART = Part(8, 0, "t", 1, 0, 1, 1, 0)


def log_state_of(*records: BoundaryRecord, from_snapshot: bool = False) -> LogState:
    """Of a log with an epoch of each of two replicas, in which ``records`` follow each other."""
    log_state = LogState(["0", "1"])
    for offset, replica in enumerate(log_state.writers):
        log_state.apply(offset, EpochStarted(replica, "f", "t"))
    for number, record in enumerate(records):
        log_state.apply(2 + number, replace(record, id=BatchId("l", number)))
    return LogState.from_snapshot(log_state.snapshot(99)) if from_snapshot else log_state


def test_a_stage_that_made_nothing_begins_after_what_is_gone() -> None:
    late = LateStart(lambda: 9)
    assert (late.decide(log_state_of()), late.after, late.given_up) == (9, 9, 9)
    late = LateStart(lambda: 0)
    assert (late.decide(log_state_of()), late.given_up) == (0, 0)
    late = LateStart(lambda: 9, horizon_buckets=3)
    assert (late.decide(log_state_of()), late.given_up) == (9, 12)


@pytest.mark.parametrize("from_snapshot", [False, True])
@pytest.mark.parametrize(
    "record",
    [
        replace(FIRST, missing=()),
        replace(FIRST, parts=(PART,)),
        replace(FIRST, prev=BatchId("l", 0)),
        replace(FIRST, base=7),
        replace(FIRST, replica="1", epoch=1, missing=()),
    ],
)
def test_la1_a_stage_that_made_anything_leaves_nothing_out(
    record: BoundaryRecord, from_snapshot: bool
) -> None:
    """Nor does one of whose log a log snapshot is left."""
    late = LateStart(lambda: 9)
    assert late.decide(log_state_of(FIRST, record, from_snapshot=from_snapshot)) == 0
    assert (
        late.decide(log_state_of(FIRST, replace(record, epoch=55), from_snapshot=from_snapshot))
        == 7
    ), "a record that does not count says nothing"


def test_la1_a_branch_is_no_result() -> None:
    tentative = replace(
        FIRST, kind=BoundaryKind.TENTATIVE, prev=BatchId("l", 0), base=7, closed=8, branch=(0, 1)
    )
    log_state = log_state_of(FIRST, tentative)
    assert log_state.tentative_upto("0") == 8
    assert LateStart(lambda: 9).decide(log_state) == 7


@pytest.mark.parametrize("from_snapshot", [False, True])
@pytest.mark.parametrize("gone", [0, 9])
def test_la2_all_begin_where_the_first_has_said(gone: int, from_snapshot: bool) -> None:
    assert says_late_start(FIRST)
    assert LateStart(lambda: gone).decide(log_state_of(FIRST, from_snapshot=from_snapshot)) == 7
    assert (
        LateStart(lambda: gone).decide(
            log_state_of(FIRST, replace(FIRST, closed=5), from_snapshot=from_snapshot)
        )
        == 7
    ), "one that is behind"


def test_an_output_that_has_delivered_leaves_nothing_out() -> None:
    assert output_begins_after(lambda: 6, has_delivered=False) == 6
    assert output_begins_after(lambda: 6, has_delivered=True) == 0


@pytest.mark.parametrize(
    ("delivered", "gone", "begun", "after"),
    [
        (None, 0, None, 0),
        (None, 6, None, 6),
        (None, 6, 4, 6),
        (None, 6, 8, 8),
        (9, 6, None, 9),
        (2, 6, None, 3),
        (9, 6, 4, 4),
        (2, 6, 0, 0),
    ],
)
def test_a_live_topic_begins_where_the_corrected_one_is(
    delivered: int | None, gone: int, begun: int | None, after: int
) -> None:
    """Where nothing is delivered yet: after what is gone by now."""
    assert live_begins_after(delivered, 3, lambda: gone, begun) == after
