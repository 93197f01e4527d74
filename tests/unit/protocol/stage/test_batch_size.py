"""Batches of plans that compare rows grow while that makes them faster (BS1 to BS3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.limits import BATCH_ROWS_MAX
from anabranch.protocol.stage.batch_size import (
    BATCH_LONG_MS,
    COMPARED_ROWS_MIN,
    BatchSize,
    first_rows_max,
)
from anabranch.protocol.stage.planner import PlanTraits

JOIN = PlanTraits(is_stateful=True, is_batch_safe=True, compares_rows=True)
OTHER = PlanTraits(is_stateful=True, is_batch_safe=True)


def drained(backlog: int, duration_ms: Callable[[int], float]) -> tuple[float, list[int]]:
    """Return the ms that a backlog takes, and the rows of its batches."""
    size, took_ms, batches = BatchSize(BATCH_ROWS_MAX, JOIN), 0.0, []
    while backlog:
        rows = min(backlog, size.rows_max)
        took_ms += duration_ms(rows)
        batches.append(rows)
        size.took(rows, round(duration_ms(rows)))
        backlog -= rows
    return took_ms, batches


def test_bs1_other_plans_take_what_they_may() -> None:
    size = BatchSize(5_000, OTHER)
    size.took(5_000, 10 * BATCH_LONG_MS)
    size.took(5_000, 1)
    assert size.rows_max == 5_000 == first_rows_max(5_000, OTHER)
    assert first_rows_max(5_000, JOIN) == COMPARED_ROWS_MIN


def test_a_backlog_of_few_keys_does_not_take_the_square_of_its_rows() -> None:
    """Three keys, 3 us a pair, 700 ms a batch: at once it takes a day."""
    backlog = 300_000

    def cost(rows: int) -> float:
        return 700 + rows**2 / 3 * 0.003

    took_ms, batches = drained(backlog, cost)
    best_ms = min(-(-backlog // n) * cost(n) for n in range(500, 8_000, 100))
    assert cost(backlog) > 86_000_000
    assert took_ms < 3 * best_ms
    assert max(batches) <= 2 * COMPARED_ROWS_MIN


def test_where_rows_have_keys_of_their_own_batches_grow() -> None:
    took_ms, batches = drained(10_000_000, lambda rows: 700 + rows / 200)
    assert max(batches) > 250_000
    assert took_ms < 2 * (10_000_000 / 200)


def test_on_a_slow_machine_what_each_batch_costs_is_spread_over_more_rows() -> None:
    """Whatever small batches take, twice the rows in the same time are better."""
    _, batches = drained(100_000, lambda rows: 8_000 + rows / 50)
    assert max(batches) >= 8 * COMPARED_ROWS_MIN


def test_bs3_a_long_batch_is_followed_by_smaller_ones() -> None:
    size = BatchSize(BATCH_ROWS_MAX, JOIN)
    for _ in range(4):
        size.took(size.rows_max, 100)
    assert size.rows_max == 16 * COMPARED_ROWS_MIN
    size.took(size.rows_max, BATCH_LONG_MS + 1)
    assert size.rows_max == 8 * COMPARED_ROWS_MIN
    size.took(3, 10 * BATCH_LONG_MS)
    assert size.rows_max == 8 * COMPARED_ROWS_MIN, "it was not bounded by this size"


@given(
    most=st.integers(1, 100_000),
    batches=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 20_000)), max_size=60),
)
def test_bs2_it_stays_within_its_bounds(most: int, batches: list[tuple[float, int]]) -> None:
    size = BatchSize(most, JOIN)
    for part, took_ms in batches:
        size.took(round(part * size.rows_max), took_ms)
        assert min(most, COMPARED_ROWS_MIN) <= size.rows_max <= most


@pytest.mark.parametrize("rows", [0, 1])
def test_batches_without_rows_change_nothing(rows: int) -> None:
    size = BatchSize(BATCH_ROWS_MAX, JOIN)
    size.took(rows, 0)
    assert size.rows_max == COMPARED_ROWS_MIN
