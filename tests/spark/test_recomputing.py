"""Blocks are deleted that a reader still needs, with a real broker and real Spark: it asks,
the stages before it recompute them.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

W = 100
FUNCTIONS = '''
from pyspark.sql import functions as F

def rows(a):
    """Stateless."""
    return a.where("value > 0").select(F.col("value").alias("n"), "event_time")

def counts(a):
    """Stateful."""
    return (
        a.groupBy(F.window("event_time", "300 milliseconds"))
        .count()
        .select(F.col("count").alias("n"), F.col("window.end").alias("event_time"))
    )

def both(rows, counts):
    """What comes of a bucket depends on those before it."""
    return (
        rows.unionByName(counts)
        .groupBy(F.window("event_time", "200 milliseconds"))
        .agg(F.sum("n").alias("n"))
        .select("n", F.col("window.end").alias("event_time"))
    )
'''
STAGES = """
rows:
  reads: [a]
  participant: north
  replicas: 1
  transform: MODULE:rows
counts:
  reads: [a]
  participant: north
  replicas: 1
  transform: MODULE:counts
both:
  reads: [rows, counts]
  participant: north
  replicas: 1
  transform: MODULE:both
"""


def fed(bucket: int) -> list[tuple[int, int, int]]:
    return [] if bucket % 5 == 0 else [(bucket * W - late, 0, bucket) for late in (0, 99, 50)]


def up(event_time: int, width: int) -> int:
    return event_time // width * width + width


def expected(upto: int, begun: int) -> Counter[Any]:
    """Return the results of the buckets up to ``upto`` of ``both``: (event time, n)."""
    given = [
        (event_time, value)
        for bucket in range(begun, upto + 1)
        for event_time, _, value in fed(bucket)
    ]
    counts = Counter(up(event_time, 300) for event_time, _ in given)
    sums: Counter[int] = Counter()
    for event_time, n in [*given, *counts.items()]:
        if event_time <= upto * W:
            sums[up(event_time, 200)] += n
    return Counter({(event_time, n): 1 for event_time, n in sums.items() if event_time <= upto * W})


class Recomputing:
    """The pipeline: a source that the test feeds, two stages that run all the time, and one
    after them that the test starts and ends.
    """

    def __init__(self, kafka: str, pipeline: Pipeline) -> None:
        self.log, self.pipeline = KafkaEventLog(kafka), pipeline
        self.feed = Feed(kafka, pipeline, "a")
        self.outputs = {stage: Output(kafka, pipeline, stage) for stage in pipeline.stages}

    def give(self, first: int, last: int) -> None:
        for bucket in range(first, last + 1):
            mine = fed(bucket)
            self.feed.append(readings(mine) if mine else None, bucket)

    def has_closed(self, stage: str, bucket: int) -> bool:
        self.outputs[stage].reader.poll(50)
        return self.outputs[stage].reader.log_state.upto >= bucket

    def closed(self, stage: str, bucket: int, process: StageProcess) -> None:
        def reached() -> bool:
            process.check()
            return self.has_closed(stage, bucket)

        wait_until(reached, 120, f"bucket {bucket} of {stage}")

    def delete(self, stream: str) -> None:
        """All blocks of a stream that are there now."""
        admin, reader = self.log.admin(), self.log.reader()
        places = [
            TopicPartition(self.pipeline.topic_names.blocks(stream, "0"), p)
            for p in range(self.pipeline.partitions)
        ]
        admin.delete_before({at: reader.offsets(at)[1] for at in places})
        admin.close()
        reader.close()

    def result(self, first: int, last: int) -> Counter[Any]:
        found = self.outputs["both"].buckets(first, last)
        return Counter((row["event_time"], row["n"]) for rows in found.values() for row in rows)

    def close(self) -> None:
        self.feed.close()
        for output in self.outputs.values():
            output.close()


def has_logged(process: StageProcess, text: str) -> Callable[[], bool]:
    def there() -> bool:
        process.check()
        return text in process.log()

    return there


def test_blocks_that_are_gone_are_made_again(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """A lost disk: from the beginning. A checkpoint that is behind: of a stateful stage from
    a checkpoint of its own. Else it waits.
    """
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=STAGES)
    create_topics(kafka, pipeline)
    world, state = Recomputing(kafka, pipeline), tmp_path / "state"
    with (
        StageProcess(pipeline, "rows.0", kafka, state) as rows,
        StageProcess(pipeline, "counts.0", kafka, state) as counts,
    ):
        world.give(11, 20)
        with StageProcess(pipeline, "both.0", kafka, state / "first") as both:
            world.closed("both", 20, both)
        world.delete("rows")
        world.delete("counts")
        with StageProcess(
            pipeline, "both.0", kafka, state / "second"
        ) as both:  # without what the first had on its disk
            world.give(21, 24)
            world.closed("both", 24, both)
            assert "recomputed" in rows.log(), "the stateless stage made its rows again"
            assert "recomputed" in counts.log(), "the stateful one too"
        assert world.result(11, 24) == expected(24, 11)

        upto = 24

        def more() -> None:
            nonlocal upto
            upto += 3
            world.give(upto - 2, upto)
            for stage, process in (("rows", rows), ("counts", counts)):
                world.closed(stage, upto, process)

        more()
        with StageProcess(
            pipeline, "both.0", kafka, state / "second", crash_point="processing.batch_logged:2"
        ) as both:
            for _ in range(2):  # however much it takes with its first batch, there is a second
                wait_until(
                    lambda: both.process.poll() is not None or world.has_closed("both", upto),
                    120,
                    "a batch, or the crash",
                )
                more()
            both.wait(120)  # now a plan is in Spark's log that names blocks which will be gone
        world.delete("rows")
        world.delete("counts")
        with StageProcess(pipeline, "both.0", kafka, state / "second") as both:
            world.closed("both", upto, both)
        assert world.result(11, upto) == expected(upto, 11)

        world.give(upto + 1, upto + 4)
        world.closed("rows", upto + 4, rows)
        world.delete("rows")
        world.delete("a")
        shutil.rmtree(state / "second")
        with StageProcess(pipeline, "both.0", kafka, state / "third") as both:
            # Nobody runs the source here: the stage asks for its blocks, and waits.
            wait_until(has_logged(rows, "requested buckets"), 60, "a request for the source")
            both.check()
    world.close()
