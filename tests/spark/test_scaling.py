"""Replicas move to a node of the pool by themselves, with real Spark and a real broker: from a node
that is lost, and from one that is overloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.local import probe
from harness.moved_stages import FIRST, FUNCTIONS, MOVED, NEW, OLD, World, expected
from harness.service_processes import ModuleProcess, service
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


@contextmanager
def managed(world: World) -> Iterator[ModuleProcess]:
    """Run the consistency manager, which is the scaler."""
    of = world.pipeline
    with service("consistency_manager", of.name, of.path, world.kafka, world.state) as manager:
        yield manager


def scaling(world: World, manager: ModuleProcess) -> dict[str, Any]:
    """Return what the manager says of scaling; empty while it does not answer."""
    manager.alive()
    port = probe.metrics_port(
        world.state, "consistency_manager", world.pipeline.name, manager.process.pid
    )
    answer = probe.status(port) if port is not None else None
    found = {} if answer is None else (answer.get("detail") or {}).get("scaling") or {}
    assert isinstance(found, dict)
    return found


def events(world: World, manager: ModuleProcess) -> dict[str, dict[str, Any]]:
    """Return the newest decision about each replica."""
    return {each["label"]: each for each in scaling(world, manager).get("events", [])}


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
        with managed(world) as manager, world.start(NEW) as new:
            with world.start(OLD) as old:
                world.load.start()
                world.runs(OLD, old, "clean.0", MOVED)
                wait_until(
                    lambda: (
                        {NEW, OLD}
                        <= {
                            node
                            for node, each in scaling(world, manager).get("nodes", {}).items()
                            if each["state"] == "alive"
                        }
                    ),
                    60,
                    lambda: f"both nodes report: {scaling(world, manager)}",
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
                    each["catch_up_ms"] is not None for each in events(world, manager).values()
                ),
                120,
                lambda: f"both have caught up: {events(world, manager)}",
            )
            decided = events(world, manager)
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
            managed(world) as manager,
            world.start(OLD) as old,
            world.start(NEW) as new,
        ):
            world.load.start()
            world.runs(OLD, old, "clean.0", MOVED)
            wait_until(
                lambda: events(world, manager),
                180,
                lambda: f"it is moved: {scaling(world, manager)}",
            )
            world.runs(OLD, old, MOVED)
            world.runs(NEW, new, "clean.0")
            decided = scaling(world, manager)["events"]
            world.load.end()
        (event,) = decided
        print(event)
        assert (event["label"], event["cause"], event["target"]) == ("clean.0", "overload", NEW)
        assert "clean.0 is overloaded" in event["because"]
        assert world.rows() == expected(world.load.given)
