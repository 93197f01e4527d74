"""Each row of the table, and that there is always one."""

from __future__ import annotations

from itertools import product

import pytest

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.records import BranchEnded
from anabranch.protocol.stage.upstream_selection import (
    NOBODY,
    TABLE,
    SelectionAction,
    awaits_corrections,
    choose,
    decide,
    works_on_tentative,
)
from harness.boundary_logs import record, started, state_after, tentative

STABLE, UP_FAILURE, STABILIZATION, FAILURE = ReplicaState


@pytest.mark.parametrize(
    ("row", "current", "states", "offers", "chosen"),
    [
        (1, "1", {"0": STABLE, "1": STABLE}, {"0": 9, "1": 5}, "1"),
        (2, "1", {"0": STABLE, "1": UP_FAILURE}, {"0": 5, "1": 9}, "0"),
        (3, "1", {"0": UP_FAILURE, "1": UP_FAILURE}, {"0": 9, "1": 5}, "1"),
        (4, "1", {"0": UP_FAILURE, "1": STABILIZATION}, {"0": 5, "1": 9}, "0"),
        (5, "1", {"0": STABILIZATION, "1": STABILIZATION}, {"0": 9, "1": 5}, "1"),
        (6, "1", {"0": STABILIZATION, "1": FAILURE}, {"0": 5, "1": 9}, "0"),
        (7, "1", {"0": FAILURE, "1": FAILURE}, {"0": 9, "1": 5}, "1"),
        (8, None, {"0": FAILURE, "1": FAILURE}, {"0": 5, "1": 5}, "0"),
        (8, "1", {}, {"0": 5}, "0"),
        (9, "1", {"0": STABLE, "1": STABLE}, {"0": 4, "1": 4}, None),
        (9, None, {"0": STABLE}, {}, None),
    ],
)
def test_row(
    row: int,
    current: str | None,
    states: dict[str, ReplicaState],
    offers: dict[str, int],
    chosen: str | None,
) -> None:
    decided, found = decide(current, states, offers, 5)
    assert (decided.number, found) == (row, chosen)
    assert choose(current, states, offers, 5) == chosen


def test_of_equally_good_ones_the_one_that_offers_most_then_the_lowest_id() -> None:
    states = dict.fromkeys("012", UP_FAILURE)
    assert choose(None, states, {"0": 5, "1": 7, "2": 7}) == "1"
    assert choose("0", states, {"0": 5, "1": 7, "2": 7}) == "0"
    assert choose("0", states, {"0": 5, "1": 7, "2": 7}, 6) == "1"


def test_us1_us2_us3_for_all_combinations_of_three_replicas() -> None:
    """Exhaustive: the choice offers the bucket, is at least as good as any other that does,
    and moves only to a better one.
    """
    for states_of, able, current in product(
        product(ReplicaState, repeat=3), product((0, 1), repeat=3), (None, "0", "1", "2")
    ):
        states = dict(zip("012", states_of, strict=True))
        offers = dict(zip("012", able, strict=True))
        row, chosen = decide(current, states, offers)
        good = [r for r in "012" if offers[r]]
        if not good:
            assert (row, chosen) == (NOBODY, None)
            continue
        assert chosen in good
        assert all(
            list(ReplicaState).index(states[chosen]) <= list(ReplicaState).index(states[r])
            for r in good
        )
        if current in good and states[current] is states[chosen]:
            assert chosen == current
            assert row.action is SelectionAction.KEEP


@pytest.mark.parametrize("states", list(product(ReplicaState, repeat=2)))
def test_us5_tentative_buckets_of_one_that_has_a_branch_are_waited_for(
    states: tuple[ReplicaState, ReplicaState],
) -> None:
    reported = dict(zip("01", states, strict=True))
    has_branch = bool({ReplicaState.UP_FAILURE, ReplicaState.STABILIZATION} & set(states))
    assert works_on_tentative(reported, 7) == has_branch
    assert not works_on_tentative(reported, BUCKET_MAX), "complete for ever, or not read yet"


def test_us4_corrections_are_awaited_until_they_are_made_by_one_that_has_no_branch() -> None:
    begun = started("0"), started("1")
    branches = tentative(0, 0, 3, base=1), tentative(1, 0, 3, base=1, replica="1")
    made, ended = record(0, 0, 3), BranchEnded("0", 0, 1)
    for entries, awaits in (
        (begun, False),
        (branches, True),
        ((*branches, made), True),
        ((*branches, ended), True),
        ((*branches, ended, made), False),
        ((branches[1], made), False),
        ((branches[1], record(0, 0, 2)), True),
        ((branches[0], ended), False),
    ):
        assert awaits_corrections(state_after(*begun, *entries)) is awaits


def test_the_rows_are_numbered_in_their_order() -> None:
    assert [row.number for row in (*TABLE, NOBODY)] == list(range(1, 10))
