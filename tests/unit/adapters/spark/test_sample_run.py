from __future__ import annotations

import pyarrow as pa

from anabranch.adapters.spark.sample_run import as_streamed
from anabranch.adapters.spark.sink import to_rows

TIMES_US = [1_000_000, 1_000_001, 1_998_999, 1_999_999]


def test_rows_have_the_event_times_of_a_stream() -> None:
    times = pa.array(TIMES_US, pa.timestamp("us", "UTC"))
    table = pa.table({"n": [1, 2, 3, 4], "event_time": times, "last": ["a", "b", "c", "d"]})
    found = as_streamed(table)
    assert found.schema == table.schema
    us = found["event_time"].cast(pa.int64()).to_pylist()
    assert us == [1_000_000, 1_001_000, 1_999_000, 2_000_000]
    assert to_rows(found).equals(to_rows(table))
    assert found.drop_columns(["event_time"]).equals(table.drop_columns(["event_time"]))
