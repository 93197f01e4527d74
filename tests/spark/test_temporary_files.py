"""Tests that temporary files of a stage, its Java and its workers do not accumulate, however the
processes end.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

FUNCTIONS = """
from pyspark.sql import functions as F

def windows(a):
    counts = a.groupBy(F.window("event_time", "200 milliseconds")).count()
    return counts.select(F.col("count").alias("n"), F.col("window.end").alias("event_time"))
"""
STAGES = "s:\n  reads: [a]\n  participant: north\n  transform: MODULE:windows\n"


def test_a_stage_that_is_killed_leaves_nothing_for_long(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``outside`` stands for the system's folder of temporary files, which other programs use
    meanwhile.
    """
    outside, state = tmp_path / "outside", tmp_path / "state"
    outside.mkdir()
    monkeypatch.setenv("TMPDIR", str(outside))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.io.tmpdir={outside}")
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=STAGES)
    create_topics(kafka, pipeline)
    feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "s")
    root = state / "scratch" / "s.0"

    def give(bucket: int, stage: StageProcess) -> None:
        feed.append(readings([(bucket * 100 - 50, 0, 0)]), bucket)

        def closed() -> bool:
            stage.check()
            output.reader.poll(50)
            return output.reader.log_state.upto >= bucket

        wait_until(closed, 180, f"bucket {bucket}")

    try:
        with StageProcess(pipeline, "s.0", kafka, state) as killed:
            give(20, killed)
            (folder,) = (entry for entry in root.iterdir() if entry.is_dir())
            assert list(folder.glob("librocksdbjni*")), "Java writes here"
            killed.kill()
        with StageProcess(pipeline, "s.0", kafka, state) as stage:
            give(30, stage)
            assert not folder.exists(), "of the process that was killed"
            assert len([entry for entry in root.iterdir() if entry.is_dir()]) == 1
            stage.process.send_signal(signal.SIGTERM)
            assert stage.wait(60) == 0
        wait_until(lambda: list(root.iterdir()) == [], 30, "Java has ended, too, and left nothing")
        assert list(outside.iterdir()) == []
    finally:
        feed.close()
        output.close()
