"""Shares of a link, for any rate and weights."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.control.link_shares import least_share, shares_of
from anabranch.protocol.limits import RANGE_PARTITION_BYTES

RATES = st.integers(0, 10**15)
WEIGHTS = st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 9_999), max_size=12)


@given(RATES, WEIGHTS)
def test_li1_the_shares_are_the_rate_but_for_less_than_a_byte_each(
    rate: int, weights: dict[str, int]
) -> None:
    shares = shares_of(rate, weights)
    assert list(shares) == list(weights), "in the given order"
    if weights:
        assert rate - len(weights) < sum(shares.values()) <= rate


@given(RATES, WEIGHTS)
def test_li2_a_share_is_its_weights_part(rate: int, weights: dict[str, int]) -> None:
    shares, total = shares_of(rate, weights), sum(weights.values())
    for stream, share in shares.items():
        assert 0 <= rate * weights[stream] - share * total < total
        assert all(share >= shares[other] for other in weights if weights[stream] >= weights[other])


@given(st.integers(1, 1_000))
def test_li3_the_least_share_is_an_answer_a_second(partitions: int) -> None:
    assert least_share(partitions) == partitions * RANGE_PARTITION_BYTES
