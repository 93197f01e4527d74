"""What follows from a record of a boundary log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import ROW_BYTES_WEIGHED
from anabranch.protocol.log.records import (
    NODE_CHANGES_MAX,
    REJECTED_ATTEMPT,
    BoundaryRecord,
    BranchSnapshot,
    EpochStarted,
    GivenUp,
    LogSnapshot,
    MadeOn,
    Part,
    Provenance,
    ReplicaSnapshot,
    TentativeRange,
    as_known_here,
    origin_after,
)


def test_the_attempt_of_a_part_says_whether_it_holds_notices() -> None:
    part = Part(1, 0, "a", 1, 0, 1, rows=1, digest=1)
    assert not part.is_rejected
    assert replace(part, attempt=part.attempt + REJECTED_ATTEMPT).is_rejected


def test_a_part_weighs_as_much_as_its_rows_or_more_where_they_are_wide() -> None:
    part = Part(1, 0, "a", 1, 0, 1, 2, 3)
    assert part.weight == 2
    assert replace(part, size_bytes=2 * ROW_BYTES_WEIGHED).weight == 2
    assert replace(part, size_bytes=3 * ROW_BYTES_WEIGHED).weight == 3


FIRST = BoundaryRecord("0", 0, BatchId("l", 0), None, 7)
NEXT = replace(FIRST, id=BatchId("l", 1), prev=BatchId("l", 0), closed=9)
ONE = Provenance(tip_by="f", made_by="f", has_results=True)
PART = Part(3, 0, "t", 1, 0, 1, 1, 0)


@pytest.mark.parametrize(
    ("before", "record", "closed", "plan", "after"),
    [
        (Provenance(), FIRST, 0, "f", ONE),
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
            Provenance(),
            replace(FIRST, missing=("a",)),
            0,
            "f",
            Provenance(tip_by="f", made_by="f", gap=7, late_upto=7),
        ),
        (Provenance(), replace(FIRST, missing=("a",), parts=(PART,)), 0, "f", replace(ONE, gap=7)),
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
    before: Provenance, record: BoundaryRecord, closed: int, plan: str, after: Provenance
) -> None:
    assert origin_after(before, record, closed, plan) == after


def test_who_made_a_bucket_follows_from_the_nodes_that_closed_something_new() -> None:
    origin, closed = Provenance(), 0
    for node, upto in (("a", 5), ("a", 6), ("b", 6), ("b", 8), ("a", 9), ("", 10)):
        origin = origin_after(origin, replace(NEXT, closed=upto), closed, "f", node)
        closed = upto
    assert origin.made_on == (MadeOn("a", 0), MadeOn("b", 6), MadeOn("a", 8), MadeOn("", 9))
    made = {bucket: origin.node_of(bucket) for bucket in range(1, 11)}
    assert made == dict.fromkeys((1, 2, 3, 4, 5, 6, 9), "a") | {7: "b", 8: "b", 10: ""}


def test_of_what_was_made_too_many_nodes_ago_nobody_is_known() -> None:
    origin = Provenance()
    for closed in range(NODE_CHANGES_MAX + 1):
        record = replace(NEXT, closed=closed + 1)
        origin = origin_after(origin, record, closed, "f", f"n{closed % 2}")
    assert len(origin.made_on) == NODE_CHANGES_MAX
    assert (origin.node_of(1), origin.node_of(2)) == ("", "n1")


RECORD = BoundaryRecord("0", 7, BatchId("t", 1), None, 9)
LACKING = replace(
    RECORD,
    missing=("a", "b"),
    given_up=(GivenUp("a", 3, 4), GivenUp("b", 3, 4), GivenUp("b", 9, 9)),
)


def test_fn1_what_is_missing_there_is_the_stream_here() -> None:
    found = as_known_here(LACKING, "speeds")
    assert isinstance(found, BoundaryRecord)
    assert found.missing == ("speeds",)
    assert found.given_up == (GivenUp("speeds", 3, 4), GivenUp("speeds", 9, 9))


def test_fn2_nothing_else_changes() -> None:
    found = as_known_here(LACKING, "speeds")
    assert isinstance(found, BoundaryRecord)
    assert replace(found, missing=(), given_up=()) == RECORD
    assert as_known_here(RECORD, "speeds") is RECORD
    epoch = EpochStarted("0", "token", "f")
    assert as_known_here(epoch, "speeds") is epoch


def test_a_log_snapshot_says_it_alike() -> None:
    branches = BranchSnapshot(
        (7, 1), BatchId("t", 2), 9, 9, ranges=(TentativeRange(8, 9, (7, 1), ("a",)),)
    )
    replica = ReplicaSnapshot("0", 7, "f", "", 9, 0, (), (), (), LACKING, branches=branches)
    plain = replace(replica, last=None, branches=None)
    log_snapshot = LogSnapshot(12, 0, (replica, plain), given_up=LACKING.given_up)
    found = as_known_here(log_snapshot, "speeds")
    assert isinstance(found, LogSnapshot)
    assert found.given_up == (GivenUp("speeds", 3, 4), GivenUp("speeds", 9, 9))
    first, second = found.replicas
    assert first.last == as_known_here(LACKING, "speeds")
    assert first.branches is not None
    assert first.branches.ranges == (TentativeRange(8, 9, (7, 1), ("speeds",)),)
    assert second == plain
