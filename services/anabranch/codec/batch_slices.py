"""Assignment of a batch's rows to the partitions of the block topic.

Readers share a stream by its partitions, so a large bucket is spread over several.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from anabranch.codec.blocks import split_by_bucket

ROWS_PER_PARTITION: Final = 4_096
"""Number of rows of one bucket from which another partition is used: for fewer rows, a block costs
more than a parallel reader saves.
"""


def slices(
    table: pa.Table, bucket_ms: int, partitions: int, writer: int = 0
) -> list[tuple[int, int, pa.Table]]:
    """Return ``table`` as (partition, bucket, rows). A bucket with few rows stays in one partition;
    successive buckets begin at successive ones.

    ``writer``: number of the writer, where several write rows of one bucket: each begins at
        another partition.
    """
    result = []
    for bucket, rows in split_by_bucket(table, bucket_ms):
        count = min(partitions, -(-rows.num_rows // ROWS_PER_PARTITION))
        each = -(-rows.num_rows // count)
        result += [
            ((bucket + writer + i) % partitions, bucket, rows.slice(i * each, each))
            for i in range(count)
        ]
    return result
