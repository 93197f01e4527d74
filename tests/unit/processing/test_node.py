"""What a node does about moves, with replicas that only wait, on a log in memory. Spark does not run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from anabranch.adapters.local.clock import SeededEntropy, VirtualClock
from anabranch.adapters.local.log import LocalEventLog
from anabranch.codec import control_records
from anabranch.codec.catalog import topic_settings
from anabranch.pipeline.model import HaMode, Pipeline, Stage
from anabranch.ports import TopicPartition
from anabranch.processing import node as shell
from anabranch.processing.node import Node, state_of
from anabranch.protocol.control import Move
from anabranch.protocol.errors import ConfigurationError, Fenced
from anabranch.protocol.limits import PLACEMENT_LOOK_MS
from anabranch.runtime.metrics import Registry, ServiceMetrics
from anabranch.runtime.service import ServiceContext, ServiceStatus
from anabranch.runtime.settings import ServiceSettings
from harness.waiting import wait_until

OLD, NEW = "north.0", "north.1"


class Waiting:
    """In place of ``StageReplica``."""

    def __init__(self, context: ServiceContext, _engine: object, moved_epoch: int | None) -> None:
        self.name, self.moved_epoch, self.stopping = context.settings.name, moved_epoch, context.stopping
        self.status = ServiceStatus()
        self.has_begun, self.dies_of = moved_epoch is None, None
        MADE.append(self)

    def start(self) -> None:
        self.status.state = "running" if self.has_begun else "standby"

    def step(self) -> None:
        if self.dies_of is not None:
            raise self.dies_of
        self.stopping.wait(0.005)

    def stop(self) -> None:
        pass


MADE: list[Waiting] = []


class Spark:
    """In place of the engine."""

    def __init__(self, *_: object) -> None:
        pass

    def check(self) -> None:
        """It runs."""

    def close(self) -> None:
        """Nothing to end."""


class Hurried(threading.Event):
    """Nobody waits on it."""

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        return self.is_set()


class World:
    """A stage on one of two nodes."""

    def __init__(self, folder: Path, ha: HaMode) -> None:
        self.clock, self.folder = VirtualClock(), folder
        self.log = LocalEventLog(self.clock)
        replicas = 2 if ha == "passive" else 1
        stage = Stage(name="s", participant="north", reads=[], transform=["m:f"], replicas=replicas, ha=ha)
        nodes: dict[str, list[str]] = {"north.7": ["s.1"], NEW: []} if ha == "passive" else {NEW: []}
        self.pipeline = Pipeline(
            name="p",
            path=folder / "p.yaml",
            bucket_ms=100,
            max_delay_ms=1_000,
            partitions=1,
            sources={},
            stages={"s": stage},
            outputs={},
            named_nodes=nodes,
        )
        self.log.admin().create([topic_settings("placement", "p.placement"), topic_settings("boundaries", "p.s.boundaries")])
        self.nodes: list[Node] = []

    def node(self, name: str) -> Node:
        settings = ServiceSettings(pipeline=self.pipeline.path, name=name, kafka="k:1", state_dir=self.folder)
        registry = Registry()
        metrics = ServiceMetrics(registry, pipeline="p", service="processing", name=name, restarts=0)
        stopping = Hurried()
        made = Node(
            settings,
            ServiceContext(
                self.log, None, self.clock, SeededEntropy(1), registry, metrics, settings, self.pipeline, structlog.get_logger(), stopping
            ),
        )
        self.nodes.append(made)
        made.start()
        return made

    def move(self, node: str, *, label: str = "s.0", epoch: int = 5, wait_ms: int = PLACEMENT_LOOK_MS) -> None:
        stage, _, replica = label.rpartition(".")
        move = Move(stage, replica, node, epoch, 0)
        writer = self.log.writer()
        writer.send(TopicPartition("p.placement", 0), control_records.encode(move))
        writer.flush()
        self.clock.advance(wait_ms)


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(shell, "SparkEngine", Spark)
    monkeypatch.setattr(shell, "StageReplica", Waiting)
    MADE.clear()
    made = World(tmp_path, getattr(request, "param", "active"))
    yield made
    for node in made.nodes:
        node.stop()


def shown(node: Node) -> dict[str, str]:
    """The replicas beneath the node, as status shows them, and their states."""
    node.step()
    stages: Any = node.status.detail["stages"]
    return {f"{each['stage']}.{each['replica']}": each["state"] for each in stages}


def becomes(node: Node, wanted: dict[str, str]) -> None:
    wait_until(lambda: shown(node) == wanted, 20, f"{wanted}", every_s=0.01)


def test_a_replica_is_added_to_a_running_node_and_leaves_the_other_when_it_is_fenced(world: World) -> None:
    old, new = world.node(OLD), world.node(NEW)
    becomes(old, {"s.0": "running"})
    becomes(new, {})
    assert new.status.state == "waiting"
    world.move(NEW)
    becomes(new, {"s.0": "standby"})
    becomes(old, {"s.0": "running"})
    assert [each.moved_epoch for each in MADE] == [None, 5]
    MADE[0].dies_of = Fenced("the other one took over")  # type: ignore[assignment]
    becomes(old, {})
    assert len(MADE) == 2
    assert 'name="s.0"' not in _metrics(old)
    becomes(world.node(OLD), {})
    again = world.node(NEW)
    becomes(again, {"s.0": "standby"})
    assert MADE[-1].moved_epoch == 5, "it finds in the log that it has begun"


def _metrics(node: Node) -> str:
    from prometheus_client import generate_latest

    return generate_latest(node._context.registry).decode()


def test_a_move_that_is_taken_back_ends_what_only_stands_by(world: World) -> None:
    old, new = world.node(OLD), world.node(NEW)
    becomes(old, {"s.0": "running"})
    world.move(NEW)
    becomes(new, {"s.0": "standby"})
    world.move(OLD)
    becomes(new, {})
    becomes(old, {"s.0": "running"})
    assert len(MADE) == 2
    MADE[0].dies_of = Fenced("a second process of this node")  # type: ignore[assignment]
    with pytest.raises(Fenced):
        becomes(old, {})


def test_a_fence_is_judged_by_all_moves_there_are(world: World) -> None:
    """The other node may have taken over before this one has read why."""
    old = world.node(OLD)
    becomes(old, {"s.0": "running"})
    world.move(NEW, wait_ms=0)
    MADE[0].dies_of = Fenced("the other one took over")  # type: ignore[assignment]
    becomes(old, {})


@pytest.mark.parametrize("world", ["passive"], indirect=True)
def test_a_process_of_a_passive_stage_ends_at_once(world: World) -> None:
    old = world.node(OLD)
    becomes(old, {"s.0": "running"})
    world.move(NEW)
    becomes(old, {})
    becomes(world.node(NEW), {"s.0": "standby"})


def test_a_node_that_is_not_there(world: World) -> None:
    with pytest.raises(ConfigurationError, match=r"--name north\.9: pipeline p has the nodes north\.1, north\.0"):
        world.node("north.9")


def test_the_state_of_a_node_is_the_worst_of_its_replicas() -> None:
    assert [state_of(states) for states in ([], ["running", "standby"], ["failed", "running"], ["stopped"])] == [
        "waiting",
        "running",
        "failed",
        "stopping",
    ]
