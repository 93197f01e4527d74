"""Branches of one writer: each rule by example. Against a slow reference, through the log
state: tests/unit/protocol/log/test_boundary_log_properties.py.
"""

from __future__ import annotations

import pytest

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log import tentative
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    BranchNumber,
    Part,
    TentativeRange,
)
from anabranch.protocol.log.tentative import Branches

FORK = BatchId("stable", 4)


def part(bucket: int, attempt: str = "a", rows: int = 1) -> Part:
    return Part(bucket, 0, attempt, 1, 0, 1, rows, 7)


def record(
    batch: int,
    closed: int,
    parts: tuple[Part, ...] = (),
    *,
    branch: BranchNumber | None = (7, 1),
    base: int | None = None,
    prev: BatchId | None = None,
    missing: tuple[str, ...] = (),
    epoch: int = 7,
    shed: int = 0,
) -> BoundaryRecord:
    """``prev`` left out: the batch before in the same timeline, or the fork for a first record."""
    timeline = "l" if branch is None else f"l{branch[0]}.{branch[1]}"
    before = FORK if base is not None else BatchId(timeline, batch - 1)
    return BoundaryRecord(
        "0",
        epoch,
        BatchId(timeline, batch),
        before if prev is None else prev,
        closed,
        parts,
        base,
        BoundaryKind.TENTATIVE,
        branch,
        missing,
        shed=shed,
    )


def taken(*records: BoundaryRecord, upto: int = 0) -> Branches:
    branches = Branches()
    for entry in records:
        assert not branches.rejection(entry)
        branches.take(entry, upto)
    return branches


def test_a_writer_without_branches_has_nothing() -> None:
    branches = Branches()
    branches.prune(5)
    assert (branches.number, branches.tip, branches.upto, branches.bucket(1)) == (
        None,
        None,
        0,
        None,
    )
    assert not branches.ranges(1, 10**15)
    assert not branches.filled(1, 10**15)
    assert branches.snapshot() is None
    assert Branches.from_snapshot(None).snapshot() is None


def test_a_branch_begins_above_its_base() -> None:
    branches = taken(
        record(5, 8, (part(3, "late"), part(6), part(9)), base=4, missing=("reports",))
    )
    assert (branches.number, branches.tip, branches.upto) == ((7, 1), BatchId("l7.1", 5), 8)
    assert branches.bucket(4) is None
    assert branches.bucket(5) == TentativeRange(5, 5, (7, 1), ("reports",))
    assert branches.bucket(6) == TentativeRange(6, 6, (7, 1), ("reports",), (part(6),))
    assert branches.bucket(9) is None
    assert branches.filled(1, 99) == [6]


def test_parts_of_open_buckets_of_a_branch_belong_to_the_record_that_closes_them() -> None:
    branches = taken(
        record(5, 4, (part(6, "inherited"),), base=4),
        record(6, 5),
        record(7, 7, (part(6, "own"), part(5, "too late"))),
    )
    parts = part(6, "inherited"), part(6, "own")
    assert branches.bucket(6) == TentativeRange(6, 6, (7, 1), parts=parts)
    assert branches.bucket(5) == TentativeRange(5, 5, (7, 1))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (record(6, 9), ""),
        (record(6, 9, branch=None), "malformed"),
        (record(6, 9, branch=(8, 1)), "malformed"),
        (record(6, 9, branch=(7, 0), base=4), "older_branch"),
        (record(6, 9, branch=(7, 0)), "older_branch"),
        (record(6, 9, branch=(7, 2)), "no_base"),
        (record(6, 9, branch=(7, 2), base=4), ""),
        (record(7, 9), "off_chain"),
        (record(6, 9, prev=FORK), "off_chain"),
        (record(6, 9, base=4, prev=BatchId("l7.1", 5)), "off_chain"),
    ],
)
def test_te1_what_counts_continues_the_newest_branch_or_begins_a_newer_one(
    entry: BoundaryRecord, reason: str
) -> None:
    assert taken(record(5, 8, base=4)).rejection(entry) == reason


def test_te1_more_open_parts_than_the_limit_are_rejected_unless_they_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    branches = taken(record(5, 8, (part(9), part(10), part(11)), base=4))
    monkeypatch.setattr(tentative, "PENDING_PARTS_MAX", 3)
    assert branches.rejection(record(6, 8, (part(12),))) == "pending"
    assert not branches.rejection(record(6, 9, (part(12),)))
    assert branches.rejection(record(6, 9, (part(12), part(13)))) == "pending"


