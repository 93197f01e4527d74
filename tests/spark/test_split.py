"""A shard with state is split while input goes on, on a real broker and real Spark: one half begins
on another node, and the shard's node is killed after its answer, or at the end of its stream. What
is read is what a run without all that gives. A function that is not key by key is found, and
nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.local.deployment import spark_settings
from anabranch.operating.split import SplitCommand
from anabranch.pipeline.file import load
from anabranch.protocol.errors import AnabranchError
from harness.stage_processes import StageProcess
from harness.stages import (
    KEYED_SUMS,
    WIDTH_MS,
    Feed,
    Output,
    create_topics,
    keyed_sums,
    readings,
    write_pipeline,
)
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

STARTS_WITHIN_S = 300
"""Two cold Sparks beside others, until their first results."""
FUNCTIONS = f"""{KEYED_SUMS}
def mixed(a):
    return (
        a.groupBy(F.window("event_time", "200 milliseconds"))
        .agg(F.sum("value").alias("sum"))
        .select("sum", F.col("window.end").alias("event_time"))
    )
"""
STAGES = """
sums:
  reads: [a]
  transform: MODULE:sums
  shards: 2
  shard_by: key
  halvings: 1
  state_horizon: 200ms
mixed:
  reads: [a]
  transform: MODULE:mixed
  shard_by: key
  halvings: 1
  state_horizon: 200ms
counts:
  reads: [sums]
  transform: MODULE:counts
"""
NODES = """
publish: {sums: {keep: 1h}}
nodes:
  north: [sums.0.0, sums.1.0, sums.0, mixed.0, counts.0]
  local.9: []
"""
SHARDS = ("sums.0", "sums.1", "sums.10", "sums.11")
KEYS = 8
ANSWER, END = "processing.split_answered", "processing.split_ended"
"""Points at which the shard's node is killed: its answer is written, or the end of its stream."""


def rows_of(bucket: int) -> list[tuple[int, int, int]]:
    """Return the rows of a bucket: event time, key, value."""
    times = range((bucket - 1) * WIDTH_MS + 1, bucket * WIDTH_MS + 1, 5)
    return [(time_ms, time_ms * 7 % KEYS, time_ms % 17 - 3) for time_ms in times]


def sums_upto(last: int) -> Counter[tuple[int, int, int]]:
    """Return what ``sums`` gives of the buckets up to ``last``."""
    return keyed_sums((row for bucket in range(1, last + 1) for row in rows_of(bucket)), last)


class World:
    """The pipeline's streams, and its nodes."""

    def __init__(self, kafka: str, name: str, folder: Path) -> None:
        self.kafka, self.state = kafka, folder / "state"
        made = write_pipeline(folder, name, FUNCTIONS, stages=STAGES, apart=False)
        made.path.write_text(made.path.read_text() + NODES)
        self.pipeline = load(made.path)
        create_topics(kafka, self.pipeline)
        self.feed = Feed(kafka, self.pipeline, "a")
        self.outputs = {
            name: Output(kafka, self.pipeline, name)
            for name in (*SHARDS, "sums", "mixed", "counts")
        }
        self.given = 0

    def give(self, upto: int) -> None:
        for bucket in range(self.given + 1, upto + 1):
            self.feed.append(readings(rows_of(bucket)), bucket)
        self.given = upto

    def start(self, node: str, crash_point: str = "") -> StageProcess:
        """Start a node, its batches as far apart as ``anabranch up`` lets them be."""
        replicas = sum(map(len, self.pipeline.nodes().values()))
        return StageProcess(
            self.pipeline,
            node,
            self.kafka,
            self.state,
            crash_point=crash_point,
            more=spark_settings(replicas),
        )

    def split(self, shard: str, node: str = "") -> SplitCommand:
        command = SplitCommand(KafkaEventLog(self.kafka), self.pipeline, shard, node, SystemClock())
        command.do()
        return command

    def poll(self) -> None:
        for output in self.outputs.values():
            output.reader.poll(20)

    def upto(self, stream: str) -> int:
        return self.outputs[stream].reader.log_state.closed_upto

    def closed(self, bucket: int, *streams: str) -> bool:
        self.poll()
        return all(self.upto(stream) >= bucket for stream in streams)

    def sums(self, stage: str, first: int, last: int) -> Counter[tuple[int, int, int]]:
        found = self.outputs[stage].buckets(first, last)
        rows = [row for each in found.values() for row in each]
        return Counter((row["event_time"], row["key"], row["sum"]) for row in rows)

    def close(self) -> None:
        self.feed.close()
        for output in self.outputs.values():
            output.close()


@pytest.fixture
def world(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[World]:
    made = World(kafka, topic_prefix, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "points",
    [
        pytest.param([END], id="end"),
        pytest.param([ANSWER, END], id="answer-and-end", marks=pytest.mark.nightly),
    ],
)
def test_a_shard_is_split_under_load_and_its_node_is_killed_meanwhile(
    world: World, points: list[str]
) -> None:
    with world.start("local.9") as south:

        def killed() -> bool:
            south.check()
            world.give(world.given + 1)
            world.poll()
            return north.process.poll() is not None

        with world.start("north", f"{points[0]}:1") as north:
            world.give(20)
            wait_until(
                lambda: world.closed(20, "sums", "counts", "mixed"),
                STARTS_WITHIN_S,
                lambda: f"all is closed\n{north.log()}",
            )
            splitting = world.split("sums.1", "local.9")
            wait_until(killed, STARTS_WITHIN_S, lambda: f"{points[0]}\n{south.log()}")
        for point in points[1:]:
            assert splitting.is_done(0), "it is confirmed"
            assert world.outputs["sums.1"].reader.log_state.heirs == 0
            with world.start("north", f"{point}:1") as north:
                wait_until(killed, STARTS_WITHIN_S, lambda: f"the next\n{south.log()}")
        wait_until(
            lambda: world.closed(0) and world.outputs["sums.1"].reader.log_state.heirs == 2,
            20,
            "the end is in the log",
        )
        with world.start("north") as north:
            ended = world.upto("sums.1")
            world.give(world.given + 20)
            last = world.given
            wait_until(
                lambda: world.closed(last, "sums", "counts"),
                STARTS_WITHIN_S,
                lambda: f"halves are read\n{north.log()}\n{south.log()}",
            )
            assert "shard_split" not in north.all_of_its_log(), "it had ended before"
            mixed = world.split("mixed")

            def answered() -> bool:
                north.check()
                world.give(world.given + 1)
                return mixed.is_done(0)

            with pytest.raises(AnabranchError, match="does not compute each key"):
                wait_until(answered, STARTS_WITHIN_S, lambda: f"an answer\n{north.log()}")
            world.give(world.given + 10)
            wait_until(
                lambda: world.closed(world.given, "mixed", "sums"),
                STARTS_WITHIN_S,
                lambda: f"all goes on\n{north.log()}",
            )
    assert world.outputs["mixed"].reader.log_state.heirs == 0
    last = world.given
    assert world.sums("sums", 1, last) == sums_upto(last)
    halves = [world.sums(f"sums.1{half}", ended + 1, last) for half in (0, 1)]
    keys = [{key for _, key, _ in half} for half in halves]
    assert all(keys), "both have keys"
    assert not keys[0] & keys[1]
