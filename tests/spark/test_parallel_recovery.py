"""A shard whose node is lost for good, with the only checkpoint, comes back in two halves on nodes
of the pool, with real Spark and a real broker.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from harness.halved_shard import FUNCTIONS, STAGES, check_counts
from harness.moved_stages import FIRST, Load
from harness.scaling_manager import scaling_manager
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, create_topics, write_pipeline
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

STARTS_WITHIN_S = 600
"""Four cold Sparks beside each other, until their first results."""
POOL = ("local.7", "local.8")
NODES = f"""
nodes: {{north: [numbers.0], south: [same.0]}}
scaling: {{nodes: [{", ".join(POOL)}], above: 99%, for: 10m, parallel: 2}}
"""


@pytest.mark.nightly  # four Sparks; the machinery is that of a split, and of a move
def test_a_lost_shard_comes_back_in_two_halves(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """No node reaches the disk of another, and there is no store."""
    made = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=STAGES, apart=False)
    made.path.write_text(made.path.read_text() + NODES)
    pipeline = load(made.path)
    create_topics(kafka, pipeline)
    with (
        closing(Feed(kafka, pipeline, "a")) as feed,
        closing(Output(kafka, pipeline, "same")) as output,
        closing(Output(kafka, pipeline, "numbers")) as shard,
        scaling_manager(pipeline, kafka, tmp_path / "manager") as manager,
        ExitStack() as nodes,
    ):

        def start(node: str) -> StageProcess:
            return nodes.enter_context(StageProcess(pipeline, node, kafka, tmp_path / node))

        pool = [start(node) for node in ("south", *POOL)]
        traffic = Load(feed, output, every_s=0.5)
        with StageProcess(pipeline, "north", kafka, tmp_path / "north") as north:
            traffic.start()

            def all_run() -> bool:
                north.check()
                output.reader.poll(20)
                known = manager.scaling().get("nodes", {}).values()
                heard = [each["state"] for each in known].count("alive")
                return output.reader.log_state.closed_upto > FIRST + 20 and heard == 4

            wait_until(
                all_run, STARTS_WITHIN_S, lambda: f"results: {manager.scaling()}\n{north.log()}"
            )
        # leaving the block has killed it

        def is_split() -> bool:
            for node in pool:
                node.check()
            shard.reader.poll(20)
            return shard.reader.log_state.heirs == 2

        wait_until(is_split, 300, lambda: f"the shard ends: {manager.scaling()}\n{pool[1].log()}")
        ended = shard.reader.log_state.closed_upto
        decided = manager.decisions()
        print(decided)
        wait_until(
            lambda: (
                output.reader.poll(20) >= 0 and output.reader.log_state.closed_upto > ended + 10
            ),
            120,
            lambda: f"the halves are read\n{pool[0].log()}",
        )
        traffic.end()
        found = [row for rows in output.buckets(FIRST, traffic.given).values() for row in rows]
    assert decided["numbers.0"]["cause"] == "lost"
    assert "its halves compute the state anew" in decided["numbers"]["because"]
    assert all(node in decided["numbers"]["target"] for node in POOL)
    check_counts(found, traffic.given)
