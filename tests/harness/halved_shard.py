"""Stage that counts the values of each window of 200 ms and may be split once, a stage that reads
it, and the answer to both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.moved_stages import FIRST
from harness.stages import WIDTH_MS, rows_of

FUNCTIONS: Final = """
from pyspark.sql import functions as F


def numbers(a):
    windows = a.groupBy(F.window("event_time", "200 milliseconds"), "value")
    counted = windows.agg(F.count("*").alias("n"))
    return counted.select("value", "n", F.col("window.end").alias("event_time"))


def same(numbers):
    return numbers.where("n > 0")
"""
STAGES: Final = """
numbers:
  reads: [a]
  transform: MODULE:numbers
  shard_by: value
  halvings: 1
  state_horizon: 200ms
same:
  reads: [numbers]
  transform: MODULE:same
"""


def check_counts(found: Sequence[Mapping[str, Any]], last: int) -> None:
    """Check that ``found`` are the counts of all whole windows up to bucket ``last``, each once."""
    expected: Counter[tuple[int, int]] = Counter()
    for bucket in range(FIRST, last + 1):
        for time_ms, _, value in rows_of(bucket):
            if (end := time_ms // 200 * 200 + 200) <= last * WIDTH_MS:
                expected[end, value] += 1
    assert Counter({(row["event_time"], row["value"]): row["n"] for row in found}) == expected
    assert len(found) == len(expected), "none is there twice"
