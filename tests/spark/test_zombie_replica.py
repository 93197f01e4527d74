"""A replica with Spark is paused (SIGSTOP), replaced on another disk, and wakes: nothing that
it then writes is accepted by anybody.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from anabranch.process.frame import ExitCode
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

FUNCTIONS = """
def same(a):
    return a.select("key", "value", "event_time")
"""


@pytest.mark.nightly
def test_a_replica_with_spark(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """Stopped with its queries warm; its replacement, on another disk, makes the buckets that
    it would have made next.
    """
    stages = "s:\n  reads: [a]\n  participant: north\n  transform: MODULE:same\n"
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=stages)
    create_topics(kafka, pipeline)
    feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "s")
    made: Counter[tuple[int, int]] = Counter()

    def give(bucket: int) -> None:
        rows = [(bucket * 100 - late, late, 1_000 * bucket + late) for late in range(20)]
        made.update((event_time, value) for event_time, _, value in rows)
        feed.append(readings(rows), bucket)

    def closed(by: StageProcess, bucket: int) -> None:
        def reached() -> bool:
            by.check()
            output.reader.poll(50)
            return output.reader.log_state.upto >= bucket

        wait_until(reached, 120, f"bucket {bucket}")

    with StageProcess(pipeline, "s.0", kafka, tmp_path / "older") as older:
        give(11)
        closed(older, 11)
        os.kill(older.process.pid, signal.SIGSTOP)
        give(12)
        with StageProcess(pipeline, "s.0", kafka, tmp_path / "newer") as newer:
            closed(newer, 12)
            accepted = output.reader.counts["accepted"]
            os.kill(older.process.pid, signal.SIGCONT)
            assert older.wait(60) == ExitCode.FENCED, older.log()
            output.reader.read_to_end()
            assert output.reader.counts["accepted"] == accepted
            give(13)
            closed(newer, 13)
    found = Counter(
        (row["event_time"], row["value"])
        for rows in output.buckets(11, 13).values()
        for row in rows
    )
    assert found == made
    feed.close()
    output.close()
