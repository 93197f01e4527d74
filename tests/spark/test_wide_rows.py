"""A backlog whose rows are so wide that no batch of BATCH_ROWS_MAX of them fits into memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from harness.stage_processes import StageProcess
from harness.stages import WIDTH_MS, Feed, Output, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

FUNCTIONS = """
def kept(a):
    return a.select("key", "note", "event_time")
"""
BUCKETS = 60
ROWS = 1_000
NOTE = "x" * 20_000


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
