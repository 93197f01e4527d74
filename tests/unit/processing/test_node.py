"""Tests of a node that follows moves, with replicas that only wait, on a log in memory, without
Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
import structlog
from prometheus_client import generate_latest

from anabranch.adapters.connect import replica_disks
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec import control_records
from anabranch.codec.catalog import topic_settings
from anabranch.pipeline.model import HaMode, Scaling, Shed
from anabranch.ports import StartingEngine, TopicPartition
from anabranch.process.frame import ServiceContext, ServiceStatus
from anabranch.process.metrics import Registry, ServiceMetrics
from anabranch.process.settings import ServiceSettings
from anabranch.processing import node as node_module
from anabranch.processing import stage_replica
from anabranch.processing.node import PLACEMENT_LOOK_MS, Machinery, Node, state_of
from anabranch.processing.node_load import NodeLoad
from anabranch.processing.own_move import NO_MOVE
from anabranch.processing.own_split import ShardSplit
from anabranch.processing.replica_start import SharedBeginRight
from anabranch.protocol.control.idle_node import IDLE_FOR_MS
from anabranch.protocol.control.records import (
    Move,
    NodeReport,
    ReplicaLoad,
    Speaker,
    SplitStep,
    Step,
)
from anabranch.protocol.errors import (
    ConfigurationError,
    DataMissing,
    Fenced,
    Unavailable,
)
from anabranch.protocol.log.records import EpochStarted
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.load_control import LoadDemand
from anabranch.protocol.stage.shed_choice import CHOOSE_EVERY_MS
from anabranch.protocol.stage.standby import YIELD_MS_MAX
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.heartbeats import ControlReader
from anabranch.streams.placement import runs_on
from harness.plain_pipelines import pipeline, stage
from harness.waiting import wait_until

OLD, NEW = "north.0", "north.1"


class Waiting:
    """In place of ``StageReplica``."""

    def __init__(
        self,
        context: ServiceContext,
        _engine: object,
        _disks: object,
        node: str,
        *,
        may_run_elsewhere: bool,
        has_place: bool,
    ) -> None:
        self._context, self._node = context, node
        self.move, self.limits = NO_MOVE, list[int | None]()
        self.node_load: NodeLoad | None = None
        self.name = context.settings.name
        self.split = ShardSplit(context, self.name.rpartition(".")[0])
        self.may_run_elsewhere = may_run_elsewhere
        self.has_place = has_place
        self.stopping = context.stopping
        self.lost_input = self.proves_input = False
        self.begin_right = SharedBeginRight(threading.Condition())
        self.status, self.dies_of = ServiceStatus(), None
        MADE.append(self)

    def start(self) -> None:
        pipeline, (stage, _, replica) = self._context.pipeline, self.name.rpartition(".")
        on = runs_on(self._context.log, pipeline, stage, replica)
        if pipeline.stages[stage].ha == "passive" or (
            self.may_run_elsewhere and on not in ("", self._node)
        ):
            self.status.state = "standby"
        else:
            self.begin()

    def prove_input(self) -> None:
        """Note that the inputs' blocks are to be proven."""
        self.proves_input = True

    def begin(self) -> None:
        """Make the replica begin on this node."""
        stage, _, replica = self.name.rpartition(".")
        context = self._context
        BoundaryWriter(
            context.log,
            context.pipeline.topic_names.boundaries(stage),
            ["0", "1"],
            EpochStarted(replica, "f", SeededEntropy(1).token(), node=self._node),
            context.clock,
        ).start()
        self.status.state = "running"

    def step(self) -> None:
        if self.dies_of is not None:
            raise self.dies_of
        self.stopping.wait(0.005)

    def demand(self) -> LoadDemand:
        """Return a third of a core."""
        return LoadDemand(333_000, is_late=False)

    def limit(self, kept: int | None) -> None:
        """Note the limit."""
        self.limits.append(kept)

    def load(self, state: str) -> ReplicaLoad:
        """Return a load by which the replica can be told."""
        stage, _, replica = self.name.partition(".")
        return ReplicaLoad(stage, replica, state, True, False, 1, 2, 3)

    def stop(self) -> None:
        pass


MADE: list[Waiting] = []


class Idle:
    """In place of Spark."""

    rows_max, pace_ms, cores = 1, 0, 2
    waiting_for: str | None = None

    def prepare(self, *_: object) -> NoReturn:
        raise AssertionError("its replicas only wait")

    def check(self) -> None:
        """Do nothing: the engine runs."""

    def close(self) -> None:
        """Nothing to end."""


