"""The planner: its invariants by example and over random streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.boundary_log import StreamFold
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.plans import PlanTraits
from anabranch.protocol.records import BoundaryRecord, EpochStarted, Part
from anabranch.protocol.serialization import Plan, QueryPosition, check_joint, check_watermark, next_plan

STATELESS, STATEFUL = PlanTraits(is_stateful=False, is_batch_safe=True), PlanTraits(is_stateful=True, is_batch_safe=True)
ONE_BY_ONE, STATEFUL_ONE_BY_ONE = PlanTraits(is_stateful=False, is_batch_safe=False), PlanTraits(is_stateful=True, is_batch_safe=False)


class Stream:
    """One writer's log, built bucket by bucket."""

    def __init__(self) -> None:
        self.fold, self._offset = StreamFold(["0"]), 0
        self.fold.apply(0, EpochStarted("0", "", ""))

    def close(self, upto: int, rows: dict[int, int] | None = None) -> Stream:
        self._offset += 1
        parts = tuple(Part(b, 0, "a", 1, 0, 1, n, 0) for b, n in (rows or {}).items())
        prev = BatchId("l", self._offset - 1) if self._offset > 1 else None
        assert self.fold.apply(self._offset, BoundaryRecord("0", 0, BatchId("l", self._offset), prev, upto, parts)).accepted
        return self


def buckets(plan: Plan | None) -> dict[str, list[int]]:
    assert plan is not None
    return {name: [b for b, _, _ in taken] for name, taken in plan.inputs}


def test_nothing_is_planned_before_every_input_is_complete() -> None:
    folds = {"a": Stream().close(5, {3: 1}).fold, "b": Stream().fold}
    assert next_plan(QueryPosition(), folds, STATELESS) is None


def test_a_plan_takes_what_is_complete_on_all_inputs() -> None:
    folds = {"a": Stream().close(5, {2: 1, 5: 1}).fold, "b": Stream().close(4, {3: 2}).fold}
    plan = next_plan(QueryPosition(), folds, STATELESS)
    assert buckets(plan) == {"a": [2], "b": [3]}
    assert plan is not None
    assert (plan.rows, plan.closes, plan.after) == (3, 4, QueryPosition(1, 4, 4, has_rows=True))


def test_a_stateful_plan_closes_one_batch_late_and_then_follows_up() -> None:
    folds = {"a": Stream().close(5, {2: 1}).fold}
    first = next_plan(QueryPosition(), folds, STATEFUL)
    assert first is not None
    assert (first.after.bucket, first.closes) == (5, 0)
    second = next_plan(first.after, folds, STATEFUL)
    assert second is not None
    assert (buckets(second), second.after.bucket, second.closes, second.rows) == ({"a": []}, 5, 5, 0)
    assert second.after != first.after
    assert next_plan(second.after, folds, STATEFUL) is None


def test_no_follow_up_when_the_next_bucket_is_there() -> None:
    stream = Stream().close(5, {2: 1})
    first = next_plan(QueryPosition(), {"a": stream.fold}, STATEFUL)
    assert first is not None
    plan = next_plan(first.after, {"a": stream.close(6, {6: 1}).fold}, STATEFUL)
    assert plan is not None
    assert (buckets(plan), plan.closes) == ({"a": [6]}, 5)


def test_u3_one_bucket_per_plan_from_the_first_with_data_on() -> None:
    folds = {"a": Stream().close(1_000_003, {1_000_001: 1}).fold}
    position, ends = QueryPosition(), []
    while (plan := next_plan(position, folds, ONE_BY_ONE)) is not None:
        position = plan.after
        ends.append((position.bucket, plan.rows))
    assert ends == [(1_000_000, 0), (1_000_001, 1), (1_000_002, 0), (1_000_003, 0)]


def test_u3_a_run_of_empty_buckets_at_the_beginning_is_one_plan() -> None:
    plan = next_plan(QueryPosition(), {"a": Stream().close(7).fold}, STATEFUL_ONE_BY_ONE)
    assert plan is not None
    assert plan.after == QueryPosition(1, 7, 0, has_rows=False)
    plan = next_plan(QueryPosition(1, 7, 7), {"a": Stream().close(9, {8: 1}).fold}, ONE_BY_ONE)
    assert plan is not None
    assert plan.after.bucket == 8


