"""Where a stage begins that is added to a pipeline whose blocks were deleted in part."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.boundary_log import Outcome
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.late_start import LateStart, live_begins_after, says_late_start
from anabranch.protocol.records import BoundaryKind, BoundaryRecord, EpochStarted, LogEntry, Part

FIRST = BoundaryRecord("0", 0, BatchId("l", 0), None, 7, missing=("a",), made_from=(("a", 7),))
PART = Part(8, 0, "t", 1, 0, 1, 1, 0)


def told(gone: int, *entries: LogEntry, accepted: bool = True, reach_buckets: int = 0) -> LateStart:
    made = LateStart(lambda: gone, reach_buckets)
    for entry in entries:
        made.seen(entry, Outcome(accepted=accepted, reason="", replica="0"))
    return made


def test_a_stage_that_made_nothing_begins_after_what_is_gone() -> None:
    late = told(9, EpochStarted("0", "f", "t"))
    assert (late.decide(), late.after, late.given_up) == (9, 9, 9)
    late = told(0)
    assert (late.decide(), late.given_up) == (0, 0)
    late = told(9, reach_buckets=3)
    assert (late.decide(), late.given_up) == (9, 12)


def test_c1_a_stage_that_made_anything_leaves_nothing_out() -> None:
    for record in (
        replace(FIRST, missing=()), replace(FIRST, parts=(PART,)), replace(FIRST, prev=BatchId("l", 0)), replace(FIRST, base=7),
    ):  # fmt: skip
        assert not says_late_start(record)
        assert told(9, FIRST, record).decide() == 0
        assert told(9, record, accepted=False).decide() == 9, "a record that does not count says nothing"
    assert told(9, replace(FIRST, kind=BoundaryKind.TENTATIVE, prev=BatchId("l", 0))).decide() == 9, "nor does a branch"


@pytest.mark.parametrize("gone", [0, 9])
def test_c2_all_begin_where_the_first_has_said(gone: int) -> None:
    assert says_late_start(FIRST)
    assert told(gone, FIRST).decide() == 7


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
