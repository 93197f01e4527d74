"""Utility by delay and loss, its inference, and the stage that leaves out rows."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.stage.utility import (
    FULL,
    STEP,
    Curve,
    Point,
    Qos,
    ShownLoss,
    StageLoad,
    choose,
    wrong_point,
)

LATE = Curve(((0, 1_000), (3_000, 1_000), (10_000, 0)))
LOSS = Curve(((0, 1_000), (500, 800), (1_000, 0)), is_concave=True)
LINE = Curve(((0, 1_000), (1_000, 0)), is_concave=True)


@pytest.mark.parametrize(
    ("at", "utility"),
    [(0, 1_000), (3_000, 1_000), (3_001, 999), (6_500, 500), (9_999, 0), (10_000, 0), (99_999, 0)],
)
def test_a_curve_is_straight_between_its_points(at: int, utility: int) -> None:
    assert LATE.value(at) == utility
    assert LATE.knee == 3_000


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    """Concave curves over lost rows."""
    losses = sorted(draw(st.lists(st.integers(0, 200), min_size=5, max_size=5)))
    points, utility = [(0, FULL)], FULL
    for number, lost in enumerate(losses, 1):
        utility -= lost
        points.append((number * 200, utility))
    return Curve(tuple(points), is_concave=True)


@given(curves(), st.integers(0, 1_100), st.integers(0, 1_100))
def test_ut1_more_loss_is_never_worth_more(curve: Curve, one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert 0 <= curve.value(high) <= curve.value(low) <= FULL


@pytest.mark.parametrize(
    ("points", "index", "words"),
    [
        ([(1, 1_000)], 0, "the first point must be at 0"),
        ([(0, 1_001)], 0, "from 0 to 1"),
        ([(0, 1_000), (5, -1)], 1, "from 0 to 1"),
        ([(0, 1_000), (5, 10), (5, 9)], 2, "must ascend"),
        ([(0, 500), (5, 501)], 1, "must not be worth more"),
        ([(0, 1_000), (500, 100), (1_000, 0)], 2, "must not get flatter"),
        ([(0, 1_000), (500, 100)], 1, "the last point must be at 100%"),
    ],
)
def test_a_wrong_point_is_named(points: list[Point], index: int, words: str) -> None:
    found = wrong_point(points, is_concave=True)
    assert found is not None
    assert found[0] == index
    assert words in found[1]
    with pytest.raises(ConfigurationError, match="no curve of utility"):
        Curve(tuple(points), is_concave=True)


def test_ut2_only_loss_must_be_concave() -> None:
    points = ((0, 1_000), (500, 100), (1_000, 0))
    assert wrong_point(points, is_concave=False) is None
    assert Curve(points).value(500) == 100
    assert wrong_point(LOSS.points, is_concave=True) is None
    with pytest.raises(ConfigurationError):
        Curve(())


def test_the_utility_of_a_result_is_that_of_its_delay_and_of_its_loss() -> None:
    qos = Qos(LATE, LOSS)
    assert [qos.utility(*at) for at in ((-5, 0), (3_000, 500), (6_500, 500), (10_000, 0))] == [
        1_000,
        800,
        400,
        0,
    ]
    usual = Qos.usual(3_500)
    assert (usual.latency.knee, usual.utility(3_500, 0), usual.utility(7_000, 0)) == (
        3_500,
        1_000,
        0,
    )
    assert usual.utility(0, 700) == 300


def test_the_stage_that_costs_less_utility_is_shed() -> None:
    """The decision table: the flat part of one curve, then the line of the other."""
    loads = [
        StageLoad("flat", 1_000_000, (ShownLoss(LOSS),)),
        StageLoad("line", 1_000_000, (ShownLoss(LINE),)),
    ]
    found = choose(loads, 500_000)
    assert dict(found.kept) == {"flat": 500, "line": 1_000}
    assert found.saved_us == 500_000
    taken = [(each.stage, each.kept, each.lost, each.saved_us) for each in found.table[:10]]
    assert taken == [("flat", 1_000 - n * STEP, 20, 50_000) for n in range(1, 11)]
    assert [(each.stage, each.lost, each.is_taken) for each in found.table[10:]] == [
        ("line", 50, False),
        ("flat", 80, False),
    ]
    more = choose(loads, 1_600_000)
    assert dict(more.kept) == {"flat": 400, "line": 0}, "the steep part of the first comes last"


def test_processor_time_counts_as_much_as_utility() -> None:
    costly = StageLoad("costly", 900_000, (ShownLoss(LINE),))
    cheap = StageLoad("cheap", 100_000, (ShownLoss(LINE),))
    assert dict(choose([cheap, costly], 90_000).kept) == {"cheap": 1_000, "costly": 900}


def test_what_others_leave_out_already_and_all_outputs_count() -> None:
    one = StageLoad("one", 1_000_000, (ShownLoss(LOSS),))
    worse = StageLoad("other", 1_000_000, (ShownLoss(LOSS, 500),))
    both = StageLoad("both", 1_000_000, (ShownLoss(LOSS), ShownLoss(LOSS)))
    assert dict(choose([worse, one], 50_000).kept) == {"one": 950, "other": 1_000}
    assert dict(choose([both, one], 50_000).kept) == {"both": 1_000, "one": 950}
    assert both.utility(500, {}) == 1_600


def test_ut3_what_a_stage_before_leaves_out_makes_rows_after_it_cheaper() -> None:
    chain = [
        StageLoad("first", 1_000_000, (ShownLoss(LINE, along=frozenset({"last"})),)),
        StageLoad("last", 1_000_000, (ShownLoss(LINE, along=frozenset({"first"})),)),
    ]
    found = choose(chain, 500_000)
    assert dict(found.kept) == {"first": 750, "last": 750}
    assert [step.lost for step in found.table[:3]] == [50, 48, 47]
    lost = sum(step.lost for step in found.table if step.is_taken)
    assert abs(lost - (1_000 - 750 * 750 // 1_000)) <= 1, "half would be lost at one stage alone"


def test_ut4_no_more_than_needed_and_all_if_it_must_be() -> None:
    load = StageLoad("a", 1_000, (ShownLoss(LINE),))
    assert dict(choose([load], 0).kept) == {"a": 1_000}
    assert dict(choose([load], 1).kept) == {"a": 950}
    assert (dict(choose([load], 9_999).kept), choose([load], 9_999).saved_us) == ({"a": 0}, 1_000)
    idle = choose([StageLoad("idle", 0, (ShownLoss(LINE),))], 5)
    assert (dict(idle.kept), idle.saved_us, idle.table) == ({"idle": 1_000}, 0, ())
    assert dict(choose([], 5).kept) == {}


loads = st.builds(
    StageLoad,
    st.just(""),
    st.integers(1, 20).map(lambda n: n * 20_000),
    st.lists(st.builds(ShownLoss, curves()), min_size=1, max_size=2).map(tuple),
)


@given(st.lists(loads, min_size=1, max_size=2), st.integers(0, 600_000))
def test_ut3_no_other_choice_costs_less_for_what_it_saves(
    given_loads: list[StageLoad], needed_us: int
) -> None:
    named = [StageLoad(str(i), each.cpu_us, each.outputs) for i, each in enumerate(given_loads)]
    found = choose(named, needed_us)
    prices = [step.price for step in found.table if step.is_taken]
    # Rounding to whole per mille may make a later step cheaper by one.
    saved_least = min((step.saved_us for step in found.table), default=1)
    assert all(b >= a - Fraction(4, saved_least) for a, b in pairwise(prices))
    lost = sum(step.lost for step in found.table if step.is_taken)
    grid = range(0, FULL + 1, STEP)
    for kept in product(grid, repeat=len(named)):
        saved_us = sum(
            load.cpu_us * (FULL - k) // FULL for load, k in zip(named, kept, strict=True)
        )
        if saved_us >= found.saved_us:
            other = sum(
                load.utility(FULL, {}) - load.utility(k, {})
                for load, k in zip(named, kept, strict=True)
            )
            largest = max((s.lost for s in found.table), default=0)
            assert lost <= other + largest + 2
