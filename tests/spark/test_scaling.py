"""Replicas move to a node of the pool by themselves, with real Spark and a real broker: from a node
that is lost, and from one that is overloaded; and a shard that no node can do alone is split.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from harness import halved_shard
from harness.moved_stages import FIRST, FUNCTIONS, MOVED, NEW, OLD, Load, World, expected
from harness.scaling_manager import scaling_manager
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, create_topics, readings, rows_of, write_pipeline
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

STAGES = ("clean", "windows")
SLEEPS = FUNCTIONS.replace(
    """    return a.where("value > 0")""",
    """    import time

    def slowly(batches):
        time.sleep(1)
        yield from batches

    return a.where("value > 0").mapInArrow(slowly, a.schema)""",
)
assert SLEEPS != FUNCTIONS


def test_the_replicas_of_a_lost_node_go_on_in_the_pool_from_the_store(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """The node is not started again, and its disk is gone with it."""
    store = tmp_path / "store"
    store.mkdir()
    with World(
        kafka, topic_prefix, tmp_path, more=f"scaling: {{nodes: [{NEW}], above: 99%, for: 10m}}\n"
    ) as world:
        world.store = store
        world.more = {"ANABRANCH_CHECKPOINT_STORE": f"file://{store}"}
        with (
            scaling_manager(world.pipeline, world.kafka, world.state) as manager,
            world.start(NEW) as new,
        ):
            with world.start(OLD) as old:
                world.load.start()
                world.runs(OLD, old, "clean.0", MOVED)
                wait_until(
                    lambda: (
                        {NEW, OLD}
                        <= {
                            node
                            for node, each in manager.scaling().get("nodes", {}).items()
                            if each["state"] == "alive"
                        }
                    ),
                    60,
                    lambda: f"both nodes report: {manager.scaling()}",
                )
                wait_until(
                    lambda: all(list(store.rglob(f"*{name}*/**/*.json")) for name in STAGES),
                    120,
                    lambda: f"both have stored a checkpoint: {list(store.rglob('*'))}",
                )
                world.closes(FIRST + 20, OLD)
            # leaving the block has killed it
            world.closes(world.load.given, NEW)
            world.runs(NEW, new, "clean.0", MOVED)
            wait_until(
                lambda: all(
                    each["catch_up_ms"] is not None for each in manager.decisions().values()
                ),
                120,
                lambda: f"both have caught up: {manager.decisions()}",
            )
            decided = manager.decisions()
            assert {label: each["cause"] for label, each in decided.items()} == {
                "clean.0": "lost",
                MOVED: "lost",
            }
            for label, each in decided.items():
                print(
                    f"{label}: detected after {each['silent_ms']} ms, restored in"
                    f" {each['restore_ms']} ms, caught up {each['catch_up_ms']} ms later;"
                    f" {each['because']}"
                )
                assert 5_000 <= each["silent_ms"] < 60_000
            with world.start(OLD) as old:
                world.runs(OLD, old)
                world.load.end()
        assert world.rows() == expected(world.load.given)


@pytest.mark.nightly  # another cause of the same move
def test_a_stage_that_sleeps_leaves_the_node_that_it_shares(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Nobody but the scaler moves it, and it moves nothing else."""
    with World(
        kafka,
        topic_prefix,
        tmp_path,
        functions=SLEEPS,
        more=f"scaling: {{nodes: [{NEW}], above: 60%, for: 5s, rest: 5s}}\n",
        every_s=1.5,
    ) as world:
        with (
            scaling_manager(world.pipeline, world.kafka, world.state) as manager,
            world.start(OLD) as old,
            world.start(NEW) as new,
        ):
            world.load.start()
            world.runs(OLD, old, "clean.0", MOVED)
            wait_until(
                manager.decisions,
                180,
                lambda: f"it is moved: {manager.scaling()}",
            )
            world.runs(OLD, old, MOVED)
            world.runs(NEW, new, "clean.0")
            decided = manager.scaling()["events"]
            world.load.end()
        (event,) = decided
        print(event)
        assert (event["label"], event["cause"], event["target"]) == ("clean.0", "overload", NEW)
        assert "clean.0 is overloaded" in event["because"]
        assert world.rows() == expected(world.load.given)


DEAR = (
    halved_shard.FUNCTIONS.replace(
        "a.groupBy(",
        """a.select("event_time", slowly("value").alias("value")).groupBy(""",
    )
    + """

import time


@F.udf("long")
def slowly(value):
    time.sleep(0.08)
    return value
"""
)
assert 'slowly("value")' in DEAR
DEAR_NODES = """
nodes: {north: [numbers.0], south: [same.0], local.9: []}
scaling: {nodes: [local.9], above: 60%, for: 5s, rest: 5s}
"""


@pytest.mark.nightly  # two minutes; by day the command wants it, and a manager decides it alone
def test_a_shard_that_no_move_helps_is_split_onto_the_pool_by_itself(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """It has its node for itself, and each row costs it time. Nobody but the manager wants the
    split.
    """
    made = write_pipeline(tmp_path, topic_prefix, DEAR, stages=halved_shard.STAGES, apart=False)
    made.path.write_text(made.path.read_text() + DEAR_NODES)
    pipeline = load(made.path)
    create_topics(kafka, pipeline)
    state = tmp_path / "state"
    with (
        closing(Feed(kafka, pipeline, "a")) as feed,
        closing(Output(kafka, pipeline, "same")) as output,
        closing(Output(kafka, pipeline, "numbers")) as shard,
        scaling_manager(pipeline, kafka, state) as manager,
        StageProcess(pipeline, "north", kafka, state) as north,
        StageProcess(pipeline, "south", kafka, state),
        StageProcess(pipeline, "local.9", kafka, state),
    ):
        # Input that comes while Spark starts is a backlog: its batches take up to a minute each,
        # and the first three of a process are not judged (SG13).
        feed.append(readings(rows_of(FIRST)), FIRST)
        traffic = Load(feed, output, every_s=1.0, first=FIRST + 1)
        wait_until(lambda: traffic.look(20) >= FIRST, 120, "both stages have begun")
        traffic.start()

        def is_split() -> bool:
            north.check()
            shard.reader.poll(20)
            return shard.reader.log_state.heirs == 2

        wait_until(is_split, 300, lambda: f"the shard ends: {manager.scaling()}\n{north.log()}")
        ended = shard.reader.log_state.closed_upto
        traffic.end()
        decided = manager.decisions()
        print(decided["numbers"])
        found = [row for rows in output.buckets(FIRST, traffic.given).values() for row in rows]
    assert traffic.given > ended, "the halves have made some of it"
    assert decided["numbers"]["cause"] == "split"
    assert "numbers.0 is overloaded" in decided["numbers"]["because"]
    assert decided["numbers.1.0"]["target"] == "local.9"
    halved_shard.check_counts(found, traffic.given)
