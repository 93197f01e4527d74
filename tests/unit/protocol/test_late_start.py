"""Where a stage begins that is added to a pipeline whose blocks were deleted in part."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.boundary_log import StreamFold
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.late_start import LateStart, live_begins_after, output_begins_after
from anabranch.protocol.origins import says_late_start
from anabranch.protocol.records import BoundaryKind, BoundaryRecord, EpochStarted, Part

FIRST = BoundaryRecord("0", 0, BatchId("l", 0), None, 7, missing=("a",), made_from=(("a", 7),))
PART = Part(8, 0, "t", 1, 0, 1, 1, 0)


def fold_of(*records: BoundaryRecord, summed_up: bool = False) -> StreamFold:
    """Of a log with an epoch of each of two replicas, in which ``records`` follow each other."""
    fold = StreamFold(["0", "1"])
    for offset, replica in enumerate(fold.writers):
        fold.apply(offset, EpochStarted(replica, "f", "t"))
    for number, record in enumerate(records):
        fold.apply(2 + number, replace(record, id=BatchId("l", number)))
    return StreamFold.from_summary(fold.summary(99)) if summed_up else fold


def test_a_stage_that_made_nothing_begins_after_what_is_gone() -> None:
    late = LateStart(lambda: 9)
    assert (late.decide(fold_of()), late.after, late.given_up) == (9, 9, 9)
    late = LateStart(lambda: 0)
    assert (late.decide(fold_of()), late.given_up) == (0, 0)
    late = LateStart(lambda: 9, horizon_buckets=3)
    assert (late.decide(fold_of()), late.given_up) == (9, 12)


@pytest.mark.parametrize("summed_up", [False, True])
@pytest.mark.parametrize(
    "record",
    [
        replace(FIRST, missing=()), replace(FIRST, parts=(PART,)), replace(FIRST, prev=BatchId("l", 0)), replace(FIRST, base=7),
        replace(FIRST, replica="1", epoch=1, missing=()),
    ],
)  # fmt: skip
def test_c1_a_stage_that_made_anything_leaves_nothing_out(record: BoundaryRecord, summed_up: bool) -> None:
    """Nor does one of whose log a summary is left."""
    late = LateStart(lambda: 9)
    assert late.decide(fold_of(FIRST, record, summed_up=summed_up)) == 0
    assert late.decide(fold_of(FIRST, replace(record, epoch=55), summed_up=summed_up)) == 7, "a record that does not count says nothing"


def test_c1_a_branch_is_no_result() -> None:
    tentative = replace(FIRST, kind=BoundaryKind.TENTATIVE, prev=BatchId("l", 0), base=7, closed=8, branch=(0, 1))
    fold = fold_of(FIRST, tentative)
    assert fold.tentative_upto("0") == 8
    assert LateStart(lambda: 9).decide(fold) == 7


@pytest.mark.parametrize("summed_up", [False, True])
@pytest.mark.parametrize("gone", [0, 9])
def test_c2_all_begin_where_the_first_has_said(gone: int, summed_up: bool) -> None:
    assert says_late_start(FIRST)
    assert LateStart(lambda: gone).decide(fold_of(FIRST, summed_up=summed_up)) == 7
    assert LateStart(lambda: gone).decide(fold_of(FIRST, replace(FIRST, closed=5), summed_up=summed_up)) == 7, "one that is behind"


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
def test_a_live_topic_begins_where_the_corrected_one_is(delivered: int | None, gone: int, begun: int | None, after: int) -> None:
    """Where nothing is delivered yet: after what is gone by now."""
    assert live_begins_after(delivered, 3, lambda: gone, begun) == after
