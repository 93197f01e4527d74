"""Intervals of the hash: halving, containment, names, and what divides all rows."""

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
    divides_whole,
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


@given(intervals, intervals, hashes)
def test_iv2_intervals_meet_only_if_one_contains_the_other(
    one: Interval, other: Interval, value: int
) -> None:
    common = max(one.begins, other.begins) < min(one.ends, other.ends)
    assert one.meets(other) == common
    assert one.contains(other) == (one.begins <= other.begins and other.ends <= one.ends)
    assert not (one.has(value) and other.has(value)) or one.meets(other)


@given(st.integers(0, 2**32), st.integers(0, SHARDS_MAX - 1))
def test_iv3_halving_preserves_the_division(seed: int, times: int) -> None:
    rng, parts = random.Random(seed), [WHOLE]
    for _ in range(times):
        parts += parts.pop(rng.randrange(len(parts))).halves()
    rng.shuffle(parts)
    assert divides_whole(parts)
    assert not divides_whole(parts[1:])
    assert not divides_whole([*parts, parts[0]])
    value = rng.randrange(2**HASH_BITS)
    assert sum(each.has(value) for each in parts) == 1


def test_iv3_overlaps_and_gaps_are_no_division() -> None:
    zero, one = WHOLE.halves()
    assert not divides_whole([])
    assert not divides_whole([WHOLE, zero])
    assert not divides_whole([zero, *zero.halves(), one])
    assert not divides_whole([zero])
    assert not divides_whole([one])


@given(intervals)
def test_iv4_stage_and_bits_follow_from_the_name(interval: Interval) -> None:
    name = interval.name("volumes")
    assert (interval_of(name), stage_of(name)) == (interval, "volumes")


def test_iv4_the_bits_are_the_name() -> None:
    assert WHOLE.name("volumes") == "volumes"
    assert Interval("01").name("volumes") == "volumes.01"


@given(halvable)
def test_halves_are_siblings(interval: Interval) -> None:
    lower, upper = interval.halves()
    assert (lower.sibling(), upper.sibling()) == (upper, lower)
    assert not lower.meets(upper)


def test_all_rows_have_no_sibling() -> None:
    assert WHOLE.sibling() is None


def test_a_stage_begins_with_intervals_of_one_length() -> None:
    assert divided(1) == [WHOLE]
    assert [each.bits for each in divided(4)] == ["00", "01", "10", "11"]
    assert divides_whole(divided(SHARDS_MAX))


def test_powers_of_two_are_known() -> None:
    assert [n for n in range(1, SHARDS_MAX + 1) if is_power_of_two(n)] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("bits", ["0" * (BITS_MAX + 1), "02", "0-1", " "])
def test_other_texts_are_no_bits(bits: str) -> None:
    with pytest.raises(ValueError, match="an interval has at most 15 bits"):
        Interval(bits)


def test_the_longest_interval_is_not_halved() -> None:
    longest = Interval("0" * BITS_MAX)
    assert (WHOLE.can_be_halved, longest.can_be_halved) == (True, False)