def test_te2_a_newer_branch_covers_what_it_closed_and_no_more() -> None:
    branches = taken(
        record(5, 12, tuple(part(n, "first") for n in range(5, 13)), base=4, missing=("a",)),
        record(1, 9, (part(8, "second"),), branch=(7, 2), base=6, missing=("b",)),
    )
    assert branches.ranges(1, 99) == [
        TentativeRange(5, 6, (7, 1), ("a",)),
        TentativeRange(7, 9, (7, 2), ("b",)),
        TentativeRange(10, 12, (7, 1), ("a",)),
    ]
    assert branches.ranges(6, 7) == [
        TentativeRange(6, 6, (7, 1), ("a",)),
        TentativeRange(7, 7, (7, 2), ("b",)),
    ]
    assert branches.ranges(7, 6) == []
    assert branches.filled(1, 99) == [5, 6, 8, 10, 11, 12]
    assert branches.filled(1, 99, 2) == [5, 6]
    assert branches.bucket(8) == TentativeRange(8, 8, (7, 2), ("b",), (part(8, "second"),))
    assert branches.bucket(9) == TentativeRange(9, 9, (7, 2), ("b",))
    assert branches.bucket(10) == TentativeRange(10, 10, (7, 1), ("a",), (part(10, "first"),))
    assert branches.upto == 12


def test_te2_a_newer_branch_may_cover_several_ranges_whole() -> None:
    branches = taken(
        record(5, 6, base=4, missing=("a",)),
        record(6, 8, missing=("b",)),
        record(7, 9, missing=("c",)),
        record(1, 9, branch=(7, 2), base=4, missing=("d",)),
    )
    assert branches.ranges(1, 99) == [TentativeRange(5, 9, (7, 2), ("d",))]


def test_a_bucket_says_how_many_rows_were_left_out_of_its_input() -> None:
    branches = taken(record(5, 6, base=4, shed=700), record(6, 8, shed=700), record(7, 9, shed=300))
    assert branches.ranges(6, 99) == [
        TentativeRange(6, 8, (7, 1), shed=700),
        TentativeRange(9, 9, (7, 1), shed=300),
    ]
    again = Branches.from_snapshot(branches.snapshot())
    assert again.bucket(8) == TentativeRange(8, 8, (7, 1), shed=700)
    assert again.bucket(9) == TentativeRange(9, 9, (7, 1), shed=300)


def test_te3_neighbours_that_say_the_same_are_one_range() -> None:
    branches = taken(
        record(5, 6, base=4, missing=("a",)), record(6, 8, missing=("a",)), record(7, 9)
    )
    assert branches.ranges(1, 99) == [
        TentativeRange(5, 8, (7, 1), ("a",)),
        TentativeRange(9, 9, (7, 1)),
    ]


def test_te4_what_is_stable_is_not_held() -> None:
    branches = taken(record(5, 9, (part(6), part(8), part(11)), base=4), upto=5)
    assert branches.bucket(5) is None
    branches.prune(7)
    assert branches.ranges(1, 99) == [TentativeRange(8, 9, (7, 1))]
    assert branches.filled(1, 99) == [8]
    branches.prune(20)
    assert (branches.ranges(1, 99), branches.upto) == ([], 9)
    branches.take(record(6, 15, (part(12), part(21))), 20)
    branches.take(record(7, 22), 20)
    assert branches.ranges(1, 99) == [TentativeRange(21, 22, (7, 1))]
    assert branches.bucket(21) == TentativeRange(21, 21, (7, 1), parts=(part(21),))


def test_te5_above_the_limits_the_lowest_buckets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tentative, "TENTATIVE_PARTS_MAX", 4)
    monkeypatch.setattr(tentative, "TENTATIVE_RANGES_MAX", 3)
    branches = taken(record(5, 10, (part(5), part(6), part(6), part(7), part(8)), base=4))
    assert branches.ranges(1, 99) == [TentativeRange(6, 10, (7, 1))]
    assert branches.filled(1, 99) == [6, 7, 8]
    for batch, name in enumerate("abc", 6):
        branches.take(record(batch, batch + 5, missing=(name,)), 0)
    assert [(r.first, r.last, r.missing) for r in branches.ranges(1, 99)] == [
        (11, 11, ("a",)),
        (12, 12, ("b",)),
        (13, 13, ("c",)),
    ]
    assert branches.filled(1, 99) == []


