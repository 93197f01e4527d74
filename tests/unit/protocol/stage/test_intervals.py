"""Intervals of the hash: halving, containment, names, and what a stage begins with."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.limits import SHARDS_MAX
from anabranch.protocol.stage.intervals import (
    BITS_MAX,
    HASH_BITS,
    Interval,
    divided,
    interval_of,
    is_power_of_two,
    stage_of,
)

WHOLE = Interval()
intervals = st.text("01", max_size=BITS_MAX).map(Interval)
halvable = st.text("01", max_size=BITS_MAX - 1).map(Interval)
hashes = st.integers(0, 2**HASH_BITS - 1)


def test_the_first_bit_is_the_highest() -> None:
    assert [(each.begins, each.ends) for each in WHOLE.halves()] == [
        (0, 2**31),
        (2**31, 2**32),
    ]
    assert Interval("01").begins == 2**30
    assert (WHOLE.prefix, WHOLE.shift, Interval("101").prefix, Interval("101").shift) == (
        0,
        32,
        5,
        29,
    )


@given(halvable, hashes)
def test_iv1_a_hash_is_in_one_half_of_an_interval_that_contains_it(
    interval: Interval, value: int
) -> None:
    assert sum(half.has(value) for half in interval.halves()) == interval.has(value)
    assert interval.has(value) == (interval.begins <= value < interval.ends)


@given(intervals, intervals)
def test_iv2_intervals_have_a_hash_in_common_only_if_one_contains_the_other(
    one: Interval, other: Interval
) -> None:
    common = max(one.begins, other.begins) < min(one.ends, other.ends)
    assert (one.contains(other) or other.contains(one)) == common
    assert one.contains(other) == (one.begins <= other.begins and other.ends <= one.ends)


@given(st.integers(0, 2**32), st.integers(0, SHARDS_MAX - 1))
def test_iv3_halving_preserves_the_division(seed: int, times: int) -> None:
    rng, parts = random.Random(seed), [WHOLE]
    for _ in range(times):
        parts += parts.pop(rng.randrange(len(parts))).halves()
    ends = [0, *(each.ends for each in sorted(parts))]
    assert ends == [*(each.begins for each in sorted(parts)), 2**HASH_BITS]


@given(intervals)
def test_iv4_stage_and_bits_follow_from_the_name(interval: Interval) -> None:
    name = interval.name("volumes")
    assert (interval_of(name), stage_of(name)) == (interval, "volumes")


def test_iv4_the_bits_are_the_name() -> None:
    assert WHOLE.name("volumes") == "volumes"
    assert Interval("01").name("volumes") == "volumes.01"


def test_a_stage_begins_with_intervals_of_one_length() -> None:
    assert divided(1) == [WHOLE]
    assert [each.bits for each in divided(4)] == ["00", "01", "10", "11"]


def test_powers_of_two_are_known() -> None:
    assert [n for n in range(1, SHARDS_MAX + 1) if is_power_of_two(n)] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("bits", ["0" * (BITS_MAX + 1), "02", "0-1", " "])
def test_other_texts_are_no_bits(bits: str) -> None:
    with pytest.raises(ValueError, match="an interval has at most 15 bits"):
        Interval(bits)
