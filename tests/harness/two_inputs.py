"""Functions of two inputs, what these hold, and the answers: whole, or without what was missing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from typing import Final

from checkers.tentative import Row
from harness.live_feeds import Rows

WIDTH_MS: Final = 100
"""Width of a bucket, in ms."""

FUNCTIONS = """
from datetime import timedelta
from pyspark.sql import Row, functions as F
from anabranch.stateful import BatchSafeProcessor, transform

def both(a, b):
    return a.select("key", "value", "event_time").unionByName(
        b.select("key", "value", "event_time")
    )

def windowed(a, b):
    g = (
        both(a, b)
        .groupBy(F.window("event_time", "200 milliseconds"), "key")
        .agg(F.sum("value").alias("total"))
    )
    return g.select("key", "total", F.col("window.end").alias("event_time"))

def joined(a, b):
    left = a.select(
        F.col("key").alias("k"), F.col("value").alias("x"), F.col("event_time").alias("at")
    )
    right = b.select("key", F.col("value").alias("y"), F.col("event_time").alias("bt"))
    near = (
        "k = key AND bt >= at - INTERVAL 100 MILLISECONDS AND bt <= at + INTERVAL 100 MILLISECONDS"
    )
    pairs = left.join(right, F.expr(near))
    return pairs.select("key", "x", "y", F.greatest("at", "bt").alias("event_time"))

def twice(a, b):
    # each input twice: b joined with itself, two views of a put together
    a.createOrReplaceTempView("a")
    b.createOrReplaceTempView("b")
    return a.sparkSession.sql(
        "SELECT x.key, x.value AS x, y.value AS y,"
        " greatest(x.event_time, y.event_time) AS event_time"
        " FROM b x JOIN b y ON x.key = y.key AND y.event_time BETWEEN"
        " x.event_time - INTERVAL 100 MILLISECONDS AND x.event_time + INTERVAL 100 MILLISECONDS"
        " UNION ALL SELECT key, value, -1L, event_time FROM (SELECT * FROM a WHERE value % 2 = 0)"
        " UNION ALL SELECT key, -1L, value, event_time FROM (SELECT * FROM a WHERE key > 0)"
    )

class Total(BatchSafeProcessor):
    state_schema = "total BIGINT"

    def row(self, key, row, state, timers):
        total = (state or (0,))[0] + row.value
        return (total,), [Row(key=key[0], total=total, event_time=row.event_time)]

def counted(first):
    g = first.groupBy(F.window("event_time", "200 milliseconds"), "key").agg(
        F.sum("value").alias("total")
    )
    return g.select("key", "total", F.col("window.end").alias("event_time"))

def totals(a, b):
    return transform(both(a, b), ["key"], Total(), "key BIGINT, total BIGINT, event_time TIMESTAMP")
"""


Data = Callable[[int], Rows]
"""Bucket -> the rows (event time, key, value) of an input."""
Answer = dict[int, list[Row]]
"""Bucket -> rows: the function's columns, the event time last."""


def rows_a(bucket: int) -> Rows:
    return [((bucket - 1) * WIDTH_MS + 10 + i * 7, i % 3, bucket + i) for i in range(6)]


def rows_b(bucket: int) -> Rows:
    return [((bucket - 1) * WIDTH_MS + 13 + i * 11, i % 3, 1_000 + bucket * i) for i in range(5)]


def _both(a: Data, b: Data, upto: int) -> Answer:
    return {
        n: [(key, value, event_time) for event_time, key, value in a(n) + b(n)]
        for n in range(1, upto + 1)
    }


def _windowed(a: Data, b: Data, upto: int) -> Answer:
    totals: dict[tuple[int, int], int] = defaultdict(int)
    for bucket in range(1, upto + 1):
        for event_time, key, value in a(bucket) + b(bucket):
            totals[event_time // 200 * 200 + 200, key] += value
    found: Answer = defaultdict(list)
    for (end, key), total in totals.items():
        found[end // WIDTH_MS].append((key, total, end))
    return found


def _joined(a: Data, b: Data, upto: int) -> Answer:
    found: Answer = defaultdict(list)
    for bucket in range(1, upto + 1):
        # The bound is a bucket's width, so pairs lie in neighbouring buckets.
        near = [row for n in range(max(1, bucket - 1), min(upto, bucket + 1) + 1) for row in b(n)]
        for at, k, x in a(bucket):
            for bt, key, y in near:
                if k == key and at - WIDTH_MS <= bt <= at + WIDTH_MS:
                    event_time = max(at, bt)
                    found[-(-event_time // WIDTH_MS)].append((key, x, y, event_time))
    return found


def _totals(a: Data, b: Data, upto: int) -> Answer:
    totals: Counter[int] = Counter()
    found: Answer = defaultdict(list)
    for bucket in range(1, upto + 1):
        for event_time, key, value in sorted(a(bucket) + b(bucket)):
            totals[key] += value
            found[bucket].append((key, totals[key], event_time))
    return found


def _twice(a: Data, b: Data, upto: int) -> Answer:
    found = _joined(b, b, upto)
    for bucket in range(1, upto + 1):
        for event_time, key, value in a(bucket):
            if value % 2 == 0:
                found[bucket].append((key, value, -1, event_time))
            if key > 0:
                found[bucket].append((key, -1, value, event_time))
    return found


_ANSWERS: Final = {
    "both": _both,
    "windowed": _windowed,
    "joined": _joined,
    "totals": _totals,
    "twice": _twice,
}
_SUMS: Final = ("windowed", "totals")
"""Their second column grows with more input; nothing else of a result does."""


def answer(function: str, upto: int, missing: Collection[str] = (), since: int = 0) -> Answer:
    """Return the results of ``function`` for buckets 1 to ``upto``. The inputs that are ``missing``
    have nothing after bucket ``since``.
    """

    def cut(name: str, rows_of: Data) -> Data:
        return lambda bucket: [] if name in missing and bucket > since else rows_of(bucket)

    return _ANSWERS[function](cut("a", rows_a), cut("b", rows_b), upto)


def split(function: str, row: Row) -> tuple[Row, tuple[float, ...]]:
    """See ``checkers.tentative.Split``."""
    return ((row[0], row[2]), (float(str(row[1])),)) if function in _SUMS else (row, ())
