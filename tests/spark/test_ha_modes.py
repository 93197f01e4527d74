"""Tests of what each mode of ``ha`` promises (docs/concepts.md), with real Spark and a real broker:
no loss, no duplicates, or a gap that is reported.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec import boundary_records
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from harness.control_topics import all_control_records
from harness.rows_and_windows import FIRST, FUNCTIONS, expected, rows_of
from harness.sources import everything
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly]


class Run:
    """One pipeline: its input, and the outputs of its stages."""

    def __init__(self, kafka: str, pipeline: Pipeline, state: Path) -> None:
        self.kafka = kafka
        self.pipeline = pipeline
        self.state = state
        self.log = KafkaEventLog(kafka)
        create_topics(kafka, pipeline)
        self.feed = Feed(kafka, pipeline, "a")
        self.outputs = {stage: Output(kafka, pipeline, stage) for stage in pipeline.stages}

    def close(self) -> None:
        self.feed.close()
        for output in self.outputs.values():
            output.close()

    def start(self, name: str) -> StageProcess:
        return StageProcess(self.pipeline, name, self.kafka, self.state)

    def lose_disk(self, name: str) -> None:
        shutil.rmtree(self.state / "processing" / name)

    def give(self, first: int, last: int) -> None:
        for bucket in range(first, last + 1):
            mine = rows_of(bucket)
            self.feed.append(readings(mine) if mine else None, bucket)

    def closed(self, stage: str, bucket: int, *processes: StageProcess) -> None:
        """Wait until the stream is stable up to ``bucket``."""
        reader = self.outputs[stage].reader

        def reached() -> bool:
            for process in processes:
                process.check()
            reader.poll(50)
            return reader.log_state.upto >= bucket

        wait_until(reached, 120, f"bucket {bucket} of {stage}; it is at {reader.log_state.upto}")

    def made(self, stage: str, first: int, last: int) -> Counter[Any]:
        found = self.outputs[stage].buckets(first, last)
        return Counter((row["event_time"], row["n"]) for rows in found.values() for row in rows)

    def entries(self, stage: str) -> list[Any]:
        """Return the stage's boundary log."""
        chunks = everything(self.log, self.pipeline.topic_names.boundaries(stage))
        return [
            boundary_records.decode(value, headers)
            for c in chunks
            for value, headers in zip(c.values, c.headers, strict=True)
        ]

    def copied(self, name: str, epochs: int) -> None:
        """Wait until the standby has a checkpoint of the newest epoch."""
        offsets = [
            i for i, entry in enumerate(self.entries("s")) if isinstance(entry, EpochStarted)
        ]
        assert len(offsets) == epochs
        folder = self.state / "processing" / name
        wait_until(
            lambda: any(folder.glob(f"life-*/timelines/{offsets[-1]:012d}-*.json")),
            120,
            f"a copy at {name}",
        )


def test_a_standby_becomes_the_primary_and_the_old_primary_is_fenced(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Twice: first the primary is paused past every time-out, and wakes; then the new one
    dies with its disk.
    """
    stages = "s:\n  reads: [a]\n  ha: passive\n  replicas: 2\n  transform: MODULE:both\n"
    run = Run(
        kafka, write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=stages), tmp_path / "state"
    )
    run.give(FIRST, 14)
    with run.start("s.0") as zero:
        wait_until(lambda: run.entries("s"), 120, "the first epoch")
        with run.start("s.1") as one:
            run.copied("s.1", 1)
            run.give(15, 18)
            run.closed("s", 18, zero, one)
            os.kill(zero.process.pid, signal.SIGSTOP)
            run.give(19, 24)
            run.closed("s", 24, one)
            os.kill(zero.process.pid, signal.SIGCONT)
            run.give(25, 26)
            wait_until(
                lambda: "replica_ended" in zero.all_of_its_log(), 30, "the old primary finds out"
            )
            run.closed("s", 26, one)
            zero.check()  # it stands by again
            zero.kill()
            run.lose_disk("s.0")
            with run.start("s.0") as again:
                run.copied("s.0", 2)
                one.kill()
                run.lose_disk("s.1")
                run.give(27, 31)
                run.closed("s", 31, again)
    assert run.made("s", FIRST, 31) == expected(FIRST, 31)
    epochs = [
        offset for offset, entry in enumerate(run.entries("s")) if isinstance(entry, EpochStarted)
    ]
    beats = [
        beat for beat in all_control_records(run.log, run.pipeline) if isinstance(beat, Heartbeat)
    ]
    starting = {
        beat.epoch for beat in beats if (beat.service, beat.state) == ("processing", "starting")
    }
    assert set(epochs) <= starting, "each primary was heard before its query ran"
    assert sum(isinstance(entry, EpochStarted) for entry in run.entries("s")) == 3
    records = [entry for entry in run.entries("s") if isinstance(entry, BoundaryRecord)]
    assert all(
        record.base is None and not record.missing and record.replica == "0" for record in records
    )
    run.close()


def test_loss_of_the_only_disk(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """Upstream backup goes on from the input that its horizon needs, and sees that this was
    enough; amnesia closes a gap, and says so.
    """

    def pipeline(state_horizon_ms: int) -> Pipeline:
        stages = "".join(
            f"{name}:\n  reads: [a]\n  ha: {mode}\n  state_horizon: {state_horizon_ms}ms\n "
            " transform: MODULE:both\n"
            for name, mode in (("m", "amnesia"), ("u", "upstream_backup"))
        )
        return write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=stages)

    run = Run(kafka, pipeline(200), tmp_path / "state")
    run.give(FIRST, 28)
    with run.start("u.0") as upstream, run.start("m.0") as amnesia:
        run.closed("u", 28, upstream)
        run.closed("m", 28, amnesia)
    run.lose_disk("u.0")
    run.lose_disk("m.0")
    run.give(29, 36)
    # Two horizons of two buckets each before bucket 28: blocks up to bucket 24 are deleted, and 25
    # has none.
    ((_, _, kept),) = run.feed.boundary.log_state.stable(25, 26)
    admin, blocks = run.log.admin(), run.pipeline.topic_names.blocks("a", "0")
    admin.delete_before(
        {TopicPartition(blocks, part.partition): part.offset_first for part in kept}
    )
    admin.close()
    with run.start("u.0") as upstream, run.start("m.0") as amnesia:
        run.closed("u", 36, upstream)
        run.closed("m", 36, amnesia)
        run.give(37, 46)
        run.closed("u", 46, upstream)
        run.closed("m", 46, amnesia)
    assert run.made("u", FIRST, 46) == expected(FIRST, 46)
    gap = [
        entry for entry in run.entries("m") if isinstance(entry, BoundaryRecord) and entry.missing
    ]
    assert gap[0].prev is None
    assert (gap[0].closed, gap[-1].closed) == (36, 38)
    assert run.made("m", FIRST, 28) == expected(FIRST, 28)
    assert run.made("m", 29, 38) == Counter()
    assert run.made("m", 39, 46) == expected(39, 46)

    run.lose_disk("u.0")
    run.pipeline = pipeline(100)
    with run.start("u.0") as upstream:
        wait_until(
            lambda: "give the stage a longer state_horizon" in upstream.log(),
            120,
            "the replica says why it cannot start",
        )
        upstream.check()
    assert run.outputs["u"].reader.log_state.upto == 46
    run.close()
