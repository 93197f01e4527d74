"""A window with more groups than the driver takes: the batch that lets them out is run again, and
its tasks write.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.adapters.spark import sink
from anabranch.adapters.spark.sink import ResultsExpected
from harness.stage_processes import StageProcess
from harness.stages import (
    STARTS_WITHIN_S,
    WIDTH_MS,
    Feed,
    Output,
    RunningStage,
    create_topics,
    readings,
    write_pipeline,
)
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

FUNCTIONS = """
from pyspark.sql import functions as F

def counted(a):
    groups = a.groupBy(F.window("event_time", "400 milliseconds"), "key").agg(
        F.count(F.lit(1)).alias("n"), F.sum("value").alias("total")
    )
    return groups.select("key", "n", "total", F.col("window.end").alias("event_time"))
"""
STAGES = "s:\n  reads: [a]\n  participant: north\n  transform: MODULE:counted\n"
KEYS = 40
LAST = 24
MILLIONS = 3_000_000
EACH = 300_000


def rows_of(bucket: int) -> list[tuple[int, int, int]]:
    """Each key in every other bucket, none in a bucket that ends a window."""
    if bucket % 4 == 0:
        return []
    return [
        ((bucket - 1) * WIDTH_MS + 1 + key, key, bucket)
        for key in range(KEYS)
        if (key + bucket) % 2
    ]


def test_a_batch_that_gives_more_than_was_expected_is_run_again_on_the_same_state(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process runs it again, since it does not know of the previous one; in a new query,
    since the stores of the old one have committed the batch.
    """
    monkeypatch.setattr(sink, "DRIVER_ROWS_MAX", 4)
    exceeded = list[ResultsExpected]()

    class Expected(ResultsExpected):
        """Expects nothing but once after a surprise: every window is one."""

        is_surprised = False

        def of(self, rows: int) -> float:
            return 0

        @property
        def exceeded(self) -> bool:
            was, self.is_surprised = self.is_surprised, False
            return was

        @exceeded.setter
        def exceeded(self, value: bool) -> None:
            self.is_surprised = value
            exceeded.extend([self] if value else [])

    monkeypatch.setattr("anabranch.adapters.spark.engine.ResultsExpected", Expected)
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=STAGES)
    create_topics(kafka, pipeline)
    feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "s")
    try:
        for first in (1, LAST // 2 + 1):
            with RunningStage(pipeline, "s.0", kafka, tmp_path / "state") as stage:
                for bucket in range(first, first + LAST // 2):
                    rows = rows_of(bucket)
                    feed.append(readings(rows) if rows else None, bucket)
                    output.wait_closed(bucket, stage)
            assert len(exceeded) >= 2, "several windows"
            exceeded.clear()
        expected: Counter[tuple[int, int, int, int]] = Counter()
        given = [row for bucket in range(1, LAST + 1) for row in rows_of(bucket)]
        for key in range(KEYS):
            for end in range(4, LAST + 1, 4):
                values = [v for _, k, v in given if k == key and end - 4 < v <= end]
                expected[end * WIDTH_MS, key, len(values), sum(values)] += 1
        found = Counter(
            (row["event_time"], row["key"], row["n"], row["total"])
            for rows in output.buckets(1, LAST).values()
            for row in rows
        )
        assert found == expected
    finally:
        output.close()
        feed.close()


@pytest.mark.nightly
def test_a_window_of_three_million_groups_needs_no_more_than_the_usual_memory(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=STAGES)
    create_topics(kafka, pipeline)
    feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "s")
    try:
        with StageProcess(pipeline, "s.0", kafka, tmp_path / "state") as process:

            def closed(bucket: int) -> bool:
                process.check()
                output.reader.poll(50)
                return output.reader.log_state.upto >= bucket

            for number in range(MILLIONS // EACH):
                keys = pa.array(range(number * EACH, (number + 1) * EACH), pa.int64())
                table = readings([(1, 0, 0)]).take(pa.array([0] * EACH))
                feed.append(table.set_column(0, "key", keys), 0)
            feed.append(None, 3)
            wait_until(lambda: closed(3), STARTS_WITHIN_S * 2, "the rows are read")
            feed.append(None, 4)
            wait_until(lambda: closed(4), STARTS_WITHIN_S * 2, "the window ends")
            feed.append(readings([(450, 7, 1)]), 8)
            wait_until(lambda: closed(8), STARTS_WITHIN_S, "the next window ends")
        found = pa.concat_tables(table for _, table in output.tables(4, 4))
        assert found.num_rows == MILLIONS
        assert sorted(found.column("key").to_pylist()) == [*range(MILLIONS)]
        assert set(found.column("n").to_pylist()) == {1}
        assert [row["total"] for row in output.buckets(8, 8)[8]] == [1]
    finally:
        output.close()
        feed.close()
