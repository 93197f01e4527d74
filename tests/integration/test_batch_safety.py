"""The batch-safe list on real Spark: one bucket per batch and many buckets in one batch give the same buckets.

Replica 0 of each stage is fed bucket by bucket; replica 1 is started when all input is there and takes it in a few batches. What each wrote
is compared bucket by bucket: digests and rows. So this is also the test that replicas agree.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.stages import Feed, Output, RunningStage, create_topics, readings, write_pipeline

pytestmark = pytest.mark.integration

FUNCTIONS = '''
from datetime import timedelta
from pyspark.sql import Row, functions as F
from anabranch.stateful import BatchSafeProcessor, transform

def project(a):
    return a.where("value % 3 != 0").select("key", (F.col("value") * 2).alias("twice"), F.explode(F.array("key", "value")).alias("each"), "stime")

def python_udf(a):
    inc = F.udf(lambda v: v + 1, "bigint")
    return a.select("key", inc("value").alias("more"), "stime")

def union_of_two(a, b):
    return a.select("key", "stime").unionByName(b.select("key", "stime"))

def window(a):
    g = a.where("value >= 0").groupBy(F.window("stime", "300 milliseconds"), "key")
    return g.agg(F.count(F.lit(1)).alias("n"), F.sum("value").alias("total"), F.min("value").alias("low"), F.max("value").alias("high"),
                 F.size(F.collect_set("value")).alias("distinct"), F.avg("value").alias("mean")).select(
                     "key", "n", "total", "low", "high", "distinct", "mean", F.col("window.end").alias("stime"))

def sliding(a):
    return a.groupBy(F.window("stime", "400 milliseconds", "200 milliseconds"), "key").count().select("key", "count", F.col("window.end").alias("stime"))

def window_of_windows(a):
    first = a.groupBy(F.window("stime", "200 milliseconds"), "key").agg(F.sum("value").alias("total"))
    second = first.groupBy(F.window(F.window_time("window"), "400 milliseconds")).agg(F.max("total").alias("top"), F.count(F.lit(1)).alias("keys"))
    return second.select("top", "keys", F.col("window.end").alias("stime"))

def deduplicate(a):
    return a.select("key", "value", "stime").dropDuplicates()

def join(a, b):
    b = b.select(F.col("key").alias("k"), F.col("value").alias("v"), F.col("stime").alias("t"))
    both = a.join(b, F.expr("key = k AND t BETWEEN stime - INTERVAL 200 MILLISECONDS AND stime + INTERVAL 200 MILLISECONDS"))
    return both.select("key", "value", "v", F.greatest("stime", "t").alias("stime"))

def pending(a):
    """Rows at once, and a window's when it closes: parts of open buckets."""
    windows = a.groupBy(F.window("stime", "200 milliseconds")).count().select(F.col("count").alias("key"), F.col("window.end").alias("stime"))
    return windows.unionByName(a.select("key", "stime"))

class Sessions(BatchSafeProcessor):
    state_schema = "events BIGINT, total BIGINT"

    def row(self, key, row, state, timers):
        events, total = state or (0, 0)
        timers.set(row.stime + timedelta(milliseconds=150))
        out = [Row(key=key[0], events=-1, total=total * 10 + row.value, stime=row.stime)] if row.value % 5 == 0 else []
        return (events + 1, (total * 10 + row.value) % 1_000_003), out

    def timer(self, key, at, state, timers):
        return None, [Row(key=key[0], events=state[0], total=state[1], stime=at)]

def sessions(a):
    return transform(a, ["key"], Sessions(), "key BIGINT, events BIGINT, total BIGINT, stime TIMESTAMP")
