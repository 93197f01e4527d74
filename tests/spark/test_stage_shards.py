"""A stage with two shards on two nodes, on a real broker and real Spark. One node is killed under
load: a stage that reads both goes on without its keys, tentatively, and says which shard is
missing. Once it runs again all is as if there were no shards and no failure.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from harness.stage_processes import StageProcess
from harness.stages import (
    KEYED_SUMS,
    WIDTH_MS,
    Feed,
    Output,
    create_topics,
    keyed_sums,
    readings,
    rows_of,
    write_pipeline,
)
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

STARTS_WITHIN_S = 300
"""Two cold Sparks beside others, until their first results."""
STAGES = """
sums:
  reads: [a]
  transform: MODULE:sums
  shards: {shards}
  shard_by: {by}
counts:
  reads: [sums]
  transform: MODULE:counts
"""
NODES = """
publish: {sums: {keep: 1h}}
nodes:
  north: [sums.0.0, sums.0, counts.0]
  south: [sums.1.0]
"""


KEYS = (0, 1, 3)
"""Keys of the rows. The hash of the second one begins with bit 1, those of the others with 0."""


def keyed(bucket: int) -> list[tuple[int, int, int]]:
    """Return the rows of a bucket: event time, key, value."""
    return [(time_ms, KEYS[number], value) for time_ms, number, value in rows_of(bucket)]


def sums_upto(last: int) -> Counter[tuple[int, int, int]]:
    """Return what ``sums`` gives of the buckets up to ``last``."""
    return keyed_sums((row for bucket in range(1, last + 1) for row in keyed(bucket)), last)


def pipeline_in(folder: Path, name: str, *, shards: int = 2, by: str = "key") -> Pipeline:
    made = write_pipeline(
        folder,
        name,
        KEYED_SUMS,
        stages=STAGES.format(shards=shards, by=by),
        live=True,
        max_delay_ms=2_000,
        apart=False,
    )
    made.path.write_text(made.path.read_text() + NODES)
    return load(made.path)


class World:
    """Its shards, their union, and what reads both."""

    def __init__(self, kafka: str, name: str, folder: Path) -> None:
        self.kafka, self.state = kafka, folder / "state"
        self.pipeline = pipeline_in(folder, name)
        create_topics(kafka, self.pipeline)
        self.feed = Feed(kafka, self.pipeline, "a")
        self.outputs = {
            name: Output(kafka, self.pipeline, name)
            for name in ("sums.0", "sums.1", "sums", "counts")
        }
        self.tentative = self.outputs["counts"].tentative()
        self.given = 0

    def give(self, upto: int) -> None:
        for bucket in range(self.given + 1, upto + 1):
            self.feed.append(readings(keyed(bucket)), bucket)
        self.given = upto

    def start(self, node: str) -> StageProcess:
        return StageProcess(self.pipeline, node, self.kafka, self.state)

    def closed(self, bucket: int, *nodes: StageProcess) -> bool:
        for node in nodes:
            node.check()
        for output in self.outputs.values():
            output.reader.poll(20)
        return all(each.reader.log_state.upto >= bucket for each in self.outputs.values())

    def rows(self, stage: str, upto: int) -> list[dict[str, Any]]:
        found = self.outputs[stage].buckets(1, upto)
        return [row for rows in found.values() for row in rows]

    def sums(self, stage: str, upto: int) -> Counter[tuple[int, int, int]]:
        return Counter((r["event_time"], r["key"], r["sum"]) for r in self.rows(stage, upto))

    def close(self) -> None:
        self.feed.close()
        for output in self.outputs.values():
            output.close()


@pytest.mark.nightly  # by day: such a node is killed in test_split.py
def test_a_node_with_a_shard_is_killed_and_nothing_is_lost_or_twice(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    world = World(kafka, topic_prefix, tmp_path)
    with world.start("north") as north:
        with world.start("south") as south:
            world.give(20)
            wait_until(lambda: world.closed(20, north, south), STARTS_WITHIN_S, "all is closed")
            world.tentative.clear()  # of the start, when one node is up before the other
            world.give(24)
            os.kill(south.process.pid, signal.SIGKILL)
            south.process.wait()

        def without_south() -> bool:
            world.give(world.given + 1)
            world.closed(0, north)
            return any("sums.1" in each.missing for each in world.tentative)

        wait_until(without_south, 120, "results without the shard that is missing")
        with world.start("south") as south:
            last = world.given
            wait_until(lambda: world.closed(last, north, south), STARTS_WITHIN_S, "all corrected")
        expected = sums_upto(last)
        shards = [world.sums(f"sums.{shard}", last) for shard in (0, 1)]
        keys = [{key for _, key, _ in shard} for shard in shards]
        assert keys == [{0, 3}, {1}]
        assert shards[0] + shards[1] == world.sums("sums", last) == expected
        counted = Counter((row["event_time"], row["n"]) for row in world.rows("counts", last))
        assert counted == Counter(
            # a row of a window's end belongs to the next window of the stage after it
            (end + 200, n)
            for end, n in Counter(end for end, _, _ in expected).items()
            if end + 200 <= last * WIDTH_MS
        )
        others = pipeline_in(tmp_path, topic_prefix, by="value")
        with StageProcess(others, "south", kafka, world.state) as stranger:
            wait_until(
                lambda: "a stage keeps its `shards`" in stranger.all_of_its_log(),
                STARTS_WITHIN_S,
                "rows dealt out otherwise are rejected",
            )
    world.close()
