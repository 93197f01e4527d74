"""Samples, computed again."""

from __future__ import annotations

import pytest

from anabranch.protocol.federation.audit import (
    Fault,
    Finding,
    commitment,
    findings,
    is_sampled,
    sample,
)


def test_fu1_the_sample_follows_from_number_movement_and_bucket() -> None:
    drawn = sample(b"n", "m", range(1_000), 100_000)
    assert drawn == sample(b"n", "m", range(1_000), 100_000)
    assert drawn != sample(b"o", "m", range(1_000), 100_000)
    assert drawn != sample(b"n", "o", range(1_000), 100_000)
    assert is_sampled(b"n", "m", drawn[0], 100_000)


@pytest.mark.parametrize("share_ppm", [0, 10_000, 500_000, 1_000_000])
def test_fu2_the_sample_is_the_contracts_share(share_ppm: int) -> None:
    drawn = len(sample(b"n", "m", range(5_000), share_ppm))
    assert drawn == pytest.approx(
        5_000 * share_ppm / 1_000_000, abs=75 if 0 < share_ppm < 1_000_000 else 0
    )


def test_the_commitment_fixes_the_number() -> None:
    assert commitment(b"n") == commitment(b"n") != commitment(b"o")
    assert commitment(b"n") != b"n"


def test_fu3_what_is_wrong_and_what_is_missing_is_found_and_nothing_else() -> None:
    claimed = {1: "a", 2: "b", 4: "d", 5: "not looked at"}
    assert findings(claimed, {1: "a", 2: "x", 3: "c", 4: "d"}) == [
        Finding(2, Fault.WRONG_RESULT),
        Finding(3, Fault.NO_RESULT),
    ]
    assert findings(claimed, {1: "a"}) == []