def test_u4_rows_bound_a_plan_but_never_below_one_bucket() -> None:
    folds = {"a": Stream().close(9, {2: 100, 4: 100, 6: 100}).fold}
    plan = next_plan(QueryPosition(), folds, STATELESS, rows_max=50)
    assert buckets(plan) == {"a": [2]}
    assert plan is not None
    assert plan.after.bucket == 3  # the empty ones before the next with rows
    assert buckets(next_plan(QueryPosition(), folds, STATELESS, rows_max=200)) == {"a": [2, 4]}
    assert buckets(next_plan(QueryPosition(), folds, STATELESS, buckets_max=2)) == {"a": [2, 4]}


def test_a_warm_up_is_an_empty_plan_that_moves_nothing() -> None:
    folds = {"a": Stream().close(9, {2: 100}).fold}
    plan = next_plan(QueryPosition(), folds, STATELESS, warm_up=True)
    assert plan is not None
    assert (plan.rows, plan.after) == (0, QueryPosition(1, 0, 0))
    plan = next_plan(QueryPosition(5, 4, 3, has_rows=True), folds, STATEFUL, warm_up=True)
    assert plan is not None
    assert plan.after == QueryPosition(6, 4, 4, has_rows=True)


def test_u1_inputs_at_different_positions_are_refused() -> None:
    position = QueryPosition(3, 7, 7)
    assert check_joint({"a": position, "b": position}) == position
    with pytest.raises(LocalProtocolError, match="different positions"):
        check_joint({"a": position, "b": QueryPosition(3, 8, 7)})


def test_the_watermark_must_be_the_boundary_before() -> None:
    check_watermark(True, QueryPosition(bucket=4), 1_000, 250)
    check_watermark(False, QueryPosition(bucket=4), 0, 250)
    with pytest.raises(LocalProtocolError, match="watermark"):
        check_watermark(True, QueryPosition(bucket=4), 750, 250)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.dictionaries(st.integers(1, 4), st.integers(1, 9), max_size=3)), max_size=20),
    st.booleans(), st.booleans(), st.integers(1, 20),
)  # fmt: skip
def test_every_bucket_once_in_order_together(
    steps: list[tuple[int, int, dict[int, int]]], stateful: bool, safe: bool, rows_max: int
) -> None:
    """U1-U5 while streams grow in any way and plans are taken at any time."""
    traits = PlanTraits(is_stateful=stateful, is_batch_safe=safe)
    streams, upto = {"a": Stream(), "b": Stream()}, {"a": 0, "b": 0}
    folds = {name: s.fold for name, s in streams.items()}
    expected: dict[str, list[int]] = {"a": [], "b": []}
    seen: dict[str, list[int]] = {"a": [], "b": []}
    position = QueryPosition()

    def run() -> None:
        nonlocal position
        while (plan := next_plan(position, folds, traits, rows_max=rows_max)) is not None:
            assert plan.before == position
            assert position.bucket <= plan.after.bucket <= min(upto.values())
            assert (
                position.closed
                <= plan.closes
                <= (position.bucket if stateful and plan.after.bucket > position.bucket else plan.after.bucket)
            )
            for name, taken in plan.inputs:
                inside = [b for b, _, _ in taken]
                assert all(position.bucket < b <= plan.after.bucket for b in inside)
                seen[name] += inside
            filled = {b for _, taken in plan.inputs for b, _, _ in taken}
            assert len(filled) <= 1 or plan.rows <= rows_max
            if not safe and position.has_rows:
                assert plan.after.bucket - position.bucket <= 1
            position = plan.after

    for which, more, rows in steps:
        name = "ab"[which]
        inside = {upto[name] + b: n for b, n in rows.items() if b <= more}
        upto[name] += more
        streams[name].close(upto[name], inside)
        expected[name] += sorted(inside)
        if sum(rows.values()) % 2:
            run()
    run()
    end = min(upto.values())
    assert position.bucket == position.closed == end
    assert seen == {name: [b for b in taken if b <= end] for name, taken in expected.items()}
