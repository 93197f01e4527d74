"""What of the beginning of a log a start must know: it follows from record to record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.origins import origin_after
from anabranch.protocol.log.records import BoundaryRecord, Origin, Part

FIRST = BoundaryRecord("0", 0, BatchId("l", 0), None, 7)
NEXT = replace(FIRST, id=BatchId("l", 1), prev=BatchId("l", 0), closed=9)
ONE = Origin(tip_by="f", made_by="f", has_results=True)
PART = Part(3, 0, "t", 1, 0, 1, 1, 0)


@pytest.mark.parametrize(
    ("before", "record", "closed", "plan", "after"),
    [
        (Origin(), FIRST, 0, "f", ONE),
        (ONE, NEXT, 7, "f", ONE),
        (ONE, NEXT, 7, "g", replace(ONE, tip_by="g", made_by="g", made_after=7)),
        (ONE, replace(NEXT, closed=7), 7, "g", replace(ONE, tip_by="g")),
        (
            replace(ONE, tip_by="g"),
            replace(NEXT, closed=8),
            7,
            "g",
            replace(ONE, tip_by="g", made_by="g", made_after=7),
        ),
        (
            Origin(),
            replace(FIRST, missing=("a",)),
            0,
            "f",
            Origin(tip_by="f", made_by="f", gap=7, late_upto=7),
        ),
        (Origin(), replace(FIRST, missing=("a",), parts=(PART,)), 0, "f", replace(ONE, gap=7)),
        (replace(ONE, gap=7), replace(NEXT, missing=("a",)), 7, "f", replace(ONE, gap=7)),
        (replace(ONE, gap=7), FIRST, 0, "f", ONE),
        (
            replace(ONE, late_upto=9),
            replace(FIRST, missing=("a",)),
            9,
            "f",
            replace(ONE, late_upto=9, gap=7, open_upto=9),
        ),
        (ONE, FIRST, 9, "f", replace(ONE, open_upto=9)),
        (replace(ONE, open_upto=9), replace(NEXT, closed=9), 9, "f", replace(ONE, open_upto=9)),
        (replace(ONE, open_upto=9), replace(NEXT, closed=10), 9, "f", ONE),
        (ONE, replace(FIRST, base=9, closed=9), 7, "f", ONE),
    ],
    ids=[
        "the first results",
        "more of them",
        "by another plan",
        "of which nothing was closed",
        "and then something",
        "a late start",
        "which leaves nothing out",
        "a gap that goes on",
        "and is no more",
        "a second late start behind the first",
        "a chain begins anew",
        "and is open",
        "until something new is closed",
        "with a copied checkpoint",
    ],
)
def test_what_follows_from_a_record(
    before: Origin, record: BoundaryRecord, closed: int, plan: str, after: Origin
) -> None:
    assert origin_after(before, record, closed, plan) == after
