"""The share of the rows that a share of the keys has, and the keys to keep for a share of rows."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.key_shares import KeyShares, rows_of_all

ROWS = 1_000
EVEN = [(50 * n + 22, 50) for n in range(20)]
"""Steps of 20 keys with as many rows each: (per mille of the keys, per mille of the rows)."""
HOT = [(at, 525 if at == 472 else 25) for at, _ in EVEN]
"""The same where one key has half of the rows."""
HOT_FIRST = [(at, 525 if at == 22 else 25) for at, _ in EVEN]
"""The same where that is the first key."""

steps_of_keys = st.lists(
    st.tuples(st.integers(0, KEPT_ALL - 1), st.integers(1, 100)), min_size=1, max_size=30
)


def kept(steps: list[tuple[int, int]], keys: int, rows: int = ROWS) -> int:
    """Return how many of ``rows`` the keys below ``keys`` per mille have."""
    whole = sum(weight for _, weight in steps)
    return rows * sum(weight for at, weight in steps if at < keys) // whole


def run(
    shares: KeyShares,
    steps: list[tuple[int, int]],
    wanted: int,
    batches: int,
    fits: int = KEPT_ALL,
) -> list[int]:
    """Run batches that want ``wanted`` per mille of the rows, and have the time for ``fits``.
    Return the keys that each kept.
    """
    found = []
    for _ in range(batches):
        found.append(shares.keys_for(wanted, fits))
        shares.saw(found[-1], kept(steps, found[-1]), ROWS)
    return found


@given(st.integers(0, KEPT_ALL))
def test_kk1_without_points_the_keys_are_the_rows(wanted: int) -> None:
    shares = KeyShares()
    assert shares.keys_for(wanted, KEPT_ALL) == wanted
    shares.saw(KEPT_ALL, ROWS, ROWS)  # what keeps all says nothing of a part
    shares.saw(400, 0, 0)  # nor does a batch without rows
    assert shares.keys_for(wanted, KEPT_ALL) == wanted


def test_kk1_of_many_equal_keys_the_keys_stay_the_rows() -> None:
    shares = KeyShares()
    for keys in (200, 300, 250, 200, 300):
        shares.saw(keys, keys, ROWS)
    for wanted in (100, 250, 600):
        assert shares.keys_for(wanted, KEPT_ALL) == pytest.approx(wanted, abs=1)


@given(st.lists(st.tuples(st.integers(1, 999), st.integers(0, 1_000)), max_size=40))
def test_kk2_the_more_rows_are_wanted_the_more_keys_are_kept(seen: list[tuple[int, int]]) -> None:
    shares = KeyShares()
    for keys, some in seen:
        shares.saw(keys, some, ROWS)
    found = [shares.keys_for(wanted, KEPT_ALL) for wanted in (0, *range(1, KEPT_ALL, 37), KEPT_ALL)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, KEPT_ALL)
    assert all(keys > 0 for keys in found[1:])


@given(steps_of_keys, st.integers(1, KEPT_ALL - 1))
def test_kk3_of_two_batches_one_keeps_a_row(steps: list[tuple[int, int]], wanted: int) -> None:
    shares = KeyShares()
    found = run(shares, steps, wanted, 60)
    some = [kept(steps, keys) > 0 for keys in found]
    first = some.index(True)
    assert first <= 10, "ten times twice as many are all"
    assert all(after >= min(2 * keys, KEPT_ALL) for keys, after in pairwise(found[: first + 1]))
    assert all(one or other for one, other in pairwise(some[first:]))


def test_kk3_a_first_key_with_few_rows_is_kept_by_each_batch() -> None:
    """Its rows are five times as many as wanted."""
    found = run(KeyShares(), EVEN, 10, 200)
    assert all(kept(EVEN, keys) == 50 for keys in found[20:])


@pytest.mark.parametrize(("steps", "fits"), [(EVEN, 30), (HOT_FIRST, KEPT_ALL)])
def test_kk3_one_that_does_not_fit_or_has_many_rows_is_kept_by_every_other_batch(
    steps: list[tuple[int, int]], fits: int
) -> None:
    some = [kept(steps, keys) > 0 for keys in run(KeyShares(), steps, 10, 200, fits)]
    assert not all(some[-20:])
    assert all(one or other for one, other in pairwise(some[20:]))


def test_kk3_of_many_keys_the_branch_keeps_as_few_as_wanted() -> None:
    shares = KeyShares()
    shares.saw(1, 0, 200)  # of so few rows nothing was to be expected
    for keys in (90, 90):
        shares.saw(keys, keys, ROWS)
    assert shares.keys_for(10, KEPT_ALL) < 20
    shares.saw(60, 0, ROWS)
    assert shares.keys_for(10, KEPT_ALL) == 90
    shares.saw(20, 20, ROWS)  # a key has come
    assert shares.keys_for(10, KEPT_ALL) < 20


@pytest.mark.parametrize("steps", [EVEN, HOT])
@pytest.mark.parametrize("wanted", [60, 130, 300, 480, 700])
def test_kk4_the_wanted_share_of_the_rows_is_found(
    steps: list[tuple[int, int]], wanted: int
) -> None:
    shares = KeyShares()
    last = run(shares, steps, wanted, 40)[-15:]
    least = max(kept(steps, keys) for keys in range(KEPT_ALL) if kept(steps, keys) <= wanted)
    found = [kept(steps, keys) for keys in last]
    assert found.count(least) >= 12, found


def test_a_shard_stands_for_all() -> None:
    assert [rows_of_all(30, halvings) for halvings in range(3)] == [30, 60, 120]


def test_few_rows_say_little() -> None:
    shares = KeyShares()
    shares.saw(500, 1, 2)
    assert shares.keys_for(300, KEPT_ALL) == 300
    shares.saw(500, 2, 2)
    assert 250 < shares.keys_for(300, KEPT_ALL) < 300
    shares.saw(500, 900, 1_000)
    assert shares.keys_for(300, KEPT_ALL) < 180


def test_what_was_seen_fades() -> None:
    shares = KeyShares()
    for _ in range(5):
        shares.saw(500, 900, ROWS)
    assert shares.keys_for(450, KEPT_ALL) < 300
    for _ in range(150):
        shares.saw(100, 100, ROWS)
    assert abs(shares.keys_for(450, KEPT_ALL) - 450) <= 1
