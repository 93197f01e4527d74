"""Properties of every market with static load, whatever graph, loads and prices: in rounds, by the
rules by which agents trade.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.costs import CornerCost, QueueCost, marginal
from anabranch.protocol.federation.pricing import GainSplit
from experiments.market.figures import DESIRED, OVER, PRICE, UNDER, UNIT, Setting, averaged, run
from experiments.market.graph import Edges, chain, complete_graph, diameter, hops, random_graph
from experiments.market.rounds import (
    CAPACITY,
    Market,
    Trade,
    delta_for_hops,
    optimum,
    queue_cost,
    threshold,
    total,
    uniform_bounds,
    varied_bounds,
)

TASKS = DESIRED // UNIT
"""Number of tasks, as many as every participant desires."""

LOADS = st.lists(st.integers(0, 150), min_size=2, max_size=10)
SEEDS = st.integers(0, 10**6)

"""A market takes up to 50 ms of processor time, which a busy machine makes many times as much."""


def delta(number_of_hops: int) -> int:
    return delta_for_hops(queue_cost, PRICE, UNIT, number_of_hops, CAPACITY)


def market(loads: list[int], edges: Edges, width: int) -> Market:
    """Equal tasks, so many for each; the same contract everywhere."""
    tasks = [
        {f"{number}.{task}": UNIT for task in range(load)} for number, load in enumerate(loads)
    ]
    return Market(tasks, edges, uniform_bounds(PRICE, width), DESIRED)


def tasks_after(loads: list[int], edges: Edges, width: int, seed: int = 1) -> list[int]:
    made = market(loads, edges, width)
    made.run(random.Random(seed))
    return [level // UNIT for level in made.levels]


def test_a_chain_of_three_is_stuck_at_a_fixed_price_and_freed_by_a_range_of_one_hop() -> None:
    loads = [TASKS + 5, TASKS, 0]
    assert tasks_after(loads, chain(3), 0) == loads
    assert tasks_after(loads, chain(3), delta(1))[0] == TASKS
    assert tasks_after(loads, chain(3), PRICE * 6 // 100)[0] == TASKS


def test_a_range_of_k_hops_carries_overload_over_k_full_participants_and_no_further() -> None:
    for full in range(1, 5):
        stairs = [TASKS + 1, *[TASKS - place for place in range(full)], 0]
        assert tasks_after(stairs, chain(full + 2), delta(full))[0] == TASKS
        assert tasks_after(stairs, chain(full + 2), delta(full - 1)) == stairs


@given(LOADS, SEEDS)
def test_where_everybody_may_trade_with_everybody_a_fixed_price_is_enough(
    loads: list[int], seed: int
) -> None:
    after = tasks_after(loads, complete_graph(len(loads)), 0, seed)
    if sum(loads) <= TASKS * len(loads):
        assert max(after) <= TASKS
    else:
        assert min(after) >= TASKS


@given(LOADS, st.integers(1, 3), st.integers(0, 4), SEEDS)
def test_the_staircase_below_who_stays_overloaded(
    loads: list[int], contracts: int, width: int, seed: int
) -> None:
    """With a range for k hops, whoever is d hops from an overloaded one has at most d - 1
    tasks less than desired, for d up to k + 1.
    """
    edges = random_graph(len(loads), contracts, random.Random(seed))
    after = tasks_after(loads, edges, delta(width), seed)
    for place, load in enumerate(after):
        if load > TASKS:
            far = hops(edges, place)
            assert all(
                after[other] >= TASKS - (d - 1)
                for other, d in enumerate(far)
                if 1 <= d <= width + 1
            )


@given(LOADS, st.integers(1, 3), SEEDS)
def test_a_range_for_the_diameter_leaves_nobody_overloaded_where_there_is_room(
    loads: list[int], contracts: int, seed: int
) -> None:
    edges = random_graph(len(loads), contracts, random.Random(seed))
    wide = max(hops(edges, 0)) * 2
    after = tasks_after(loads, edges, delta(wide), seed)
    if sum(loads) <= (TASKS - wide) * len(loads):
        assert max(after) <= TASKS
    elif sum(loads) > TASKS * len(loads):
        assert min(after) >= TASKS - wide


UNEVEN = st.lists(st.lists(st.integers(1, 400), max_size=40), min_size=2, max_size=8)


@given(
    UNEVEN,
    st.integers(1, 3),
    st.sampled_from([0, 60_000, 300_000]),
    st.sampled_from([0, 200_000]),
    st.sampled_from(GainSplit),
    SEEDS,
)
def test_every_trade_is_in_its_bound_and_a_gain_for_both_and_money_only_changes_hands(
    loads: list[list[int]],
    contracts: int,
    delta_ppm: int,
    spread_ppm: int,
    split: GainSplit,
    seed: int,
) -> None:
    edges = random_graph(len(loads), contracts, random.Random(seed))
    bounds = varied_bounds(PRICE, delta_ppm, spread_ppm, seed)
    trades: list[Trade] = []
    tasks = [
        {f"{number}.{place}": units for place, units in enumerate(units_of)}
        for number, units_of in enumerate(loads)
    ]
    before = sorted(name for each in tasks for name in each)
    made = Market(tasks, edges, bounds, DESIRED, split=split, seen=trades.append)
    cost_before = made.total_cost
    found = made.run(random.Random(seed))
    for trade in trades:
        bound = bounds(trade.buyer, trade.seller)
        assert bound.floor <= trade.price <= bound.ceiling
        assert trade.seller_spends < trade.price * trade.units < trade.buyer_saves
    assert sum(made.income) == 0
    assert all(later < earlier for earlier, later in zip(found.cost, found.cost[1:], strict=False))
    assert cost_before - made.total_cost == sum(
        trade.buyer_saves - trade.seller_spends for trade in trades
    )
    assert sorted(name for each in made.tasks for name in each) == before
    assert made.levels == [sum(each.values()) for each in made.tasks]


@given(LOADS)
def test_no_distribution_costs_less_than_the_optimum(loads: list[int]) -> None:
    best = optimum([load * UNIT for load in loads], UNIT)
    assert sum(best) == sum(loads) * UNIT
    made = market(loads, complete_graph(len(loads)), PRICE)
    made.run(random.Random(1))
    assert made.total_cost >= total([queue_cost] * len(best), best)
    if sum(loads) * UNIT < CAPACITY * 9 // 10 * len(loads):
        for one in range(len(best)):
            for other in range(len(best)):
                moved = list(best)
                moved[one], moved[other] = moved[one] - UNIT, moved[other] + UNIT
                assert moved[one] < 0 or total([queue_cost] * len(best), moved) >= total(
                    [queue_cost] * len(best), best
                )


def test_graphs() -> None:
    edges = random_graph(200, 4, random.Random(3))
    assert min(map(len, edges)) >= 4
    assert len(hops(edges, 0)) == 200
    assert all(one in edges[other] for one in range(200) for other in edges[one])
    assert diameter(chain(7)) == 6
    assert diameter(complete_graph(5)) == 1


LEFT: dict[int, list[tuple[float, float, float]]] = {
    1: [(49, 25, 7.9), (54, 33, 13)],
    3: [(24, 3.1, 0), (31, 6.8, 2.0)],
    5: [(11, 0, 0), (18, 1.0, 1.1)],
    10: [(1.5, 0, 0), (5.0, 0.3, 0.3)],
    20: [(0.4, 0, 0), (0.5, 0.02, 0.01)],
}
"""Contracts -> per cent left in an independent simulation with 995 participants, at ranges of
0, 6 and 17 %: underloaded, overloaded.
"""

REFERENCE = {
    (contracts, width, share): value
    for contracts, rows in LEFT.items()
    for share, row in zip((UNDER, OVER), rows, strict=True)
    for width, value in zip((0, 6, 17), row, strict=True)
}


@pytest.mark.parametrize(
    ("contracts", "width", "share"), [(3, 0, UNDER), (3, 6, UNDER), (10, 0, OVER), (10, 6, UNDER)]
)
def test_what_is_left_is_what_an_independent_simulation_left(
    contracts: int, width: int, share: float
) -> None:
    found = [run(Setting(300, contracts, width, share), seed) for seed in (1, 2)]
    assert averaged(found, lambda each: each.residue) == pytest.approx(
        REFERENCE[contracts, width, share], abs=6, rel=0.3
    )


@pytest.mark.nightly
@pytest.mark.parametrize(("contracts", "width", "share"), list(REFERENCE))
def test_the_whole_table_within_the_noise_of_seeds(
    contracts: int, width: int, share: float
) -> None:
    found = [run(Setting(995, contracts, width, share), seed) for seed in (1, 2, 3)]
    assert averaged(found, lambda each: each.residue) == pytest.approx(
        REFERENCE[contracts, width, share], abs=2.5, rel=0.25
    )


QUEUE = QueueCost(10_000, 1_000_000_000)


@given(st.integers(1, 10_000))
def test_the_desired_load_is_the_highest_whose_last_task_is_worth_its_price(price: int) -> None:
    cost = CornerCost(tuple((number * 10, number**2) for number in range(100)))
    desired = threshold(cost, price, 10, 1_000)
    assert desired == 0 or marginal(cost, desired - 10, 10) <= price * 10
    assert desired == 1_000 or marginal(cost, desired, 10) > price * 10


@pytest.mark.parametrize(
    ("utilisation", "hops"),
    [(6_000, 1), (6_000, 3), (7_000, 1), (7_000, 3), (7_000, 5), (8_000, 1), (9_000, 5)],
)
def test_the_range_that_overload_needs_to_travel_is_that_of_the_closed_form(
    utilisation: int, hops: int
) -> None:
    """For tasks of 1 % of the capacity: the unit cost of a task on top of x is 1 / ((1 - x) *
    (1 - x - u)).
    """
    r, u = utilisation / 10_000, 0.01
    price = -(-marginal(QUEUE, utilisation - 100, 100) // 100)
    found = delta_for_hops(QUEUE, price, 100, hops, 9_800) / price
    assert found == pytest.approx(
        1 - (1 - r) * (1 - r + u) / ((1 - r + hops * u) * (1 - r + (hops + 1) * u)), rel=1e-4
    )


def test_no_range_goes_below_nothing() -> None:
    cost = CornerCost(((0, 0), (10, 5)))
    assert delta_for_hops(cost, 5, 10, 5, 20) == 5
