"""The manager moves the replicas of a lost or overloaded node, once, however many managers run."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import generate_latest

from anabranch.codec.catalog import topic_settings
from anabranch.consistency_manager.service import ConsistencyManager
from anabranch.pipeline.model import Scaling
from anabranch.protocol.control.records import NodeReport, ReplicaLoad
from anabranch.protocol.control.scaling import NODE_LOST_MS
from anabranch.protocol.stage.splitting import SplitPhase, Splits
from anabranch.streams.placement import PlacementReader
from harness.control_topics import say
from harness.manager_world import ManagerWorld
from harness.outputs import STAGE

POOL = "north.7"
HALVES = f"{STAGE}.0", f"{STAGE}.1"
STEP_MS = 250


class World(ManagerWorld):
    """Two replicas on nodes of their own, and a node of the pool."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = self.pipeline
        self.pipeline = self.plain.model_copy(
            update={
                "named_nodes": {POOL: []},
                "scaling": Scaling(pool=[POOL], above_permille=700, for_ms=3_000, rest_ms=2_000),
            }
        )
        names = self.pipeline.topic_names
        assert not self.log.admin().create(
            [
                topic_settings("placement", names.placement()),
                *(
                    topic_settings("control", names.node_reports(node))
                    for node in self.pipeline.nodes()
                ),
            ]
        )
        self.alive = set(self.pipeline.nodes())

    def places(self) -> dict[str, str]:
        places = self.pipeline.places()
        reader = PlacementReader(self.log, self.pipeline.topic_names.placement(), places)
        reader.read_to_end()
        reader.close()
        return {label: places.node_of(label) for label in places.labels()}

    def run(self, seconds: int, *managers: ConsistencyManager) -> None:
        """Let the nodes report where their replicas are, and the managers work."""
        for _ in range(seconds * 1_000 // STEP_MS):
            at = self.places()
            for node in sorted(self.alive):
                loads = tuple(
                    ReplicaLoad(STAGE, label.partition(".")[2], "running", True, False, 300, 5, 0)
                    for label, place in at.items()
                    if place == node
                )
                say(self.log, self.pipeline, NodeReport(node, 0, 2, loads))
            for each in managers:
                each.step()
            self.clock.advance(STEP_MS)


@pytest.fixture
def world() -> World:
    return World()


def events_of(manager: ConsistencyManager) -> list[dict[str, Any]]:
    found = manager.status.detail["scaling"]
    assert isinstance(found, dict)
    return list(found["events"])


def test_the_replica_of_a_silent_node_goes_to_the_pool(world: World) -> None:
    manager = world.manager()
    world.run(4, manager)
    assert world.places() == {f"{STAGE}.0": "north.0", f"{STAGE}.1": "north.1"}
    world.alive.discard("north.0")
    world.run(NODE_LOST_MS // 1_000 + 4, manager)
    assert world.places()[f"{STAGE}.0"] == POOL
    (event,) = events_of(manager)
    assert event["cause"] == "lost"
    assert event["silent_ms"] >= NODE_LOST_MS
    assert event["catch_up_ms"] is not None
    shown = generate_latest(manager._context.registry).decode()
    assert 'anabranch_scaling_moves_total{cause="lost",pipeline="p"} 1.0' in shown
    assert 'anabranch_nodes_lost{pipeline="p"} 1.0' in shown
    assert 'anabranch_scaling_last_seconds{phase="restore",pipeline="p"}' in shown
    manager.stop()


class SplittingWorld(World):
    """One replica that is too much for its node, of a stage that may be split."""

    def __init__(self) -> None:
        super().__init__()
        stages = dict(self.pipeline.stages)
        one = stages[STAGE].model_copy(update={"replicas": 1})
        stages[STAGE] = one
        for half in HALVES:
            stages[half] = one.model_copy(update={"name": half, "parent": STAGE})
        self.pipeline = self.pipeline.model_copy(
            update={"stages": stages, "stage_shards": {STAGE: [STAGE, *HALVES]}}
        )
        names = self.pipeline.topic_names
        assert not self.log.admin().create(
            [
                settings
                for half in HALVES
                for settings in (
                    topic_settings("boundaries", names.boundaries(half)),
                    topic_settings("blocks", names.blocks(half, "0"), 2),
                    topic_settings("control", names.control("processing", f"{half}.0")),
                )
            ]
        )
        self.alive = set(self.pipeline.nodes())

    def splits(self) -> Splits:
        reader = PlacementReader(
            self.log, self.pipeline.topic_names.placement(), self.pipeline.places()
        )
        reader.read_to_end()
        reader.close()
        return reader.splits

    def run(self, seconds: int, *managers: ConsistencyManager) -> None:
        for _ in range(seconds * 1_000 // STEP_MS):
            load = ReplicaLoad(STAGE, "0", "running", True, False, 950, 5, 0, need_permille=950)
            for node in sorted(self.alive):
                loads = (load,) if node == "north.0" else ()
                say(self.log, self.pipeline, NodeReport(node, 0, 1, loads))
            for each in managers:
                each.step()
            self.clock.advance(STEP_MS)


def test_a_shard_that_is_too_much_for_its_node_is_split_once() -> None:
    world = SplittingWorld()
    one, other = world.manager(), world.manager()
    world.run(10, one, other)
    assert world.splits().of(STAGE).phase is SplitPhase.WANTED
    places = world.places()
    assert sorted(places[f"{half}.0"] for half in HALVES) == ["north.0", POOL]
    for manager in (one, other):
        half, split = events_of(manager)
        assert (half["cause"], half["target"]) == ("half", POOL)
        assert (split["label"], split["cause"]) == (STAGE, "split")
        assert "95 % of the time" in split["because"]
        shown = generate_latest(manager._context.registry).decode()
        assert 'anabranch_scaling_splits_total{pipeline="p"} 1.0' in shown
        manager.stop()


def test_without_the_section_nothing_is_moved_and_no_topic_is_needed() -> None:
    plain = ManagerWorld()
    manager = plain.manager()
    for _ in range(80):
        manager.step()
        plain.clock.advance(STEP_MS)
    assert "scaling" not in manager.status.detail
    manager.stop()