ENGINE = Idle()
IDLE = Machinery(lambda *_: StartingEngine(lambda: ENGINE), replica_disks)


class Hurried(threading.Event):
    """Nobody waits on it."""

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        return self.is_set()


class World:
    """A stage on one of two nodes."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.clock, self.folder = VirtualClock(), folder
        self.log = LocalEventLog(self.clock)
        ha: HaMode = "passive" if kind == "passive" else "active"
        replicas = 2 if kind in ("passive", "two") else 1
        nodes: dict[str, list[str]] = {"north.7": ["s.1"], NEW: []} if replicas == 2 else {NEW: []}
        halves = [stage(f"s.{half}", parent="s") for half in (0, 1) if kind == "halved"]
        self.pipeline = pipeline(
            stage("s", replicas=replicas, ha=ha),
            *halves,
            path=folder / "p.yaml",
            named_nodes=nodes,
        )
        self.log.admin().create(
            [
                topic_settings("placement", "p.placement"),
                topic_settings("boundaries", "p.s.boundaries"),
                *(topic_settings("boundaries", f"p.{half.name}.boundaries") for half in halves),
            ]
        )
        self.nodes: list[Node] = []

    def node(self, name: str, restarts: int = 0, machinery: Machinery = IDLE) -> Node:
        settings = ServiceSettings(
            pipeline=self.pipeline.path,
            name=name,
            kafka="k:1",
            state_dir=self.folder,
            restarts=restarts,
        )
        registry = Registry()
        metrics = ServiceMetrics(
            registry, pipeline="p", service="processing", name=name, restarts=0
        )
        stopping = Hurried()
        made = Node(
            settings,
            ServiceContext(
                self.log,
                None,
                self.clock,
                SeededEntropy(1),
                registry,
                metrics,
                settings,
                self.pipeline,
                structlog.get_logger(),
                stopping,
            ),
            machinery,
        )
        self.nodes.append(made)
        made.start()
        return made

    def move(self, node: str, *, label: str = "s.0", wait_ms: int = PLACEMENT_LOOK_MS) -> None:
        stage, _, replica = label.rpartition(".")
        self.record(Move(stage, replica, node, 0), wait_ms)

    def record(self, entry: Move | SplitStep, wait_ms: int = PLACEMENT_LOOK_MS) -> None:
        """Write into the log of moves, and let the nodes' next look be due."""
        writer = self.log.writer()
        writer.send(TopicPartition("p.placement", 0), control_records.encode(entry))
        writer.flush()
        self.clock.advance(wait_ms)


