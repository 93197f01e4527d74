"""The price of one movement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.pricing import Bound, GainSplit, ask, bid, gains_enough, settled

BOUNDS = st.tuples(st.integers(0, 60), st.integers(1, 60)).map(
    lambda pair: Bound(min(pair), max(pair))
)
UNITS = st.integers(1, 12)
MICRO = st.integers(0, 800)


def prices(bound: Bound, units: int, kept: int, taken: int) -> list[int]:
    """Return all prices at which both gain, found by trying each."""
    return [
        price for price in range(bound.floor, bound.ceiling + 1) if taken < price * units < kept
    ]


@given(BOUNDS, UNITS, MICRO, MICRO, st.sampled_from(GainSplit))
def test_fp1_fp2_fp3_a_trade_takes_place_exactly_where_a_price_in_the_bound_is_a_gain_for_both(
    bound: Bound, units: int, kept: int, taken: int, split: GainSplit
) -> None:
    highest, lowest = bid(bound, units, kept), ask(bound, units, taken)
    price = (
        settled(bound, highest, lowest, split)
        if highest is not None and lowest is not None
        else None
    )
    possible = prices(bound, units, kept, taken)
    assert (price in possible) if possible else (price is None)


@given(BOUNDS, UNITS, MICRO, MICRO)
def test_the_splits(bound: Bound, units: int, kept: int, taken: int) -> None:
    possible = prices(bound, units, kept, taken)
    highest, lowest = bid(bound, units, kept), ask(bound, units, taken)
    if possible:
        assert highest is not None
        assert lowest is not None
        found = [
            settled(bound, highest, lowest, split)
            for split in (GainSplit.BUYER, GainSplit.SELLER, GainSplit.HALVES)
        ]
        assert found == [possible[0], possible[-1], (possible[0] + possible[-1]) // 2]


@pytest.mark.parametrize(
    ("kept", "taken", "price"),
    [
        (1_001, 999, 100),
        (1_000, 999, None),
        (1_001, 1_000, None),
        (1_000, 1_000, None),
        (5_000, 0, 100),
    ],
)
def test_at_delta_0_there_is_one_price_and_both_must_gain(
    kept: int, taken: int, price: int | None
) -> None:
    bound = Bound(100, 100)
    highest, lowest = bid(bound, 10, kept), ask(bound, 10, taken)
    assert (
        settled(bound, highest, lowest) if highest is not None and lowest is not None else None
    ) == price


@pytest.mark.parametrize(("highest", "lowest"), [(101, 90), (100, 79), (85, 90), (79, 78)])
def test_fp1_a_bid_or_an_ask_out_of_the_bound_is_no_price(highest: int, lowest: int) -> None:
    assert settled(Bound(80, 100), highest, lowest) is None


def test_a_gain_that_is_too_small_is_none() -> None:
    assert gains_enough(102, 10, 1_000, 20)
    assert not gains_enough(101, 10, 1_000, 20)
    assert gains_enough(100, 10, 1_000, 0)
