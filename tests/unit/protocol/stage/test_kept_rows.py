"""Which rows an overloaded stage's branch keeps, and what its results lack."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.stage.kept_rows import (
    KEPT_ALL,
    check_kept,
    is_kept,
    most_important,
    salt_of,
    shed_by,
    threshold,
)

identities = st.integers(min_value=0, max_value=2**64 - 1)
permilles = st.integers(min_value=0, max_value=KEPT_ALL)
SALT = salt_of("tolls")
SALT_OF_TOLLS = 0x9E2E7C0E8CB686BC
CHOSEN = [7, 8, 10, 15, 20, 21, 23, 27, 31, 39]


@given(identities, permilles, permilles)
def test_kr2_a_row_that_is_kept_is_kept_at_every_higher_share(
    identity: int, one: int, other: int
) -> None:
    low, high = sorted((one, other))
    assert is_kept(identity, SALT, low) <= is_kept(identity, SALT, high)
    assert is_kept(identity, SALT, KEPT_ALL)
    assert not is_kept(identity, SALT, 0)


@pytest.mark.parametrize("kept", [1, 100, 300, 500, 999])
@pytest.mark.parametrize("step", [1, 1_000, 1 << 32, 1 << 48])
def test_kr3_the_share_is_kept_of_identities_that_are_close_or_far(kept: int, step: int) -> None:
    count = 20_000
    found = sum(is_kept(n * step & (2**64 - 1), SALT, kept) for n in range(count))
    assert found == pytest.approx(count * kept / KEPT_ALL, abs=4 * (count * 0.25) ** 0.5)


def test_kr1_the_choice_is_the_same_in_every_version() -> None:
    """Replicas of different versions run side by side."""
    assert [n for n in range(40) if is_kept(n, SALT, 200)] == CHOSEN
    assert (SALT, threshold(1), threshold(KEPT_ALL)) == (SALT_OF_TOLLS, 4_294_967, 2**32)


def test_stages_of_a_chain_leave_out_rows_independently() -> None:
    first, second = salt_of("a"), salt_of("b")
    kept = [n for n in range(20_000) if is_kept(n, first, 500)]
    again = [n for n in kept if is_kept(n, second, 500)]
    assert len(again) == pytest.approx(len(kept) / 2, rel=0.05)


def test_what_results_lack_multiplies_along_a_chain() -> None:
    assert shed_by(KEPT_ALL) == 0
    assert shed_by(300) == 700
    assert shed_by(KEPT_ALL, [0, 700]) == 700
    assert shed_by(500, [500]) == 750
    assert shed_by(500, [100, 500, 0]) == 750
    assert shed_by(0) == KEPT_ALL


@given(permilles, st.lists(permilles))
def test_kr4_what_results_lack_never_decreases(kept: int, before: list[int]) -> None:
    found = shed_by(kept, before)
    assert KEPT_ALL - kept <= found <= KEPT_ALL
    assert found >= max(before, default=0)
    assert (found == 0) == (kept == KEPT_ALL and not any(before))


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0.0, 0.5, 2.0]), identities)),
    permilles,
)
def test_kr5_the_most_important_rows_of_each_bucket_are_kept(
    rows: list[tuple[int, float, int]], kept: int
) -> None:
    found = most_important(rows, SALT, kept)
    for bucket in (1, 2, 3):
        of_it = [
            (each[1], is_in) for each, is_in in zip(rows, found, strict=True) if each[0] == bucket
        ]
        inside = [importance for importance, is_in in of_it if is_in]
        outside = [importance for importance, is_in in of_it if not is_in]
        assert len(inside) == -(-len(of_it) * kept // KEPT_ALL)
        assert not inside or not outside or min(inside) >= max(outside)
    more = most_important(rows, SALT, min(KEPT_ALL, kept + 100))
    assert all(after >= before for before, after in zip(found, more, strict=True)), "KR2"


@pytest.mark.parametrize("kept", [-1, KEPT_ALL + 1])
def test_a_share_outside_of_its_bounds_is_rejected(kept: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"keeps {kept} per mille"):
        check_kept(kept)
    check_kept(0)
    check_kept(KEPT_ALL)
