"""What a bucket costs, by batches of different proportions."""

from __future__ import annotations

import random

import pytest

from anabranch.protocol.stage.bucket_cost import GROUPS_LEAST, MEASURED_BATCHES, BucketCost

Sizes = list[tuple[int, int]]
MIXED: Sizes = [(100, 1), (1_000, 1), (200, 4), (900, 2), (500, 5), (1_000, 3), (50, 2), (700, 7)]


def took_ms(rows: int, buckets: int) -> float:
    """Duration of a batch: 100 ms, 1 ms a row and 200 ms a bucket."""
    return 100 + rows + 200 * buckets


def measured(sizes: Sizes, slow: int | None = None) -> BucketCost:
    """Return the cost by batches of these sizes, of which one may be slow."""
    cost = BucketCost()
    for number, size in enumerate(sizes):
        cost.took(*size, took_ms(*size) + (20_000 if number == slow else 0))
    return cost


def test_batches_of_different_proportions_tell_it() -> None:
    assert measured(MIXED).bucket_ms == pytest.approx(200)


def test_cb1_nothing_else_does() -> None:
    assert BucketCost().bucket_ms == 0
    assert measured([(100 * count, count) for count in range(1, 9)]).bucket_ms == 0
    assert measured([(rows, 1) for rows in range(100, 900, 100)]).bucket_ms == 0
    assert measured(MIXED[:3]).bucket_ms == 0, f"fewer than {GROUPS_LEAST} groups"


def test_a_cost_that_is_known_stays_while_all_batches_are_alike() -> None:
    assert measured([*MIXED, *[(100, 2)] * 2 * MEASURED_BATCHES]).bucket_ms == pytest.approx(200)


def test_cb2_batches_that_are_shorter_than_their_buckets_end_it() -> None:
    cost = measured(MIXED)
    assert cost.took(100, 2, 130)
    assert cost.bucket_ms == 65


@pytest.mark.parametrize("slow", range(len(MIXED)))
def test_cb3_one_slow_batch_makes_buckets_no_dearer(slow: int) -> None:
    assert measured(MIXED * 2, slow + len(MIXED)).bucket_ms < 220


def test_rows_alone_make_no_bucket_dear() -> None:
    rng, cost = random.Random(1), BucketCost()
    for _ in range(200):
        rows, buckets = rng.randint(10, 1_000), rng.randint(1, 6)
        cost.took(rows, buckets, (100 + rows) * rng.uniform(0.9, 1.1))
        assert cost.bucket_ms < 60


def test_batches_without_rows_say_nothing() -> None:
    cost = BucketCost()
    assert not cost.took(0, 0, 5_000)
    assert cost.batches() == []


def test_it_says_when_rows_must_be_measured_anew_and_by_which_batches() -> None:
    cost = BucketCost()
    changed = [cost.took(*size, took_ms(*size)) for size in MIXED]
    assert changed.count(True) == 1
    assert cost.batches() == [(*size, took_ms(*size)) for size in MIXED]
    for _ in range(MEASURED_BATCHES):
        assert not cost.took(600, 2, took_ms(600, 2))
    of_other_sizes = [(50, 2), (100, 1), (200, 4), (500, 5)]
    assert cost.batches()[:-MEASURED_BATCHES] == [
        (*size, took_ms(*size)) for size in of_other_sizes
    ]
