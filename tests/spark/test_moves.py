"""A replica moves from one node to another while it works, with real Spark and a real broker;
and either node is killed in the middle.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.protocol.errors import ConfigurationError
from harness.moved_stages import FIRST, MOVED, NEW, OLD, PARTNERS, THIRD, World, expected
from harness.stage_processes import StageProcess
from harness.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def world(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[World]:
    with World(kafka, topic_prefix, tmp_path) as made:
        yield made


@pytest.fixture
def apart(world: World, tmp_path: Path) -> World:
    """Return a world whose nodes share nothing but a store of checkpoints."""
    world.store = tmp_path / "store"
    world.store.mkdir()
    world.more = {"ANABRANCH_CHECKPOINT_STORE": f"file://{world.store}"}
    return world


def fetched(node: StageProcess) -> dict[str, int]:
    """Return what a node says that it had copied when it became the primary last, in bytes."""
    lines = [each for each in node.all_of_its_log().splitlines() if "becoming_primary" in each]
    line = lines[-1]
    return {
        name: int(match[1])
        for name in ("fetched_bytes", "linked_bytes", "rest_bytes")
        if (match := re.search(rf"{name}\W+(\d+)", line)) is not None
    }


def test_a_replica_moves_under_load_and_stays_where_it_is_after_a_restart(apart: World) -> None:
    """Its state goes by the store, since the nodes share nothing else."""
    world, started = apart, time.monotonic()
    with world.start(OLD) as old:
        with world.start(NEW) as new:
            world.load.start()
            world.runs(OLD, old, "clean.0", MOVED)
            cold_s = time.monotonic() - started
            world.closes(FIRST + 20, OLD)
            begun = time.monotonic()
            moving = world.move(NEW)
            with pytest.raises(ConfigurationError, match=f"{MOVED} is on node {NEW}"):
                world.move(NEW)
            wait_until(lambda: MOVED in world.replicas(NEW, new), 60, "it comes", every_s=0.05)
            with new.paused():  # it prepares
                world.closes(world.load.given + 8, OLD)
            assert moving.is_done(200_000)
            world.runs(OLD, old, "clean.0")
            world.runs(NEW, new, MOVED)
            assert fetched(new)["fetched_bytes"] > 0, "it had nothing"
            with pytest.raises(ConfigurationError, match="there is no node north"):
                world.move("north.7")
            world.closes(world.load.given, NEW)
            print(
                f"longest time without a new bucket {world.load.gap_s(begun):.2f} s, a start"
                f" {cold_s:.2f} s"
            )
        # leaving the block has killed it
        with world.start(NEW) as new:
            world.runs(NEW, new, MOVED)
            world.load.end()
            world.runs(OLD, old, "clean.0")
    with world.start(OLD) as old:
        world.places(old, "clean.0")
    assert world.rows() == expected(world.load.given)


@pytest.mark.nightly
def test_a_replica_moves_there_and_back_between_nodes_that_share_nothing(apart: World) -> None:
    """Its state goes by the store. Where it comes back, files that are still there are not read."""
    world = apart
    with world.start(OLD) as old, world.start(NEW) as new:
        world.load.start()
        world.runs(OLD, old, "clean.0", MOVED)
        world.closes(FIRST + 20, OLD)
        for node, process in ((NEW, new), (OLD, old)):
            begun = time.monotonic()
            assert world.move(node).is_done(200_000)
            world.closes(world.load.given, node)
            copied = fetched(process)
            print(f"to {node}: pause {world.load.gap_s(begun):.2f} s, {copied}")
            assert copied["rest_bytes"] == 0
            if node == NEW:
                assert copied["fetched_bytes"] > 0, "it had nothing"
            else:  # what it has is near enough, or it reads what changed since
                assert copied["linked_bytes"] > 0 or not copied["fetched_bytes"]
        world.runs(NEW, new)
        world.runs(OLD, old, "clean.0", MOVED)
        world.load.end()
    assert world.rows() == expected(world.load.given)


def begun_after(state: Path) -> int:
    """Return the batch after which a node began that runs the stage; -1: without a checkpoint."""
    timelines = state.rglob(f"{MOVED}/life-*/timelines/*.json")
    newest = max(timelines, key=lambda path: path.name)
    return int(json.loads(newest.read_text())["start_batch"])


def test_a_partner_begins_from_the_checkpoint_of_the_stages_owner(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """And again after the stage was at home, where it begins from its input."""
    keys = "  ha: upstream_backup\n  state_horizon: 1s\n  transfer: checkpoint\n"
    partners = "federation: {name: f, participant: north, partners: {south: [windows]}}\n"
    with World(kafka, topic_prefix, tmp_path, keys=keys, more=partners) as world:
        store = world.store = tmp_path / "store"
        store.mkdir()
        world.more = {"ANABRANCH_CHECKPOINT_STORE": f"file://{store}"}
        with world.start(OLD) as old, world.start(PARTNERS) as theirs:
            world.load.start()
            world.runs(OLD, old, "clean.0", MOVED)
            world.runs(PARTNERS, theirs)
            world.closes(FIRST + 20, OLD)
            assert not list(store.rglob("*.json")), "nobody stands by"
            for sale in (1, 2):
                begun = time.monotonic()
                world.sell(PARTNERS)
                world.runs(PARTNERS, theirs, MOVED)
                # Further than the input from which the owner begins.
                world.closes(world.load.given + 25, PARTNERS)
                print(f"sale {sale}: pause {world.load.gap_s(begun):.2f} s, {fetched(theirs)}")
                assert "begins_from_input" not in theirs.all_of_its_log()
                assert fetched(theirs)["fetched_bytes"] > 0
                assert begun_after(world.state_of(PARTNERS)) >= 0
                assert world.move(OLD).is_done(200_000)
                world.runs(OLD, old, "clean.0", MOVED)
                # Further than a checkpoint may be behind for a node to take over.
                world.closes(world.load.given + 60, OLD)
                assert begun_after(world.state_of(OLD)) == -1, "it trusts no state of a partner"
            world.load.end()
    assert world.rows() == expected(world.load.given)


@pytest.mark.parametrize("point", ["checkpoint.fetched", "checkpoint.taking_fetched"])
@pytest.mark.nightly
def test_the_new_node_is_killed_while_it_copies(apart: World, point: str) -> None:
    world = apart
    with world.start(OLD) as old:
        with world.start(NEW, point) as new:
            world.load.start()
            world.runs(OLD, old, "clean.0", MOVED)
            world.move(NEW)
            assert new.wait(300) == -9, new.log()
        with world.start(NEW) as again:
            world.runs(NEW, again, MOVED)
            world.runs(OLD, old, "clean.0")
            world.load.end()
    assert world.rows() == expected(world.load.given)


@pytest.mark.parametrize(
    "point",
    [
        "processing.standby_due",
        "processing.checkpoint_copied",
        "processing.timeline_written",
    ],
)
@pytest.mark.nightly
def test_the_new_node_is_killed_in_the_middle(world: World, point: str) -> None:
    with world.start(OLD) as old:
        with world.start(NEW, point) as new:
            world.load.start()
            world.runs(OLD, old, "clean.0", MOVED)
            world.move(NEW)
            assert new.wait(300) == -9, new.log()
        if point == "processing.standby_due":  # nothing was written: the old one goes on
            upto = world.load.given
            wait_until(lambda: world.load.closed[-1][1] > upto, 60, "the old one goes on")
            with pytest.raises(ConfigurationError, match=f"anabranch move {MOVED} {OLD}"):
                world.move(THIRD)
        with world.start(NEW) as again:
            world.runs(NEW, again, MOVED)
            world.runs(OLD, old, "clean.0")
            world.load.end()
    assert world.rows() == expected(world.load.given)


@pytest.mark.nightly
def test_the_old_node_is_killed_in_the_middle(world: World) -> None:
    """It does not come back: who has its place becomes the primary, and when the old node is there
    again it leaves it alone.
    """
    with world.start(OLD) as old, world.start(NEW) as new:
        world.load.start()
        world.runs(OLD, old, "clean.0", MOVED)
        world.move(NEW)
        wait_until(lambda: MOVED in world.replicas(NEW, new), 60, "it comes", every_s=0.05)
        old.kill()
        world.runs(NEW, new, MOVED)
        with world.start(OLD) as again:
            world.runs(OLD, again, "clean.0")
            world.load.end()
            assert "replica_ended" not in again.log()
    assert world.rows() == expected(world.load.given)
