"""Buckets that are made again: what is run, and whether the result may be used (invariants
RC1-RC5).
"""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import Part, Recomputed
from anabranch.protocol.stage import recomputation
from anabranch.protocol.stage.planner import QueryPosition, TakenBucket
from anabranch.protocol.stage.plans import PlanTraits
from anabranch.protocol.stage.recomputation import Recomputation, recomputed_records
from harness.boundary_logs import part, record, started, state_after

STATELESS = PlanTraits(is_stateful=False, is_batch_safe=True)
STATEFUL = PlanTraits(is_stateful=True, is_batch_safe=True)
WANTED: list[TakenBucket] = [(4, "0", (part(4),)), (6, "0", (part(6), part(6, "b")))]


def inputs() -> dict[str, LogState]:
    return {
        "a": state_after(
            started(), record(0, 0, 12, tuple(part(bucket) for bucket in range(1, 13)))
        )
    }


def made(traits: PlanTraits = STATELESS) -> Recomputation:
    return Recomputation(WANTED, inputs(), traits)


def taken(of: Recomputation, position: QueryPosition) -> tuple[list[int], QueryPosition] | None:
    plan = of.plan(position)
    if plan is None:
        return None
    assert plan.before == position
    return [bucket for _, buckets in plan.inputs for bucket, _, _ in buckets], plan.after


def test_rc2_a_stateless_query_begins_right_before_the_range_and_ends_with_it() -> None:
    of = made()
    assert taken(of, QueryPosition()) == ([4, 5, 6], QueryPosition(1, 6, has_rows=True))
    assert taken(of, QueryPosition(1, 6, has_rows=True)) is None


def test_rc2_a_plan_that_is_not_batch_safe_takes_one_bucket_after_the_other() -> None:
    of = Recomputation(WANTED, inputs(), PlanTraits(is_stateful=False, is_batch_safe=False))
    position, buckets = QueryPosition(), []
    while (found := taken(of, position)) is not None:
        buckets.append(found[0])
        position = found[1]
    assert buckets == [[4], [5], [6]]


def test_rc2_a_stateful_query_skips_nothing() -> None:
    of = made(STATEFUL)
    assert taken(of, QueryPosition(7, 2, has_rows=True)) == (
        [3, 4, 5, 6],
        QueryPosition(8, 6, has_rows=True),
    )
    assert taken(of, QueryPosition(8, 6, has_rows=True)) is None


def test_only_what_is_wanted_is_kept() -> None:
    of = made()
    assert (of.first, of.last, of.wanted) == (4, 6, frozenset({4, 6}))
    of.made((part(3, "x"), part(4, "x"), part(5, "x")), 5)
    finished = [of.is_finished]
    of.made((part(6, "x"), part(6, "y"), part(7, "x")), 6)
    assert [*finished, of.is_finished] == [False, True]
    assert of.different() is None
    assert of.parts() == (part(4, "x"), part(6, "x"), part(6, "y"))


def test_rc3_nothing_is_used_too_early() -> None:
    of = made()
    of.made((part(4), part(6), part(6)), 5)
    with pytest.raises(LocalProtocolError, match="up to 5, and 6 is wanted"):
        of.parts()


@pytest.mark.parametrize(
    "parts",
    [
        (part(4), part(6)),
        (part(4), part(6, rows=2), part(6)),
        (part(4), dataclasses.replace(part(6), digest=8), part(6)),
    ],
)
def test_rc4_one_bucket_that_differs_makes_all_void(parts: tuple[Part, ...]) -> None:
    of = made()
    of.made(parts, 6)
    assert of.different() == 6
    with pytest.raises(LocalProtocolError, match="bucket 6 was made again with other rows"):
        of.parts()


def test_rc5_records_hold_whole_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recomputation, "PARTS_PER_RECORD_MAX", 3)
    parts = (part(2, "a"), part(1, "a"), part(2, "b"), part(3, "a"), part(3, "b"))
    assert list(recomputed_records("0", 5, parts)) == [
        Recomputed("0", 5, (part(1, "a"), part(2, "a"), part(2, "b"))),
        Recomputed("0", 5, (part(3, "a"), part(3, "b"))),
    ]
    assert list(recomputed_records("0", 5, ())) == []