def test_te5_a_bucket_beyond_the_limit_alone_goes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tentative, "TENTATIVE_PARTS_MAX", 1)
    branches = taken(record(5, 6, (part(6), part(6)), base=4))
    assert (branches.ranges(1, 9), branches.upto) == ([], 6)


def ended(counter: int, epoch: int = 7) -> BranchEnded:
    return BranchEnded("0", epoch, counter)


def test_te7_a_branch_that_has_ended_never_runs_again() -> None:
    branches = Branches()
    assert not branches.runs(-1)
    assert branches.rejection(record(5, 8, base=4)) == ""
    branches.take(record(5, 8, base=4), 0)
    assert branches.runs(7)
    assert not branches.runs(9), "of a process that is replaced"
    assert branches.end(ended(1)) == "branch_ended"
    assert not branches.runs(7)
    assert branches.rejection(record(6, 9)) == "ended_branch"
    assert branches.bucket(8) == TentativeRange(8, 8, (7, 1)), "what it showed stands"
    branches.take(record(5, 9, branch=(7, 2), base=4), 0)
    assert branches.runs(7)


def test_te7_the_end_of_an_older_branch_does_not_end_a_newer_one() -> None:
    branches = taken(record(5, 8, base=4), record(5, 9, branch=(7, 2), base=4))
    assert branches.end(ended(1)) == "branch_ended"
    assert branches.runs(7)
    assert branches.end(ended(1)) == "known"
    assert branches.end(ended(2)) == "branch_ended"
    assert not branches.runs(7)
    assert branches.end(ended(1)) == "known", "it came late"
    assert branches.ended == (7, 2)


def test_te7_a_branch_that_never_wrote_may_have_ended_too() -> None:
    branches = taken(record(5, 8, base=4))
    assert branches.end(ended(2)) == "branch_ended"
    assert not branches.runs(7)
    assert branches.rejection(record(5, 9, branch=(7, 2), base=4)) == "ended_branch"
    assert branches.rejection(record(5, 9, branch=(7, 3), base=4)) == ""


def test_a_branch_is_corrected_by_what_others_do_after_it_began() -> None:
    branches = Branches()
    branches.correct(20)
    branches.take(record(5, 8, base=4), 0)
    branches.correct(7)
    assert not branches.is_corrected()
    branches.correct(8)
    assert branches.is_corrected()
    branches.take(record(6, 12), 0)
    assert branches.is_corrected(), "the other one is in time"
    branches.take(record(5, 9, branch=(7, 2), base=4), 0)
    assert not branches.is_corrected()


def test_a_record_that_closes_less_closes_nothing() -> None:
    branches = taken(record(5, 8, base=4), record(6, 2, (part(9),)), record(7, 9))
    assert branches.ranges(1, 99) == [TentativeRange(5, 9, (7, 1))]
    assert branches.filled(1, 99) == [9]
    assert taken(record(5, 2, base=4)).upto == 0


def test_ranges_of_any_size_cost_nothing() -> None:
    branches = taken(record(5, 10**15, (part(10**14),), base=0), record(6, 2 * 10**15))
    branches.take(record(1, 10**15 + 5, branch=(7, 2), base=10), 3)
    branches.prune(10**13)
    assert branches.filled(1, 10**16) == []
    assert [(r.first, r.last) for r in branches.ranges(1, 10**16)] == [
        (10**13 + 1, 10**15 + 5),
        (10**15 + 6, 2 * 10**15),
    ]


def test_from_a_snapshot_it_is_the_same() -> None:
    branches = taken(
        record(5, 9, (part(6), part(6, "b"), part(8)), base=4, missing=("a",)),
        record(1, 7, (part(7), part(11)), branch=(7, 2), base=6),
    )
    found = branches.snapshot()
    assert found is not None
    assert branches.end(ended(1)) == "branch_ended"
    branches.correct(99)
    assert (found.first_upto, branches.first_upto) == (7, 7)
    again = Branches.from_snapshot(found, branches.ended, branches.corrected)
    assert again.snapshot() == found
    assert (again.ended, again.corrected, again.first_upto) == ((7, 1), (7, 2), 7)
    for other in (branches, again):
        other.take(record(2, 12, branch=(7, 2)), 0)
        other.prune(6)
    assert again.snapshot() == branches.snapshot()
    assert again.bucket(11) == TentativeRange(11, 11, (7, 2), parts=(part(11),))
