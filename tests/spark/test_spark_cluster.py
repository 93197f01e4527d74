"""A node whose tasks run on a Spark cluster: a master and two workers, of which one is killed, then
the node.

Results must be those that plain Python makes of the rows.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from harness.spark_cluster import SECRET, SparkCluster, spark_cluster
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.nightly,
    pytest.mark.cluster,
]

W = 100
KEYS = 40
WINDOW_MS = 500
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
Row = tuple[int, int, int]


class Expected:
    """What there must be of the rows that were fed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.rows: list[Row] = []

    def more(self, first: int, last: int, count: int) -> list[Row]:
        """``count`` rows of the buckets from ``first`` to ``last``."""
        g = self._random
        new = [
            (g.randint((first - 1) * W + 1, last * W), g.randrange(KEYS), g.randrange(1_000))
            for _ in range(count)
        ]
        self.rows += new
        return new

    def results(self, end: int) -> Counter[tuple[int, int, bool]]:
        """(key, value, summed) of all results up to bucket ``end``."""
        sums: Counter[tuple[int, int]] = Counter()
        for time, key, value in self.rows:
            sums[time // WINDOW_MS, key] += value
        closed = {at: n for at, n in sums.items() if (at[0] + 1) * WINDOW_MS <= end * W}
        return Counter((key, value, False) for _, key, value in self.rows) + Counter(
            (key, n, True) for (_, key), n in closed.items()
        )


def made(output: Output, end: int) -> Counter[tuple[int, int, bool]]:
    buckets = output.buckets(1, end)
    return Counter((r["key"], r["value"], r["summed"]) for rows in buckets.values() for r in rows)


def wait_closed(output: Output, bucket: int, process: StageProcess) -> None:
    def closed() -> bool:
        process.check()
        output.reader.poll(50)
        return output.reader.log_state.upto >= bucket

    wait_until(closed, 180, f"bucket {bucket}: {process.log()}")


def test_a_stage_on_a_cluster_that_loses_a_worker_and_then_its_node(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=STAGES)
    create_topics(kafka, pipeline)
    with spark_cluster(tmp_path / "cluster") as cluster:
        _settings(monkeypatch, cluster)
        feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "both")
        expected = Expected(7)
        try:
            with StageProcess(pipeline, "both.0", kafka, tmp_path / "state") as node:
                feed.append(readings(expected.more(1, 10, MANY)), 10)
                wait_closed(output, 10, node)
                assert made(output, 10) == expected.results(10)
                assert not _arguments_with(SECRET)
                cluster.kill(1)
                for bucket in range(11, 21):
                    feed.append(readings(expected.more(bucket, bucket, 200)), bucket)
                wait_closed(output, 20, node)
                feed.append(readings(expected.more(21, 30, MANY)), 30)
            with StageProcess(pipeline, "both.0", kafka, tmp_path / "state") as node:
                wait_closed(output, 30, node)
            assert made(output, 30) == expected.results(30)
            assert cluster.applications().count("Registered app") >= 2
        finally:
            feed.close()
            output.close()


def test_a_master_that_nobody_answers_for(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=STAGES)
    monkeypatch.setenv("ANABRANCH_SPARK_MASTER", "spark://127.0.0.1:1")
    with StageProcess(pipeline, "both.0", kafka, tmp_path / "state") as node:
        assert node.wait(60) == 1
        error = json.loads(node.all_of_its_log().splitlines()[-1])["error"]
        assert error.startswith("Unavailable: Spark's master spark://127.0.0.1:1 cannot be reached")
        assert "\n" not in error


def _arguments_with(secret: str) -> list[str]:
    """The command lines on this machine in which ``secret`` stands."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if secret in line:
                found.append(line)
    return found


def _settings(monkeypatch: pytest.MonkeyPatch, cluster: SparkCluster) -> None:
    variables = {
        "MASTER": cluster.master,
        "SECRET_FILE": str(cluster.secret_file),
        "STATE_PARTITIONS": "4",
        "MEMORY": "512m",
        "COMPILERS": "quick",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"ANABRANCH_SPARK_{name}", value)
