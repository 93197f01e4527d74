"""Rows that are wide: a backlog of which no batch of BATCH_ROWS_MAX fits into memory, and rows that
are larger than a record may be.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.codec.rejected_rows import BEGINNING, SIZE
from anabranch.protocol.limits import MIB
from harness.stage_processes import StageProcess
from harness.stages import (
    STARTS_WITHIN_S,
    WIDTH_MS,
    Feed,
    Output,
    create_topics,
    readings,
    write_pipeline,
)
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

FUNCTIONS = """
from pyspark.sql import functions as F

def widened(a):
    return a.select("key", F.expr("repeat('x', CAST(value AS INT))").alias("note"), "event_time")

def measured(s):
    return s.select("key", F.length("note").alias("n"), "event_time")

def kept(a):
    return a.select("key", "note", "event_time")
"""
BUCKETS = 60
ROWS = 1_000
NOTE = "x" * 20_000


def test_a_row_that_is_larger_than_a_record_passes_from_stage_to_stage(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """18 MiB come through the driver. 40 MiB are more than Spark's driver takes, with what it
    needs around them: a task writes them. A notice stands for more than ROW_BYTES_MAX, and the
    rows beside it and after it go on. In processes of their own, whose Java has the memory of a
    node and nothing else to hold.
    """
    stages = (
        "s:\n  reads: [a]\n  participant: north\n  transform: MODULE:widened\n"
        "t:\n  reads: [s]\n  participant: north\n  transform: MODULE:measured\n"
    )
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=stages)
    create_topics(kafka, pipeline)
    feed = Feed(kafka, pipeline, "a")
    wide, measured = Output(kafka, pipeline, "s"), Output(kafka, pipeline, "t")
    sizes = [3, 18 * MIB, 40 * MIB, 5, 70 * MIB]
    try:
        with StageProcess(pipeline, "s.0", kafka, tmp_path / "state") as process:
            for bucket, size in enumerate(sizes[:-1], 1):
                feed.append(readings([(bucket * WIDTH_MS, bucket, size)]), bucket)
                wide.wait_closed(bucket, process)
            feed.append(readings([(5 * WIDTH_MS, 5, sizes[-1]), (5 * WIDTH_MS, 6, 7)]), 5)
            feed.append(readings([(6 * WIDTH_MS, 8, 9)]), 6)
            wide.wait_closed(6, process)
            wait_until(
                lambda: "rows_rejected" in process.all_of_its_log(), STARTS_WITHIN_S, "its log"
            )
        passed = [*sizes[:-1], 7, 9]
        notes = [row["note"] for rows in wide.buckets(1, 6).values() for row in rows]
        assert [*map(len, notes)] == passed
        ((_, writer, parts),) = wide.reader.log_state.stable(5, 5)
        (notice,) = wide.notices(writer, parts).to_pylist()
        assert notice[SIZE] > 70 * MIB
        assert json.loads(notice[BEGINNING]) == {"key": 5, "note": "x" * 1_024}
        with StageProcess(pipeline, "t.0", kafka, tmp_path / "state") as process:
            measured.wait_closed(6, process)
        found = [row["n"] for rows in measured.buckets(1, 6).values() for row in rows]
        assert found == passed
    finally:
        for each in (feed, wide, measured):
            each.close()


@pytest.mark.nightly
def test_a_stage_takes_a_backlog_that_is_larger_than_its_memory(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """1.2 GB, of which a batch may have a fifth; Java has 1 GiB."""
    stages = "s:\n  reads: [a]\n  participant: north\n  transform: MODULE:kept\n"
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=stages)
    create_topics(kafka, pipeline)
    feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "s")
    try:
        for bucket in range(1, BUCKETS + 1):
            rows = readings(
                {"key": bucket * ROWS + n, "note": NOTE, "event_time": bucket * WIDTH_MS}
                for n in range(ROWS)
            )
            feed.append(rows, bucket)
        with StageProcess(pipeline, "s.0", kafka, tmp_path / "state") as process:

            def closed() -> bool:
                process.check()
                output.reader.poll(50)
                return output.reader.log_state.upto >= BUCKETS

            wait_until(closed, 180, "all buckets")
        for bucket in range(1, BUCKETS + 1):
            found = pa.concat_tables(table for _, table in output.tables(bucket, bucket))
            keys = sorted(found.column("key").to_pylist())
            assert keys == [*range(bucket * ROWS, (bucket + 1) * ROWS)]
            assert set(found.column("note").to_pylist()) == {NOTE}
    finally:
        output.close()
        feed.close()
