"""``codec.batch_slices``: every row goes to exactly one partition, and small buckets are
not cut up.
"""

from __future__ import annotations

import pyarrow as pa

from anabranch.codec.batch_slices import ROWS_PER_PARTITION, slices


def table(event_times: list[int]) -> pa.Table:
    return pa.table(
        {"row": list(range(len(event_times))), "event_time": pa.array(event_times, pa.int64())}
    )


def test_a_small_bucket_stays_whole() -> None:
    found = slices(table([5, 105, 6]), 100, 4)
    assert [
        (partition, bucket, rows.column("row").to_pylist()) for partition, bucket, rows in found
    ] == [(1, 1, [0, 2]), (2, 2, [1])]


def test_a_large_bucket_is_spread() -> None:
    count = 2 * ROWS_PER_PARTITION + 1
    found = slices(table([5] * count), 100, 4)
    assert [partition for partition, _, _ in found] == [1, 2, 3]
    assert [row for _, _, rows in found for row in rows.column("row").to_pylist()] == list(
        range(count)
    )


def test_no_partition_twice_for_one_bucket() -> None:
    found = slices(table([5] * (9 * ROWS_PER_PARTITION)), 100, 2)
    assert sorted(partition for partition, _, _ in found) == [0, 1]


def test_writers_of_one_bucket_begin_at_different_partitions() -> None:
    found = [slices(table([5]), 100, 4, writer)[0][0] for writer in range(5)]
    assert found == [1, 2, 3, 0, 1]
