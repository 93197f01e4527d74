"""Buckets that are made again: what is run, and whether the result may be used (invariants
RC1-RC6).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import Part, Recomputed
from anabranch.protocol.log.timeline import (
    Answer,
    Copy,
    Create,
    CutBack,
    FindBatches,
    FindMissing,
    FindNewest,
    FindWhole,
    Step,
    Timeline,
    carry_out,
)
from anabranch.protocol.stage import recomputation
from anabranch.protocol.stage.planner import PlanTraits, QueryPosition, TakenBucket
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


TIMELINE = Timeline("000000000007-000000", 2, BatchId("earlier", 2), floor=1)
NAME = "000000000007-999999"
BASES = {
    BatchId(TIMELINE.name, 5): 9,
    BatchId(TIMELINE.name, 4): 4,
    BatchId(TIMELINE.name, 3): 3,
    BatchId("earlier", 2): 2,
}
"""Of the records of batches: the highest bucket that each had begun."""


def began(
    *, newest: Timeline | None = TIMELINE, damaged: tuple[int, ...] = (), missing: int = -2
) -> tuple[str, list[Step]]:
    """(why a stateful query cannot begin, the steps that changed something), where batches 0..5 are
    in the directory; the blocks after batch ``missing``, and all before it, are gone.
    """
    changed: list[Step] = []

    def perform(step: Step) -> Answer:
        match step:
            case FindNewest():
                return newest
            case FindBatches():
                return (5, 4, 3, 2, 1, 0)
            case FindWhole(_, (batch,)):
                return None if batch in damaged else batch
            case FindMissing(_, batch):
                return "blocks are gone" if batch <= missing else ""
        changed.append(step)
        return None

    return carry_out(made(STATEFUL).beginning(NAME, BASES.get), perform), changed


COPIED = Copy(TIMELINE.name, NAME)


@pytest.mark.parametrize(
    ("damaged", "missing", "why", "then"),
    [
        ((), -2, "", CutBack(NAME, 3, keep_plan=False)),
        ((3,), -2, "", CutBack(NAME, 2, keep_plan=False)),
        ((2, 3), -2, "", Create(NAME)),
        ((2, 3), -1, "blocks are gone", None),
        ((), 3, "blocks are gone", None),
    ],
    ids=["newest", "damaged", "none", "nothing", "gone"],
)
def test_rc6_a_stateful_query_begins_in_a_checkpoint_from_before_the_range(
    damaged: tuple[int, ...], missing: int, why: str, then: Step | None
) -> None:
    """The range begins at bucket 4. Batch 5 had begun bucket 9, batch 4 bucket 4; of batches below
    1 it is not known who made them, and of batch 1 not what it had begun.
    """
    assert began(damaged=damaged, missing=missing) == (
        why,
        [COPIED, *([] if then is None else [then])],
    )


def test_rc6_without_any_it_begins_at_the_beginning() -> None:
    assert began(newest=None) == ("", [Create(NAME)])


def test_rc2_a_stateless_query_needs_no_checkpoint() -> None:
    steps = made().beginning(NAME, BASES.get)
    assert next(steps) == FindMissing(NAME, -1)
    assert (made().begins_after, made(STATEFUL).begins_after) == (3, 0)
    assert steps.send("") == Create(NAME)


def test_rc6_what_is_gone_of_the_input_is_reported() -> None:
    buckets_sought: list[int] = []

    def gone(stream: str, buckets: Iterable[TakenBucket]) -> int | None:
        buckets_sought.extend(bucket for bucket, _, _ in buckets)
        return 5 if stream == "a" and 5 in buckets_sought else None

    of = made()
    assert of.lacks(5, gone) == ""
    assert buckets_sought == [6], "what comes after the range is not needed"
    assert of.lacks(3, gone).endswith("the blocks of a from bucket 5 on are deleted")
    streams = inputs()
    streams["a"].forget(4)
    of = Recomputation(WANTED, streams, STATELESS)
    assert of.lacks(3, gone).endswith("the log of a describes its buckets up to 4 no more")
    of = Recomputation([(13, "0", (part(13),))], streams, STATELESS)
    assert of.lacks(12, gone) == "a is not known up to bucket 13"


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


def test_rc2_what_a_stateless_query_made_otherwise_is_made_once_more_and_nothing_skipped() -> None:
    """Its rows may have got a later time: those of bucket 4 came with bucket 3."""
    of = made()
    of.made((part(6), part(6)), 6)
    again = of.without_skipping()
    assert again is not None
    assert again.wanted == of.wanted
    assert taken(again, QueryPosition()) == (
        [1, 2, 3, 4, 5, 6],
        QueryPosition(1, 6, has_rows=True),
    )
    again.made((part(6), part(6)), 6)
    assert again.without_skipping() is None, "it has skipped nothing"
    again.made((part(4),), 6)
    assert again.parts() == (part(4), part(6), part(6))


@pytest.mark.parametrize("traits", [STATELESS, STATEFUL])
def test_rc2_what_is_as_it_was_is_not_made_once_more(traits: PlanTraits) -> None:
    of = made(traits)
    of.made((part(4), part(6), part(6)), 6)
    assert of.without_skipping() is None


def test_rc5_records_hold_whole_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recomputation, "PARTS_PER_RECORD_MAX", 3)
    parts = (part(2, "a"), part(1, "a"), part(2, "b"), part(3, "a"), part(3, "b"))
    assert list(recomputed_records("0", 5, parts)) == [
        Recomputed("0", 5, (part(1, "a"), part(2, "a"), part(2, "b"))),
        Recomputed("0", 5, (part(3, "a"), part(3, "b"))),
    ]
    assert list(recomputed_records("0", 5, ())) == []