@pytest.fixture
def world(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setattr(stage_replica, "StageReplica", Waiting)
    MADE.clear()
    made = World(tmp_path, getattr(request, "param", "active"))
    yield made
    for node in made.nodes:
        node.stop()


def shown(node: Node) -> dict[str, str]:
    """Return the states of the node's replicas, as status shows them."""
    node.step()
    stages: Any = node.status.detail["stages"]
    return {f"{each['stage']}.{each['replica']}": each["state"] for each in stages}


def becomes(node: Node, wanted: dict[str, str]) -> None:
    wait_until(lambda: shown(node) == wanted, 20, f"{wanted}", every_s=0.01)


def fenced(world: World, by: str = NEW) -> Fenced:
    """Return the error that a running process meets when another replaces it."""
    next(each for each in MADE if each._node == by and each.status.state == "standby").begin()
    return Fenced(f"{by} replaced this one")


def test_a_replica_is_added_to_a_running_node_and_leaves_the_other_when_it_is_fenced(
    world: World,
) -> None:
    old, new = world.node(OLD), world.node(NEW)
    becomes(old, {"s.0": "running"})
    becomes(new, {})
    assert new.status.state == "waiting"
    world.move(NEW)
    becomes(new, {"s.0": "standby"})
    becomes(old, {"s.0": "running"})
    assert [(each.may_run_elsewhere, each.has_place) for each in MADE] == [
        (False, True),
        (True, True),
    ]
    MADE[0].dies_of = fenced(world)  # type: ignore[assignment]
    becomes(old, {})
    assert len(MADE) == 2
    assert 'name="s.0"' not in metrics(old)
    assert 'name="s.0"' in metrics(new)
    becomes(world.node(OLD), {})
    becomes(world.node(NEW), {"s.0": "running"})


def metrics(node: Node) -> str:
    return generate_latest(node._context.registry).decode()


def test_a_move_that_is_taken_back_ends_what_only_stands_by(world: World) -> None:
    old, new = world.node(OLD), world.node(NEW)
    becomes(old, {"s.0": "running"})
    world.move(NEW)
    becomes(new, {"s.0": "standby"})
    shown(old)
    world.move(OLD)
    becomes(new, {})
    becomes(old, {"s.0": "running"})
    assert len(MADE) == 2
    MADE[0].dies_of = Fenced("a second process of this node")  # type: ignore[assignment]
    with pytest.raises(Fenced):
        becomes(old, {})


@pytest.mark.parametrize("world", ["halved"], indirect=True)
def test_a_shard_that_was_split_does_not_count_for_what_its_node_has_reached(world: World) -> None:
    node = world.node(OLD)
    world.record(SplitStep("s", Step.WANTED, 0))
    becomes(node, {"s.0": "running", "s.0.0": "running", "s.1.0": "running"})
    for each in MADE:
        is_half = each.name != "s.0"
        each.status.last_bucket_ms, each.status.lag_ms = (900, 50) if is_half else (100, None)
    node._report()
    assert (node.status.last_bucket_ms, node.status.lag_ms) == (900, 50)


@pytest.mark.parametrize("world", ["halved"], indirect=True)
def test_hg1_a_half_that_moves_away_stops_when_its_attempt_is_withdrawn(world: World) -> None:
    """Its new node runs it no more, and so would never end it here."""
    old, all_three = world.node(OLD), {"s.0": "running", "s.0.0": "running", "s.1.0": "running"}
    world.record(SplitStep("s", Step.WANTED, 5))
    becomes(old, all_three)
    world.move(NEW, label="s.1.0")
    becomes(old, all_three)
    world.record(SplitStep("s", Step.WITHDRAWN, 6, 5, "bucket 3 differs", 3))
    becomes(old, {"s.0": "running"})
    world.move(OLD, label="s.1.0")
    becomes(old, {"s.0": "running"})


def test_a_move_is_withdrawn_by_the_node_that_runs_the_replica(world: World) -> None:
    old, new = world.node(OLD), world.node(NEW)
    becomes(old, {"s.0": "running"})
    assert MADE[0].move.goes_to() == ""
    world.move(NEW)
    becomes(new, {"s.0": "standby"})
    shown(old)
    assert MADE[0].move.goes_to() == NEW
    assert MADE[1].move.goes_to() == "", "it has its place here"
    MADE[0].move.withdraw("the store is away")
    world.clock.advance(PLACEMENT_LOOK_MS)
    becomes(new, {})
    becomes(old, {"s.0": "running"})
    assert detail(old, "move_withdrawn") == "the store is away"
    again = world.node(OLD)
    becomes(again, {"s.0": "running"})
    assert detail(again, "move_withdrawn") == "the store is away", "the log has it"
    again.stop()
    assert MADE[0].move.goes_to() == ""
    assert MADE[-1].move.goes_to() == "", "the node is stopping"
    again._report()
    world.move(NEW)
    shown(old)
    assert detail(old, "move_withdrawn") is None


def test_a_move_that_an_operator_has_replaced_is_not_withdrawn(world: World) -> None:
    """PC7: the node has not read the newer move yet."""
    other = "north.8"
    world.pipeline.named_nodes[other] = []
    old = world.node(OLD)
    becomes(old, {"s.0": "running"})
    world.move(NEW)
    shown(old)
    world.move(OLD, wait_ms=0)
    world.move(other, wait_ms=0)
    MADE[0].move.withdraw(f"node {NEW} did not stand by")
    world.clock.advance(PLACEMENT_LOOK_MS)
    shown(old)
    assert MADE[0].move.goes_to() == other
    assert detail(old, "move_withdrawn") is None
    MADE[0].move.withdraw("it got no further")
    world.clock.advance(PLACEMENT_LOOK_MS)
    shown(old)
    assert detail(old, "move_withdrawn") == "it got no further"
    MADE[0].move.withdraw("again")
    world.clock.advance(PLACEMENT_LOOK_MS)
    assert detail(old, "move_withdrawn") == "it got no further", "nothing is to be withdrawn"


def test_a_move_that_cannot_be_withdrawn_is_shown_until_it_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only operators may write where replicas are."""
    old = world.node(OLD)
    becomes(old, {"s.0": "running"})
    world.move(NEW)
    shown(old)

    def denied(*_: object) -> NoReturn:
        raise ConfigurationError("it may not write there")

    monkeypatch.setattr(node_module, "append_decision", denied)
    for _ in range(2):
        MADE[0].move.withdraw("the store is away")
    shown(old)
    assert detail(old, "move_stalled") == (
        f"the store is away; take it back: anabranch move s.0 {OLD}"
    )
    world.move(OLD)
    shown(old)
    assert detail(old, "move_stalled") is None


def detail(node: Node, name: str) -> object:
    """Return what the node shows of its only replica."""
    node.step()
    stages: Any = node.status.detail["stages"]
    return stages[0].get(name)


def test_n5_one_that_begins_just_as_its_place_moves_away_is_not_stopped(world: World) -> None:
    old, new = world.node(OLD), world.node(NEW)
    becomes(old, {"s.0": "running"})
    world.move(NEW)
    becomes(new, {"s.0": "standby"})
    world.move(OLD)
    assert MADE[1].begin_right.use(), "its record is on its way"
    for _ in range(3):
        assert shown(new) == {"s.0": "standby"}
    assert not MADE[1].stopping.is_set()
    MADE[1].begin()
    becomes(new, {"s.0": "running"})
    assert len(MADE) == 2, "the same one"


def test_n5_one_that_failed_where_it_had_begun_is_not_started_again_when_another_has_it(
    world: World,
) -> None:
    old, new = world.node(OLD), world.node(NEW)
    becomes(old, {"s.0": "running"})
    assert MADE[0].begin_right.use()
    MADE[0].dies_of = RuntimeError("failed")  # type: ignore[assignment]
    becomes(old, {"s.0": "restarting"})
    world.move(NEW)
    becomes(new, {"s.0": "standby"})
    MADE[1].begin()
    becomes(old, {})
    assert len(MADE) == 2


def test_n5_one_that_began_just_when_it_was_told_to_stop_runs_until_the_other_node_has_it(
    world: World,
) -> None:
    old, new = world.node(OLD), world.node(NEW)
    becomes(old, {"s.0": "running"})
    world.move(NEW)
    becomes(new, {"s.0": "standby"})
    MADE[1].stop = MADE[1].begin  # type: ignore[method-assign]
    world.move(OLD)
    becomes(new, {"s.0": "running"})
    assert len(MADE) == 3, "a new one"
    MADE[0].dies_of = Fenced("the other node began")  # type: ignore[assignment]
    becomes(old, {"s.0": "restarting"})
    world.clock.advance(1_000)
    becomes(old, {"s.0": "standby"})
    MADE[2].dies_of = fenced(world, OLD)  # type: ignore[assignment]
    becomes(new, {})


def test_one_that_another_node_replaced_though_its_place_is_here_stands_by(world: World) -> None:
    old, new = world.node(OLD), world.node(NEW)
    becomes(old, {"s.0": "running"})
    world.move(NEW)
    becomes(new, {"s.0": "standby"})
    world.move(OLD, wait_ms=0)
    MADE[0].dies_of = fenced(world)  # type: ignore[assignment]
    becomes(old, {"s.0": "restarting"})
    world.clock.advance(1_000)
    becomes(old, {"s.0": "standby"})
    becomes(new, {"s.0": "running"})


def test_a_fence_is_judged_by_all_moves_there_are(world: World) -> None:
    """The other node may have replaced it before this one has read why."""
    old, new = world.node(OLD), world.node(NEW)
    becomes(old, {"s.0": "running"})
    world.move(NEW)
    becomes(new, {"s.0": "standby"})
    old._placement_next_ms = world.clock.monotonic_ms() + 60_000
    MADE[0].dies_of = fenced(world)  # type: ignore[assignment]
    becomes(old, {})


@pytest.mark.parametrize("lost", [False, True])
def test_a_replica_that_lacked_input_proves_it_when_it_is_started_again(
    world: World, lost: bool
) -> None:
    node = world.node(OLD)
    becomes(node, {"s.0": "running"})
    MADE[0].lost_input, MADE[0].dies_of = lost, DataMissing("found 0 blocks")  # type: ignore[assignment]
    becomes(node, {"s.0": "restarting"})
    world.clock.advance(1_000)
    becomes(node, {"s.0": "running"})
    assert [each.proves_input for each in MADE] == [False, lost]


def test_a_log_that_cannot_be_read_ends_no_node(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replica fails of it, and is tried again; one that leaves does so when the log can
    be read.
    """
    old, new = world.node(OLD), world.node(NEW)
    becomes(old, {"s.0": "running"})

    def broken(*_: object) -> str:
        raise DataMissing("its first records are deleted")

    with monkeypatch.context() as patched:
        patched.setattr("anabranch.processing.node.runs_on", broken)
        MADE[0].dies_of = DataMissing("its first records are deleted")  # type: ignore[assignment]
        becomes(old, {"s.0": "restarting"})
        world.clock.advance(1_000)
        becomes(old, {"s.0": "running"})
        world.move(NEW)
        becomes(old, {"s.0": "running"})
        becomes(world.node(OLD), {})
        becomes(new, {"s.0": "standby"})
    shown(old)
    MADE[1].dies_of = fenced(world)  # type: ignore[assignment]
    becomes(old, {})


def test_one_that_is_removed_ends(world: World) -> None:
    old = world.node(OLD)
    becomes(old, {"s.0": "running"})
    world.move("")
    becomes(old, {"s.0": "running"})  # nobody else would run it


@pytest.mark.parametrize("world", ["two"], indirect=True)
def test_one_of_several_that_is_removed_ends(world: World) -> None:
    old = world.node(OLD)
    becomes(old, {"s.0": "running"})
    world.move("")
    becomes(old, {})
    world.move(NEW)
    becomes(world.node(NEW), {"s.0": "standby"})


@pytest.mark.parametrize("world", ["passive"], indirect=True)
def test_a_process_of_a_passive_stage_ends_at_once(world: World) -> None:
    old = world.node(OLD)
    becomes(old, {"s.0": "standby"})
    MADE[0].begin()
    becomes(old, {"s.0": "running"})
    world.move(NEW)
    becomes(old, {})
    becomes(world.node(NEW), {"s.0": "standby"})


def test_a_node_that_is_not_there(world: World) -> None:
    with pytest.raises(
        ConfigurationError, match=r"--name north\.9: pipeline p has the nodes north\.1, north\.0"
    ):
        world.node("north.9")


def test_what_the_engine_waits_for_is_said_until_it_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.node(NEW)
    with structlog.testing.capture_logs() as logged:
        monkeypatch.setattr(ENGINE, "waiting_for", "an executor")
        node.step()
        node.step()
        assert (node.status.waiting_for or "").startswith("an executor")
        monkeypatch.setattr(ENGINE, "waiting_for", None)
        node.step()
        assert not (node.status.waiting_for or "").startswith("an executor")
    events = [(each["event"], each.get("waiting_for")) for each in logged]
    assert events == [("engine_waits", "an executor"), ("engine_goes_on", None)]


def test_a_node_that_lacks_topics_and_its_engine_says_both_at_once(world: World) -> None:
    """And what it waits for before that, as soon as it looks."""
    world.pipeline = world.pipeline.model_copy(update={"name": "q"})
    attempts = iter([False, False, True])

    def failing() -> NoReturn:
        raise Unavailable("Spark's master cannot be reached")

    starting = StartingEngine(failing, lambda: next(attempts))
    with (
        structlog.testing.capture_logs() as logged,
        pytest.raises(Unavailable, match=r"cannot be reached; besides, there are no topics q\.pl"),
    ):
        world.node(NEW, machinery=Machinery(lambda *_: starting, replica_disks))
    (waits,) = [each["waiting_for"] for each in logged if each["event"] == "node_waits"]
    assert waits.startswith("there are no topics q.placement; make them")


def test_the_state_of_a_node_is_the_worst_of_its_replicas() -> None:
    assert [
        state_of(states)
        for states in ([], ["running", "standby"], ["failed", "running"], ["stopped"])
    ] == [
        "waiting",
        "running",
        "failed",
        "stopping",
    ]


@pytest.mark.parametrize(
    ("world", "restarts", "waits"),
    [("passive", 1, True), ("passive", 0, False), ("two", 1, False)],
    indirect=["world"],
)
def test_one_that_is_started_again_makes_way_for_a_standby_before_spark(
    world: World, restarts: int, waits: bool
) -> None:
    BoundaryWriter(
        world.log,
        "p.s.boundaries",
        ["0"],
        EpochStarted("0", "f", SeededEntropy(1).token(), node=OLD),
        world.clock,
    ).start()
    begun_ms = world.clock.monotonic_ms()
    world.node(OLD, restarts)
    assert (world.clock.monotonic_ms() - begun_ms >= YIELD_MS_MAX) == waits


def test_a_node_says_what_leaving_out_rows_would_cost(world: World) -> None:
    shed = {"s": world.pipeline.stages["s"].model_copy(update={"shed": Shed(kind="rows")})}
    world.pipeline = world.pipeline.model_copy(update={"stages": shed, "publish_ms": {"s": 1_000}})
    node = world.node(OLD)
    becomes(node, {"s.0": "running"})
    world.clock.advance(CHOOSE_EVERY_MS)
    node.step()
    assert node.status.detail["shedding"] == [
        {
            "stage": "s",
            "limit_permille": KEPT_ALL,
            "processor_us_per_s": 333_000,
            "step_utility_lost_permille": 50,
            "step_processor_saved_us_per_s": 16_650,
        }
    ]
    assert MADE[-1].limits[-1] is None
    assert MADE[-1].node_load is node._load


def test_a_node_of_a_scaled_pipeline_reports_the_load_of_what_it_runs(world: World) -> None:
    """One of the pool reports, too: that it is there."""
    scaling = Scaling(pool=[NEW], above_permille=700, for_ms=1, rest_ms=1)
    world.pipeline = world.pipeline.model_copy(update={"scaling": scaling})
    topics = {world.pipeline.topic_names.node_reports(node): node for node in (OLD, NEW)}
    world.log.admin().create([topic_settings("control", topic) for topic in topics])
    speakers = {topic: Speaker(frozenset(), reports=node) for topic, node in topics.items()}
    heard: dict[str, NodeReport] = {}
    with closing(ControlReader(world.log, speakers)) as reader:
        nodes = [world.node(OLD), world.node(NEW)]

        def both_say_what_they_have() -> bool:
            for node in nodes:
                node.step()
            world.clock.advance(100)
            heard.update(
                {entry.node: entry for entry in reader.poll() if isinstance(entry, NodeReport)}
            )
            return heard.keys() == {OLD, NEW} and bool(heard[OLD].replicas)

        wait_until(both_say_what_they_have, 20, lambda: f"{heard}")
        assert (heard[NEW].replicas, heard[NEW].cores) == ((), 2)
        assert [load.label for load in heard[OLD].replicas] == ["s.0"]
        for node in nodes:
            node.stop()


def test_a_node_without_a_replica_keeps_its_engine_warm(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[IdleWork] = []

    class IdleWork:
        """In place of ``IdleNode``."""

        def __init__(self, context: ServiceContext, engine: object, stages: list[str]) -> None:
            assert (engine, stages) == (ENGINE, ["s"])
            self.stopping, self.status, self.has_ended = context.stopping, ServiceStatus(), False
            begun.append(self)

        def start(self) -> None:
            self.status.state = "waiting"

        def step(self) -> None:
            self.stopping.wait(0.005)

        def stop(self) -> None:
            self.has_ended = True

    monkeypatch.setattr(node_module, "rehearsed", lambda *_: ["s"])
    monkeypatch.setattr(node_module, "IdleNode", IdleWork)

    def started() -> Idle:
        world.clock.advance(2 * IDLE_FOR_MS)
        return ENGINE

    slow = Machinery(lambda *_: StartingEngine(started), replica_disks)
    old, new = world.node(OLD), world.node(NEW, machinery=slow)
    becomes(old, {"s.0": "running"})
    world.clock.advance(IDLE_FOR_MS - 1)
    shown(new)
    assert not begun, "when all nodes start, those with replicas come first"
    world.clock.advance(1)
    shown(new)
    assert shown(old) == {"s.0": "running"}
    assert len(begun) == 1
    world.move(NEW)
    becomes(new, {"s.0": "standby"})
    wait_until(lambda: begun[0].has_ended, 20, "the replica has the engine")
    shown(old)
    world.move(OLD)
    becomes(new, {})
    shown(new)
    assert len(begun) == 1, "it has just had one"
    world.clock.advance(IDLE_FOR_MS)
    shown(new)
    assert len(begun) == 2
    new.stop()
    assert begun[1].has_ended
