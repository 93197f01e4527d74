"""What a bucket costs a batch, told apart from its fixed part and its rows."""

from __future__ import annotations

import random

import pytest

from anabranch.protocol.stage.bucket_cost import (
    MEASURED_BATCHES,
    MEASURED_LEAST,
    ROWS_PARTS,
    BucketCost,
)

WIDTH_MS, TARGET_MS = 500, 1_150


def measured(
    fixed_ms: float,
    bucket_ms: float,
    row_ms: float = 5,
    *,
    batches: int = MEASURED_BATCHES,
    noise_ms: float = 0,
    seed: int = 1,
) -> BucketCost:
    """Return the cost after batches of one to three buckets, most of which have one."""
    made, rng = BucketCost(), random.Random(seed)
    for _ in range(batches):
        buckets = rng.choice((1, 1, 1, 2, 3))
        rows = sum(rng.randint(1, 20) for _ in range(buckets))
        took_ms = fixed_ms + buckets * bucket_ms + rows * row_ms + rng.gauss(0, noise_ms)
        made.took(buckets, rows, max(1, round(took_ms)), beside=False)
    return made


@pytest.mark.parametrize(
    ("fixed_ms", "bucket_ms", "most"), [(50, 200, 4), (0, 325, 2), (500, 100, 5), (900, 100, 9)]
)
def test_the_parts_are_told_apart(fixed_ms: float, bucket_ms: float, most: int) -> None:
    made = measured(fixed_ms, bucket_ms)
    assert made.bucket_ms == pytest.approx(bucket_ms, abs=2)
    assert made.fixed_ms == pytest.approx(fixed_ms, abs=5)
    found = made.buckets_within(TARGET_MS, WIDTH_MS)
    assert found is not None
    assert abs(found - most) <= 1


@pytest.mark.parametrize("fixed_ms", [50, 300, 900, 2_000])
def test_bc1_where_buckets_cost_nothing_there_is_no_bound(fixed_ms: float) -> None:
    assert measured(fixed_ms, 0).bucket_ms < 1
    bounds = [
        measured(fixed_ms, 0, noise_ms=fixed_ms / 10, seed=seed).buckets_within(TARGET_MS, WIDTH_MS)
        for seed in range(60)
    ]
    assert bounds.count(None) >= 59


def test_bc1_nor_where_batches_show_nothing() -> None:
    made = BucketCost()
    assert made.buckets_within(TARGET_MS, WIDTH_MS) is None
    assert measured(50, 200, batches=MEASURED_LEAST - 1).buckets_within(TARGET_MS, WIDTH_MS) is None
    for number in range(MEASURED_BATCHES):
        made.took(1, number % 7 + 1, 300, beside=False)
    assert made.buckets_within(TARGET_MS, WIDTH_MS) is None, "all have one bucket"
    made = BucketCost()
    for number in range(MEASURED_BATCHES):
        buckets = number % 3 + 1
        made.took(buckets, 5 * buckets, 200 * buckets, beside=False)
    assert made.buckets_within(TARGET_MS, WIDTH_MS) is None, "it may as well be their rows"
    made = BucketCost()
    for number in range(MEASURED_BATCHES):
        buckets = number % 3 + 1
        made.took(buckets, 6, 200 * buckets, beside=False)
    assert made.buckets_within(TARGET_MS, WIDTH_MS) == 4, "their rows are the same"


@pytest.mark.parametrize("fixed_ms", [0, 100, 400, 1_000])
@pytest.mark.parametrize("bucket_ms", [20, 100, 200, 325, 450])
def test_bc2_batches_of_the_bound_keep_up(fixed_ms: float, bucket_ms: float) -> None:
    made = measured(fixed_ms, bucket_ms)
    most = made.buckets_within(TARGET_MS, WIDTH_MS)
    assert most is not None
    rows_ms = TARGET_MS / ROWS_PARTS
    assert made.fixed_ms + most * made.bucket_ms + rows_ms <= most * WIDTH_MS


def test_bc2_no_bound_where_no_batch_would_keep_up() -> None:
    assert measured(50, 600).buckets_within(TARGET_MS, WIDTH_MS) is None


def test_bc3_a_correction_shows_that_a_bucket_costs_less() -> None:
    made = measured(50, 300)
    before = made.buckets_within(TARGET_MS, WIDTH_MS)
    made.took(10, 50, 4_000, beside=True)
    assert made.buckets_within(TARGET_MS, WIDTH_MS) == before, "beside another it may be longer"
    made.took(10, 50, 500, beside=True)
    assert made.bucket_ms == 50
    after = made.buckets_within(TARGET_MS, WIDTH_MS)
    assert before is not None
    assert after is not None
    assert after > 3 * before


def test_bc4_a_batch_may_have_the_buckets_that_cost_as_much_as_its_fixed_part() -> None:
    made = measured(1_000, 50)
    most = made.buckets_within(TARGET_MS, WIDTH_MS)
    assert most is not None
    assert 19 <= most <= 21, "two or three would keep up"


def test_noise_makes_a_bucket_seem_to_cost_less_not_more() -> None:
    found = [measured(100, 200, noise_ms=50, seed=seed).bucket_ms for seed in range(60)]
    assert sum(bucket_ms > 200 for bucket_ms in found) <= 1
    assert sum(bucket_ms > 80 for bucket_ms in found) >= 54
