"""How much of a source is read at a time, and what says that there is a backlog."""

from __future__ import annotations

import pytest

from anabranch.codec.batch_slices import ROWS_PER_PARTITION
from anabranch.protocol.edge.source_batches import (
    BACKLOG_RECORDS,
    FETCH_RECORDS_MAX,
    ROWS_PER_PART,
    SOURCE_BATCH_BYTES,
    SOURCE_BATCH_RECORDS,
    SourceBatches,
)
from anabranch.protocol.limits import PARTS_PER_RECORD_MAX


def fetches(batches: SourceBatches, record_bytes: int, held: int = 10**9) -> list[int]:
    """Read one batch of an input that holds ``held`` records. Return the sizes of its fetches."""
    sizes = list[int]()
    batches.begin()
    while records_max := batches.fetch_max():
        sizes.append(min(records_max, held))
        held -= sizes[-1]
        batches.fetched(sizes[-1], sizes[-1] * record_bytes)
    return sizes


def test_sz1_a_backlog_is_read_in_full_batches() -> None:
    batches = SourceBatches()
    first = fetches(batches, 100)
    assert first[0] == SOURCE_BATCH_BYTES // (64 * 1024), "nothing is known of their size yet"
    assert sum(first) == SOURCE_BATCH_RECORDS
    assert fetches(batches, 100) == [FETCH_RECORDS_MAX] * 4
    assert batches.has_backlog()


@pytest.mark.parametrize("record_bytes", [1, 900, 10_000, SOURCE_BATCH_BYTES // 3])
def test_sz1_large_records_make_small_batches(record_bytes: int) -> None:
    batches = SourceBatches()
    fetches(batches, record_bytes)
    assert sum(fetches(batches, record_bytes)) == min(
        SOURCE_BATCH_RECORDS, -(-SOURCE_BATCH_BYTES // record_bytes)
    )


def test_sz2_records_that_fill_a_batch_are_read_one_by_one() -> None:
    batches = SourceBatches()
    fetches(batches, 2 * SOURCE_BATCH_BYTES)
    for _ in range(3):
        assert fetches(batches, 2 * SOURCE_BATCH_BYTES) == [1]
        assert batches.has_backlog()
    assert fetches(batches, 0) == [1, *[FETCH_RECORDS_MAX] * 3, FETCH_RECORDS_MAX - 1]


def test_sz4_a_fetch_that_returns_less_ends_the_batch() -> None:
    batches = SourceBatches()
    assert not batches.has_backlog(), "nothing was read"
    assert fetches(batches, 100, held=0) == [0]
    assert not batches.has_backlog()
    assert fetches(batches, 100, held=7) == [7]
    assert not batches.has_backlog()
    assert sum(fetches(batches, 100, held=BACKLOG_RECORDS - 1)) == BACKLOG_RECORDS - 1
    assert not batches.has_backlog()
    assert sum(fetches(batches, 100, held=BACKLOG_RECORDS)) == BACKLOG_RECORDS
    assert batches.has_backlog(), "a large batch says so, too"


def test_sz4_a_fetch_that_fails_ends_the_batch_and_the_backlog() -> None:
    batches = SourceBatches()
    batches.begin()
    batches.fetched(batches.fetch_max(), 0)
    assert batches.has_backlog()
    batches.failed()
    assert batches.fetch_max() == 0
    assert not batches.has_backlog()
    batches.begin()
    assert batches.fetch_max() == FETCH_RECORDS_MAX


def test_sz3_sparse_data_is_halved_and_read_in_smaller_batches_for_a_while() -> None:
    batches = SourceBatches()
    most = PARTS_PER_RECORD_MAX
    assert not batches.must_halve(most, rows=ROWS_PER_PART - 1, buckets=most)
    assert batches.must_halve(most, rows=ROWS_PER_PART, buckets=most)
    assert sum(fetches(batches, 10)) == most // 2
    assert not batches.must_halve(most // 2, rows=0, buckets=most // 4)
    assert sum(fetches(batches, 10)) == most // 2, "still sparse"
    assert batches.must_halve(3, rows=3, buckets=most + 1)
    assert sum(fetches(batches, 10)) == 1_000
    assert not batches.must_halve(1, rows=1, buckets=most + 1), "it has no halves"
    assert not batches.must_halve(1_000, rows=0, buckets=most // 4 - 1)
    assert sum(fetches(batches, 10)) == SOURCE_BATCH_RECORDS


def test_sz3_the_expected_number_of_parts_is_never_too_small() -> None:
    assert ROWS_PER_PART <= ROWS_PER_PARTITION
