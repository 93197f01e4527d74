"""A stage with four partitions of state on a Spark cluster, and what plain Python makes of its
rows.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from harness.spark_cluster import SparkCluster
from harness.stage_processes import StageProcess
from harness.stages import Output
from harness.waiting import wait_until

_W = 100
_KEYS = 40
_WINDOW_MS = 500
DEADLINE_S = 400
"""A machine whose cores are busy starts the Java of four processes in minutes."""
MANY = 30_000
"""Rows that two tasks read, and whose results the tasks write."""
FUNCTIONS = '''
from pyspark.sql import functions as F

def both(a):
    """Rows at once, and a window's when it closes."""
    windows = a.groupBy(F.window("event_time", "500 milliseconds"), "key").agg(
        F.sum("value").alias("value")
    )
    windows = windows.select(
        "key", "value", F.lit(True).alias("summed"), F.col("window.end").alias("event_time")
    )
    return windows.unionByName(a.select("key", "value", F.lit(False).alias("summed"), "event_time"))
'''
STAGES = """
both:
  reads: [a]
  participant: north
  transform: MODULE:both
"""
_Row = tuple[int, int, int]


class Expected:
    """Expected results of the fed rows."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.rows: list[_Row] = []
        self.end = 0
        """The last bucket that has rows."""

    def more(self, first: int, last: int, count: int) -> list[_Row]:
        """``count`` rows of the buckets from ``first`` to ``last``."""
        g = self._random
        new = [
            (g.randint((first - 1) * _W + 1, last * _W), g.randrange(_KEYS), g.randrange(1_000))
            for _ in range(count)
        ]
        self.rows += new
        self.end = last
        return new

    def results(self, end: int) -> Counter[tuple[int, int, bool]]:
        """(key, value, summed) of all results up to bucket ``end``."""
        sums: Counter[tuple[int, int]] = Counter()
        for time, key, value in self.rows:
            sums[time // _WINDOW_MS, key] += value
        closed = {at: n for at, n in sums.items() if (at[0] + 1) * _WINDOW_MS <= end * _W}
        return Counter((key, value, False) for _, key, value in self.rows) + Counter(
            (key, n, True) for (_, key), n in closed.items()
        )


def made(output: Output, end: int) -> Counter[tuple[int, int, bool]]:
    """Return the stage's results up to bucket ``end``."""
    buckets = output.buckets(1, end)
    return Counter((r["key"], r["value"], r["summed"]) for rows in buckets.values() for r in rows)


def wait_closed(output: Output, bucket: int, process: StageProcess) -> None:
    """Until the stage, which ``process`` runs, has closed ``bucket``."""

    def closed() -> bool:
        process.check()
        output.reader.poll(50)
        return output.reader.log_state.upto >= bucket

    wait_until(closed, DEADLINE_S, lambda: f"bucket {bucket}: {process.log()}")


def use(cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes that start run their tasks on ``cluster``."""
    variables = {
        "MASTER": cluster.master,
        "SECRET_FILE": str(cluster.secret_file),
        "STATE_PARTITIONS": "4",
        "MEMORY": "512m",
        "COMPILERS": "quick",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"ANABRANCH_SPARK_{name}", value)