'''

BUCKETS = 14
Rows = dict[str, list[tuple[int, int, int]]]


def rows_of(stream: str) -> list[tuple[int, int, int]]:
    """(stime, key, value): busy and empty buckets, rows exactly on bounds, and some twice."""
    g = random.Random(stream)
    rows = []
    for bucket in range(11, 11 + BUCKETS):
        if bucket in (15, 16, 20):
            continue
        rows += [((bucket - 1) * 100 + g.choice((1, 50, 99, 100, g.randint(1, 100))), g.randint(0, 3), g.randint(0, 30)) for _ in range(6)]
        rows += [(bucket * 100, 1, 7), (bucket * 100, 1, 7), ((bucket - 1) * 100 + 1, 2, 8)]
    return rows


def count_windows(rows: list[tuple[int, int, int]], size: int, slide: int) -> Counter[tuple[int, int]]:
    """(window end, key) -> rows, for windows that end within the closed buckets. Spark's windows include their start, not their end."""
    found: Counter[tuple[int, int]] = Counter()
    for stime, key, _ in rows:
        end = stime // slide * slide + slide
        while end - size <= stime:
            if end <= (10 + BUCKETS) * 100:
                found[end, key] += 1
            end += slide
    return found


def expect_project(rows: Rows) -> Counter[Any]:
    return Counter((s, k, v * 2, e) for s, k, v in rows["a"] if v % 3 for e in (k, v))


def expect_window(rows: Rows) -> Counter[Any]:
    return Counter({(end, key, n): 1 for (end, key), n in count_windows(rows["a"], 300, 300).items()})


def expect_sliding(rows: Rows) -> Counter[Any]:
    return Counter({(end, key, n): 1 for (end, key), n in count_windows(rows["a"], 400, 200).items()})


def expect_deduplicate(rows: Rows) -> Counter[Any]:
    return Counter((s, k, v) for s, k, v in set(rows["a"]))


def expect_join(rows: Rows) -> Counter[Any]:
    return Counter((max(s, t), k, v, w) for s, k, v in rows["a"] for t, j, w in rows["b"] if j == k and abs(s - t) <= 200)


def expect_union(rows: Rows) -> Counter[Any]:
    return Counter((s, k) for stream in "ab" for s, k, _ in rows[stream])


def expect_pending(rows: Rows) -> Counter[Any]:
    windows = count_windows([(s, 0, v) for s, _, v in rows["a"]], 200, 200)
    return Counter((s, k) for s, k, _ in rows["a"]) + Counter((end, n) for (end, _), n in windows.items())


CASES: dict[str, tuple[list[str], list[str], Callable[[Rows], Counter[Any]] | None]] = {
    "project": (["a"], ["stime", "key", "twice", "each"], expect_project),
    "python_udf": (["a"], [], None),
    "union_of_two": (["a", "b"], ["stime", "key"], expect_union),
    "window": (["a"], ["stime", "key", "n"], expect_window),
    "sliding": (["a"], ["stime", "key", "count"], expect_sliding),
    "window_of_windows": (["a"], [], None),
    "deduplicate": (["a"], ["stime", "key", "value"], expect_deduplicate),
    "join": (["a", "b"], ["stime", "key", "value", "v"], expect_join),
    "pending": (["a"], ["stime", "key"], expect_pending),
    "sessions": (["a"], [], None),
}


@pytest.mark.parametrize("function", CASES)
@pytest.mark.timeout(300)
def test_one_bucket_per_batch_and_many_in_one_give_the_same(function: str, kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    reads, columns, expect = CASES[function]
    stages = f"s:\n  reads: [{', '.join(reads)}]\n  participant: north\n  transform: MODULE:{function}\n  replicas: 2\n"
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, sources=reads, stages=stages)
    create_topics(kafka, pipeline)
    rows = {name: rows_of(name) for name in reads}
    feeds = {name: Feed(kafka, pipeline, name) for name in reads}
    output = Output(kafka, pipeline, "s")
    end = 10 + BUCKETS
    with RunningStage(pipeline, "s.0", kafka, tmp_path / "state") as stage:
        for bucket in range(11, end + 1):
            for name, feed in feeds.items():
                mine = [r for r in rows[name] if (bucket - 1) * 100 < r[0] <= bucket * 100]
                feed.append(readings(mine) if mine else None, bucket)
            output.wait_closed(bucket, stage)
        assert stage.service.status.detail["batch_safe"], stage.service.status.detail["why"]
        batches_one_by_one = stage.service.status.detail["batches"]
    assert isinstance(batches_one_by_one, int)
    assert batches_one_by_one >= BUCKETS, "one bucket per batch after the warm-up; the last may not be counted yet"
    # a machine of its own: with the first one's checkpoint within reach it would go on from that
    with RunningStage(pipeline, "s.1", kafka, tmp_path / "state of the other") as stage:
        output.wait_replica("1", end, stage)
        batches = stage.service.status.detail["batches"]
        assert isinstance(batches, int)
        assert batches <= 4, "all in one batch, and what a warm-up and a follow-up need"
    found = {replica: output.replica_rows(replica, 1, end) for replica in "01"}
    assert found["0"] == found["1"]
    digests = {
        r: {b: sum(p.digest for p in output.reader.fold.replica_bucket(r, b) or ()) % 2**64 for b in range(1, end + 1)} for r in "01"
    }
    assert digests["0"] == digests["1"]
    assert any(found["0"].values()), "a test of nothing"
    for bucket, made in found["0"].items():
        assert all((bucket - 1) * 100 < row["stime"] <= bucket * 100 for row in made)
    if expect is not None:
        given = Counter(tuple(row[c] for c in columns) for bucket_rows in found["0"].values() for row in bucket_rows)
        assert given == expect(rows)
    output.close()
    for feed in feeds.values():
        feed.close()
