"""Tests of the cost of load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.costs import (
    CornerCost,
    Cost,
    QueueCost,
    marginal,
)

QUEUE = QueueCost(10_000, 1_000_000_000)

CORNERS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100)), max_size=5).map(
    lambda steps: CornerCost(
        (
            (0, 3),
            *(
                (sum(n for n, _ in steps[: i + 1]), 3 + sum(s for _, s in steps[: i + 1]))
                for i in range(len(steps))
            ),
        )
    )
)
COSTS = st.one_of(
    st.builds(QueueCost, st.integers(2, 20_000), st.integers(1, 10**12), st.just(980_000)).filter(
        lambda c: c.capacity_units > 99
    ),
    CORNERS,
)


@given(COSTS, st.integers(0, 30_000), st.integers(1, 3_000), st.integers(0, 3_000))
def test_fk1_fk2_more_load_never_costs_less_and_each_unit_at_least_as_much(
    cost: Cost, level: int, units: int, higher: int
) -> None:
    assert marginal(cost, level, units) >= 0
    assert marginal(cost, level + higher, units) >= marginal(cost, level, units) - 2


@given(CORNERS, st.integers(0, 400), st.integers(1, 100), st.integers(0, 100))
def test_fk2_is_exact_where_nothing_is_rounded(
    cost: CornerCost, level: int, units: int, higher: int
) -> None:
    assert marginal(cost, level + higher, units) >= marginal(cost, level, units)


def test_a_queue_costs_the_mean_number_in_it() -> None:
    assert [QUEUE(units) for units in (0, 5_000, 9_000, 9_800)] == [0, 10**9, 9 * 10**9, 49 * 10**9]
    slope = 10**9 * 10_000 // 200**2
    assert QUEUE(9_801) == 49 * 10**9 + slope
    assert QUEUE(20_000) == 49 * 10**9 + slope * 10_200


def test_corners_are_added_up() -> None:
    cost = CornerCost(((0, 1), (10, 5), (20, 9)))
    assert [cost(units) for units in (0, 9, 10, 11, 20, 25)] == [0, 9, 10, 15, 60, 105]


@pytest.mark.parametrize(
    "corners",
    [(), ((1, 1),), ((0, 1), (0, 2)), ((0, -1),), ((0, 2), (5, 1)), ((0, 1), (9, 2), (8, 3))],
)
def test_a_line_that_is_no_cost_is_rejected(corners: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ConfigurationError, match="cost: "):
        CornerCost(corners)


@pytest.mark.parametrize(
    ("capacity", "scale", "guard"),
    [(1, 1, 980_000), (10, 0, 980_000), (10, 1, 0), (10, 1, 1_000_000), (10, 1, 1)],
)
def test_a_queue_without_room_is_rejected(capacity: int, scale: int, guard: int) -> None:
    with pytest.raises(ConfigurationError, match="cost: "):
        QueueCost(capacity, scale, guard)
