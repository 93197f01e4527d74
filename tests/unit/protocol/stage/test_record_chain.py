"""Chains of the records of one query."""

from __future__ import annotations

import pytest

from anabranch.protocol.errors import Fenced, LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, Part
from anabranch.protocol.log.timeline import Timeline, timeline_name
from anabranch.protocol.stage.record_chain import (
    BRANCH_PENDING_PARTS_MAX,
    RecordChain,
    base_record,
)
from harness.replica_bench import part

ZERO, ONE = (timeline_name(7, number) for number in range(2))
TENTATIVE = BoundaryKind.TENTATIVE


def chain(timeline: Timeline | None = None) -> RecordChain:
    return RecordChain(
        "0",
        7,
        timeline if timeline is not None else Timeline(ZERO, 3, BatchId("old", 3)),
    )


def make(
    of: RecordChain,
    batch: int,
    *parts: Part,
    kind: BoundaryKind = BoundaryKind.STABLE,
    is_stable_query: bool = True,
    closed: int = 5,
    missing: tuple[str, ...] = (),
) -> BoundaryRecord:
    return of.record(
        kind,
        batch,
        closed,
        parts,
        is_stable_query=is_stable_query,
        missing=missing,
        made_from=(("a", 6),),
        written_ms=99,
    )


def record(
    of: RecordChain,
    batch: int,
    *parts: Part,
    kind: BoundaryKind = BoundaryKind.STABLE,
    is_stable_query: bool = True,
    closed: int = 5,
    missing: tuple[str, ...] = (),
) -> BoundaryRecord:
    made = make(
        of,
        batch,
        *parts,
        kind=kind,
        is_stable_query=is_stable_query,
        closed=closed,
        missing=missing,
    )
    of.appended(made)
    return made


def test_rx5_a_copy_begins_with_what_is_not_the_replicas_own() -> None:
    found = base_record("0", 7, Timeline.from_peer(ONE, 4, 9), 99)
    assert found == BoundaryRecord("0", 7, BatchId(ONE, 4), None, closed=9, base=9, written_ms=99)
    with pytest.raises(LocalProtocolError, match="has no base"):
        base_record("0", 7, Timeline(ZERO, 3, BatchId("old", 3)), 99)


class TestRecordChain:
    def test_each_record_continues_the_one_before(self) -> None:
        """Rules 3, 9: the first one that of the last batch committed in the directory."""
        of = chain()
        first, second = record(of, 4, part(6)), record(of, 5)
        assert (first.prev, first.id, second.prev, of.tip) == (
            BatchId("old", 3),
            BatchId(ZERO, 4),
            first.id,
            second.id,
        )
        assert (first.replica, first.epoch, first.closed, first.parts) == ("0", 7, 5, (part(6),))
        assert (first.base, first.kind, first.branch, first.made_from, first.written_ms) == (
            None,
            BoundaryKind.STABLE,
            None,
            (("a", 6),),
            99,
        )
        assert record(chain(Timeline.fresh(7)), 0).prev is None

    def test_a_record_that_was_not_appended_is_made_again(self) -> None:
        of = chain()
        assert make(of, 4, part(6)) == make(of, 4, part(6))

    def test_the_first_record_of_a_branch_says_where_it_begins_and_what_it_inherits(self) -> None:
        of = chain()
        fork = record(of, 4, part(6), part(7))
        of.became_branch(1, 5, (part(6), part(7)))
        first = record(of, 5, part(8), kind=TENTATIVE, closed=7, missing=("a",))
        second = record(of, 6, part(9), kind=TENTATIVE, closed=8)
        assert (first.prev, first.base, first.parts) == (fork.id, 5, (part(6), part(7), part(8)))
        assert (second.prev, second.base, second.parts) == (first.id, None, (part(9),))
        assert (first.kind, first.branch, second.branch) == (TENTATIVE, (7, 1), (7, 1))
        assert (first.missing, second.missing) == (
            ("a",),
            ("a",),
        ), "bucket 8 has rows of the batch that lacked it"

    def test_it_inherits_no_more_than_its_first_record_can_name(self) -> None:
        parts = (part(6),) * BRANCH_PENDING_PARTS_MAX
        assert RecordChain.can_inherit(parts)
        assert not RecordChain.can_inherit((*parts, part(6)))

    def test_a_first_record_that_was_not_appended_still_begins_the_branch(self) -> None:
        of = chain()
        of.became_branch(1, 5, (part(6),))
        again = [make(of, 4, kind=TENTATIVE) for _ in range(2)]
        assert [(entry.base, entry.parts) for entry in again] == [(5, (part(6),))] * 2

    def test_what_a_branch_missed_once_it_misses_in_all_that_follows(self) -> None:
        """State lacks it, and rows made of it may belong to later buckets."""
        of = chain()
        of.became_branch(1, 5, ())
        found = [
            record(of, 5 + i, kind=TENTATIVE, missing=m).missing
            for i, m in enumerate([(), ("b",), (), ("a", "b"), ()])
        ]
        assert found == [(), ("b",), ("b",), ("a", "b"), ("a", "b")]

    def test_re1_only_the_stable_timeline_gives_stable_records(self) -> None:
        """Rule 12."""
        of = chain()
        with pytest.raises(Fenced, match="not the stable one"):
            record(of, 4, is_stable_query=False)
        of.became_branch(1, 5, ())
        with pytest.raises(Fenced, match="not the stable one"):
            record(of, 4, is_stable_query=True)

    def test_re1_only_a_branch_gives_tentative_ones(self) -> None:
        with pytest.raises(LocalProtocolError, match="never forked"):
            record(chain(), 4, kind=TENTATIVE)


def test_rx4_an_empty_first_batch_gives_nothing_up() -> None:
    assert make(chain(), 0, closed=0).missing == ()


def test_rx4_what_is_given_up_is_closed_empty_and_says_so() -> None:
    of = RecordChain("0", 7, Timeline(ZERO, 3, BatchId("old", 3)), given_up=6)
    first = make(of, 4, part(5), part(6), part(8), closed=6)
    assert ([p.bucket for p in first.parts], first.missing) == (
        [8],
        tuple(name for name, _ in first.made_from),
    )
    second = make(of, 5, part(7), closed=7)
    assert ([p.bucket for p in second.parts], second.missing) == ([7], ())


def test_rx4_a_branch_shows_nothing_of_what_is_given_up() -> None:
    of = RecordChain("0", 7, Timeline(ZERO, 3, BatchId("old", 3)), given_up=6)
    of.became_branch(1, 4, (part(7),))
    first = make(of, 4, part(6), part(8), closed=6, kind=BoundaryKind.TENTATIVE, missing=("a",))
    assert [p.bucket for p in first.parts] == [7, 8]
    of.appended(first)
    second = make(of, 5, part(6), part(8), closed=8, kind=BoundaryKind.TENTATIVE)
    assert ([p.bucket for p in second.parts], second.missing) == ([8], ("a",))
