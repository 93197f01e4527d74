"""Buckets that are computed again by an auditor: what is run, and who is to blame (RK1-RK3)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from anabranch.protocol.federation.recheck import Recheck, confirmed
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.stage.planner import PlanTraits, QueryPosition, TakenBucket
from harness.boundary_logs import part, record, started, state_after

SAFE = PlanTraits(is_stateful=True, is_batch_safe=True)
ONE_BY_ONE = PlanTraits(is_stateful=True, is_batch_safe=False)


def inputs(upto: int = 12) -> dict[str, LogState]:
    return {
        name: state_after(
            started(), record(0, 0, upto, tuple(part(bucket) for bucket in range(1, upto + 1)))
        )
        for name in ("a", "b")
    }


def nothing_gone(_stream: str, _buckets: Iterable[TakenBucket]) -> int | None:
    return None


def taken(of: Recheck) -> list[list[int]]:
    """Return the buckets of input ``a`` in each batch."""
    position, found = QueryPosition(), []
    while (plan := of.plan(position)) is not None:
        assert plan.before == position
        found.append([bucket for bucket, _, _ in plan.inputs[0][1]])
        position = plan.after
    assert position.bucket == of.last
    return found


@pytest.mark.parametrize(
    ("before", "batches"),
    [
        (0, [[], [7, 8, 9]]),
        (2, [[], [5, 6, 7, 8, 9]]),
        (6, [[1, 2, 3, 4, 5, 6, 7, 8, 9]]),
        (100, [[1, 2, 3, 4, 5, 6, 7, 8, 9]]),
    ],
)
def test_rk1_a_query_begins_so_much_before_and_leaves_none_out(
    before: int, batches: list[list[int]]
) -> None:
    assert taken(Recheck([7, 9], before, inputs(), SAFE)) == batches


def test_rk1_it_is_run_as_every_query_of_the_stage() -> None:
    assert taken(Recheck([7, 9], 0, inputs(), ONE_BY_ONE)) == [[], [7], [8], [9]]
    assert taken(Recheck([7, 9], 0, inputs(), SAFE, rows_max=2)) == [[], [7], [8], [9]]


def test_rk2_an_input_that_is_not_known_so_far_is_waited_for() -> None:
    assert Recheck([7, 9], 0, inputs(9), SAFE).is_known
    assert not Recheck([7, 9], 0, inputs() | {"b": inputs(8)["b"]}, SAFE).is_known


def test_rk2_what_is_gone_is_reported() -> None:
    log_states = inputs()
    recheck = Recheck([7, 9], 2, log_states, SAFE)
    assert recheck.lacks(nothing_gone) == ""

    def gone(stream: str, buckets: Iterable[TakenBucket]) -> int | None:
        assert [bucket for bucket, _, _ in buckets] == [5, 6, 7, 8, 9]
        return 5 if stream == "b" else None

    assert recheck.lacks(gone) == "the blocks of b from bucket 5 on are deleted"
    log_states["a"].forget(4)
    assert recheck.lacks(nothing_gone) == ""
    log_states["a"].forget(5)
    assert recheck.lacks(nothing_gone) == "the log of a describes its buckets up to 5 no more"


def test_what_was_computed_is_of_the_wanted_buckets_and_empty_ones_are_reported() -> None:
    recheck = Recheck([7, 9], 0, inputs(), SAFE)
    finished = []
    for parts, closed in (((part(7), part(8)), 8), ((part(7, "b"),), 9)):
        recheck.made(parts, closed)
        finished.append(recheck.is_finished)
    assert finished == [False, True]
    assert recheck.computed() == {7: (2, 14), 9: (0, 0)}


def test_rk3_where_two_computations_differ_nobody_is_blamed() -> None:
    first = {1: (1, 1), 2: (2, 2), 3: (3, 3)}
    assert confirmed(first, {2: (2, 2), 3: (3, 4)}) == ({2: (2, 2)}, [3])
