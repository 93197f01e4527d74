"""What of the beginning of a log a start must know: it follows from record to record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.origins import NODE_CHANGES_MAX, origin_after
from anabranch.protocol.log.records import BoundaryRecord, MadeOn, Origin, Part

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


def test_who_made_a_bucket_follows_from_the_nodes_that_closed_something_new() -> None:
    origin, closed = Origin(), 0
    for node, upto in (("a", 5), ("a", 6), ("b", 6), ("b", 8), ("a", 9), ("", 10)):
        origin = origin_after(origin, replace(NEXT, closed=upto), closed, "f", node)
        closed = upto
    assert origin.made_on == (MadeOn("a", 0), MadeOn("b", 6), MadeOn("a", 8), MadeOn("", 9))
    made = {bucket: origin.node_of(bucket) for bucket in range(1, 11)}
    assert made == dict.fromkeys((1, 2, 3, 4, 5, 6, 9), "a") | {7: "b", 8: "b", 10: ""}


def test_of_what_was_made_too_many_nodes_ago_nobody_is_known() -> None:
    origin = Origin()
    for closed in range(NODE_CHANGES_MAX + 1):
        record = replace(NEXT, closed=closed + 1)
        origin = origin_after(origin, record, closed, "f", f"n{closed % 2}")
    assert len(origin.made_on) == NODE_CHANGES_MAX
    assert (origin.node_of(1), origin.node_of(2)) == ("", "n1")
