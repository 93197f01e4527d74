"""Samples, computed again."""

from __future__ import annotations

import pytest

from anabranch.protocol.federation.audit import (
    COMMITMENTS_MAX,
    Commitment,
    Commitments,
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
    claimed = {1: (1, 7), 2: (1, 8), 4: (2, 9), 5: (1, 1), 6: (1, 2)}
    computed = {1: (1, 7), 2: (1, 6), 3: (1, 5), 4: (2, 9), 6: (0, 0), 7: (0, 0)}
    assert findings(claimed, computed) == [
        Finding(2, Fault.WRONG_RESULT),
        Finding(3, Fault.NO_RESULT),
        Finding(6, Fault.WRONG_RESULT),
    ], "5 is not looked at, 7 is empty by right"
    assert findings(claimed, {1: (1, 7)}) == []


NONCE = bytes(range(16))
WIDTH_MS = 100
ALL = 1_000_000


def committed(at_ms: int = 1_000, bucket_ms: int = WIDTH_MS) -> Commitments:
    made = Commitments()
    assert made.add("m", commitment(NONCE), bucket_ms, at_ms) == ""
    return made


def test_fu4_a_number_counts_once_and_only_after_its_hash() -> None:
    made = committed()
    for movement, nonce in (("m", bytes(16)), ("o", NONCE)):
        assert made.reveal(movement, nonce, [], ALL, (0, 9_000)) == "not committed to before"
    assert made.reveal("m", NONCE, [20], ALL, (0, 9_000)) == ""
    assert made.reveal("m", NONCE, [20], ALL, (0, 9_000)) == "not committed to before"
    assert made.add("m", commitment(NONCE), WIDTH_MS, 1) == "committed to already"


@pytest.mark.parametrize(
    ("bucket", "counts"),
    [(10, False), (11, True), (20, False), (21, True), (50, True), (51, False)],
)
def test_fu4_a_bucket_counts_that_ends_after_the_hash_and_while_the_movement_ran(
    bucket: int, counts: bool
) -> None:
    begun_ms = 0 if bucket < 20 else 2_000
    found = committed().reveal("m", NONCE, [bucket], ALL, (begun_ms, 5_000))
    assert (found == "") is counts
    if not counts:
        assert found == "a bucket that did not end in the time that counts"


def test_what_was_committed_to_can_be_found() -> None:
    made = committed()
    assert made.find("m", commitment(NONCE)) == Commitment(1_000, WIDTH_MS)
    assert made.find("o", commitment(NONCE)) is None
    made.reveal("m", NONCE, [], ALL, (0, 9_000))
    assert made.find("m", commitment(NONCE)) == Commitment(1_000, WIDTH_MS, is_open=False)


def test_fu4_a_bucket_counts_that_is_in_the_sample() -> None:
    drawn = sample(NONCE, "m", range(11, 51), 500_000)
    other = next(bucket for bucket in range(11, 51) if bucket not in drawn)
    made = committed()
    found = made.reveal("m", NONCE, [drawn[0], other], 500_000, (0, 5_000))
    assert found == "a bucket that is not in the sample"
    assert made.reveal("m", NONCE, drawn, 500_000, (0, 5_000)) == "", (
        "it is told only once it counts"
    )


def test_fu4_a_width_that_is_wrong_makes_no_bucket_count() -> None:
    for bucket_ms in (1, 10**6):
        assert committed(1_000, bucket_ms).reveal("m", NONCE, [20], ALL, (0, 9_000))


@pytest.mark.parametrize(
    ("digest", "bucket_ms"), [(b"short", 1), (bytes(32), 0), (bytes(32), 2**53 + 1)]
)
def test_what_is_no_commitment_is_none(digest: bytes, bucket_ms: int) -> None:
    assert Commitments().add("m", digest, bucket_ms, 0) == "not a commitment"


def test_a_number_that_could_be_guessed_counts_never() -> None:
    made = Commitments()
    assert made.add("m", commitment(b"n"), WIDTH_MS, 0) == ""
    assert made.reveal("m", b"n", [], ALL, (0, 9_000)) == "not committed to before"


def test_an_audit_may_go_on_for_ever() -> None:
    """A contract with ten movements at a time has as many commitments in six weeks."""
    made = Commitments()
    for number in range(COMMITMENTS_MAX + 1):
        nonce = number.to_bytes(16)
        assert made.add("m", commitment(nonce), WIDTH_MS, 0) == ""
        assert made.reveal("m", nonce, [], ALL, (0, 9_000)) == ""
    assert made.add("m", commitment(bytes(16)), WIDTH_MS, 0) == "committed to already"


def test_commitments_are_bounded() -> None:
    made = Commitments()
    for number in range(COMMITMENTS_MAX):
        assert made.add("m", number.to_bytes(32), WIDTH_MS, 0) == ""
    assert made.add("m", bytes(31) + b"n" + b"", WIDTH_MS, 0) == "committed to already"
    assert made.add("o", bytes(32), WIDTH_MS, 0) == "too many commitments"
