"""A stage that gives rows at once, and a window's count when it closes: it has state, and parts of
buckets that are still open when their batch ends.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from harness.stages import WIDTH_MS

FIRST: Final = 11
"""The first bucket with rows."""
FUNCTIONS = """
from pyspark.sql import functions as F

def both(a):
    windows = (
        a.groupBy(F.window("event_time", "200 milliseconds"))
        .count()
        .select(F.col("count").alias("n"), F.col("window.end").alias("event_time"))
    )
    return windows.unionByName(a.select(F.col("value").alias("n"), "event_time"))
"""


def rows_of(bucket: int) -> list[tuple[int, int, int]]:
    if bucket % 5 == 0:
        return []
    return [(bucket * WIDTH_MS - late, 0, 1_000 + bucket) for late in (0, 99, 50)]


def expected(first: int, last: int) -> Counter[Any]:
    """Return the results of buckets ``first..last``, computed from all input."""
    rows = [row for bucket in range(FIRST, last + 1) for row in rows_of(bucket)]
    made: Counter[Any] = Counter((event_time, value) for event_time, _, value in rows)
    made += Counter(dict.fromkeys(Counter(s // 200 * 200 + 200 for s, _, _ in rows).items(), 1))
    return Counter(
        {
            (event_time, n): count
            for (event_time, n), count in made.items()
            if (first - 1) * WIDTH_MS < event_time <= last * WIDTH_MS
        }
    )
