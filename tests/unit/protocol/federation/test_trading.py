"""Tests of what is offered, and what of it is taken."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation import trading
from anabranch.protocol.federation.costs import CornerCost, marginal
from anabranch.protocol.federation.offers import AcceptedTask, OfferedTask
from anabranch.protocol.federation.pricing import Bound, GainSplit
from anabranch.protocol.federation.trading import accept, bound_of, choose
from harness.markets import CONTRACT, stepped

COSTS = st.lists(st.integers(0, 30), min_size=1, max_size=8).map(
    lambda steps: CornerCost(
        tuple((10 * number, sum(steps[: number + 1])) for number in range(len(steps)))
    )
)
BOUNDS = st.tuples(st.integers(0, 60), st.integers(1, 60)).map(
    lambda pair: Bound(min(pair), max(pair))
)
SIZES = st.lists(st.integers(1, 25), min_size=1, max_size=6)


def test_the_bound_is_the_contracts() -> None:
    assert bound_of(CONTRACT) == Bound(800, 1_000)


def test_a_maximal_set_is_offered_each_task_on_top_of_what_would_remain() -> None:
    cost = stepped(1, 2, 3, 40, 50, 90)
    tasks = [("a", 10), ("b", 10), ("c", 10), ("d", 10), ("e", 10), ("f", 10)]
    assert choose(tasks, 60, cost, Bound(20, 60)) == (
        OfferedTask("a", 10, 60),
        OfferedTask("b", 10, 49),
        OfferedTask("c", 10, 39),
    )
    assert choose(tasks, 60, cost, Bound(60, 60)) == (OfferedTask("a", 10, 60),)
    assert choose(tasks, 30, cost, Bound(20, 60)) == ()


def test_the_task_that_costs_most_for_each_of_its_units_goes_first() -> None:
    cost = stepped(0, 0, 100)
    chosen = choose([("large", 20), ("small", 10)], 30, cost, Bound(10, 10))
    assert chosen == (OfferedTask("small", 10, 10),)


@given(COSTS, BOUNDS, SIZES)
def test_ft1_no_bid_is_above_what_a_task_costs_on_top_of_what_would_remain(
    cost: CornerCost, bound: Bound, sizes: list[int]
) -> None:
    level = sum(sizes)
    for task in choose(
        [(str(number), size) for number, size in enumerate(sizes)], level, cost, bound
    ):
        level -= task.units
        kept = marginal(cost, level, task.units)
        assert kept > bound.floor * task.units
        assert task.reserve_price * task.units < kept
        assert bound.floor <= task.reserve_price <= bound.ceiling


def test_an_offer_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trading, "OFFERED_TASKS_MAX", 2)
    assert len(choose([(str(number), 1) for number in range(9)], 9, stepped(50), Bound(1, 1))) == 2


@given(COSTS, BOUNDS, SIZES, st.integers(0, 100), st.sampled_from(GainSplit), st.integers(0, 100))
def test_ft2_no_task_is_taken_for_less_than_it_costs_with_those_before_it(
    cost: CornerCost, bound: Bound, sizes: list[int], level: int, split: GainSplit, margin: int
) -> None:
    offered = [
        OfferedTask(str(number), size, bound.ceiling - number % (bound.ceiling - bound.floor + 1))
        for number, size in enumerate(sizes)
    ]
    taken = accept(offered, level, cost, bound, split, margin)
    for task in taken:
        costs = marginal(cost, level, task.units)
        assert costs < task.price * task.units
        assert (
            bound.floor
            <= task.price
            <= {each.name: each for each in offered}[task.name].reserve_price
        )
        level += task.units


def test_what_is_too_dear_is_left_out_and_the_rest_is_taken() -> None:
    cost = stepped(1, 5, 20, 50)
    offered = [
        OfferedTask("a", 10, 10),
        OfferedTask("b", 20, 10),
        OfferedTask("c", 10, 10),
        OfferedTask("d", 10, 10),
    ]
    assert accept(offered, 0, cost, Bound(0, 10), GainSplit.SELLER, 0) == (
        AcceptedTask("a", 10, 10),
        AcceptedTask("c", 10, 10),
    )


def test_what_costs_just_what_is_bid_is_left_out() -> None:
    assert (
        accept([OfferedTask("a", 10, 100)], 0, stepped(100), Bound(0, 200), GainSplit.HALVES, 0)
        == ()
    )


def test_a_small_gain_is_left_out_by_the_margin() -> None:
    offered = [OfferedTask("a", 10, 101)]
    assert accept(offered, 0, stepped(100), Bound(0, 200), GainSplit.HALVES, 0) == (
        AcceptedTask("a", 10, 101),
    )
    assert accept(offered, 0, stepped(100), Bound(0, 200), GainSplit.HALVES, 20) == ()


@given(COSTS, st.integers(1, 60), st.integers(1, 20), st.integers(0, 60), st.integers(0, 60))
def test_ft3_at_delta_0_a_task_moves_exactly_if_the_one_price_lies_between_the_two_costs(
    cost: CornerCost, price: int, units: int, here: int, there: int
) -> None:
    bound = Bound(price, price)
    chosen = choose([("a", units)], here + units, cost, bound)
    moves = bool(chosen) and bool(accept(chosen, there, cost, bound, GainSplit.HALVES, 0))
    assert moves == (marginal(cost, there, units) < price * units < marginal(cost, here, units))


@given(COSTS, BOUNDS, st.lists(st.integers(0, 6), min_size=2, max_size=5))
def test_every_trade_lowers_the_total_cost_and_so_trading_ends(
    cost: CornerCost, bound: Bound, numbers: list[int]
) -> None:
    """Equal tasks, equal costs, everybody may trade with everybody, one after the other."""
    levels = [10 * number for number in numbers]
    total = sum(map(cost, levels))
    traded = True
    while traded:
        traded = False
        for (i, _), (j, _) in [
            *combinations(enumerate(levels), 2),
            *combinations(reversed(list(enumerate(levels))), 2),
        ]:
            offered = choose(
                [(str(number), 10) for number in range(levels[i] // 10)], levels[i], cost, bound
            )
            taken = accept(offered, levels[j], cost, bound, GainSplit.HALVES, 0)
            if taken:
                levels[i] -= 10 * len(taken)
                levels[j] += 10 * len(taken)
                assert sum(map(cost, levels)) < total
                total, traded = sum(map(cost, levels)), True
