"""Inputs of other owners: waited for where their topics are not there yet, and not where their
cluster does not answer.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.codec.catalog import TopicSettings
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.model import Binding, Stage
from anabranch.process.frame import ServiceContext, ServiceStatus
from anabranch.process.threads import OWN_THREADS
from anabranch.processing import bound_inputs as module
from anabranch.processing.bound_inputs import BoundInputs
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.distant_reader import DistantReader
from harness import sources
from harness.silent_cluster import SilentCluster
from harness.waiting import wait_until

BOUNDARIES, CONTROL = "theirs.means.boundaries", "theirs.control.processing.means.0"


class World:
    """A stage that reads a source of its own, and a stream that is bound."""

    def __init__(self, cluster: str) -> None:
        own = sources.pipeline("mine")
        binding = Binding(
            name="speeds",
            pipeline="theirs",
            stream="means",
            record=sources.REPORT,
            cluster=cluster,
        )
        self.stage = "tolls"
        both = Stage(
            name="tolls",
            participant="local",
            reads=[*own.sources, "speeds"],
            transform=["m:f"],
        )
        self.pipeline = own.model_copy(
            update={
                "bindings": {"speeds": binding},
                "clusters": {"east": "e:1"},
                "stages": {self.stage: both},
            }
        )
        self.log, self.east = SilentCluster(), SilentCluster()
        self.log.admin().create([settings for _, settings in internal_topics(self.pipeline)])
        self.stopping = threading.Event()
        self.warned: list[dict[str, object]] = []
        logger = SimpleNamespace(warning=lambda _, **of: self.warned.append(of))
        context: Any = SimpleNamespace(
            log=self.log,
            pipeline=self.pipeline,
            stopping=self.stopping,
            logger=logger,
            threads=OWN_THREADS,
            other_cluster=lambda name, kafka: {("east", "e:1"): self.east}[name, kafka],
        )
        context.log_of = lambda stream: ServiceContext.log_of(context, stream)
        self.bound = BoundInputs(cast("ServiceContext", context), self.stage)
        self.status = ServiceStatus()

    def awaits(self) -> list[bool]:
        """Begin to wait; what comes of it stands in the list, once it is known."""
        found: list[bool] = []

        def body() -> None:
            found.append(self.bound.await_topics(self.status))

        threading.Thread(target=body, daemon=True).start()
        return found


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.01)


@pytest.mark.parametrize("cluster", ["", "east"])
def test_topics_that_are_not_there_yet_are_waited_for(cluster: str) -> None:
    world = World(cluster)
    where = world.east if cluster else world.log
    found = world.awaits()
    wait_until(lambda: world.status.waiting_for, 10, "it waits")
    assert world.status.state == "waiting"
    assert world.status.waiting_for == f"{CONTROL}, {BOUNDARIES}, of another pipeline"
    where.admin().create([TopicSettings(BOUNDARIES, 1), TopicSettings(CONTROL, 1)])
    wait_until(lambda: found == [True], 10, "they are there")
    shown = world.status.shown()
    assert (shown["state"], shown["waiting_for"]) == ("starting", None)


def test_who_is_told_to_stop_waits_no_longer() -> None:
    world = World("")
    found = world.awaits()
    wait_until(lambda: world.status.waiting_for, 10, "it waits")
    world.stopping.set()
    wait_until(lambda: found == [False], 10, "it ends")


def test_a_cluster_that_does_not_answer_is_not_waited_for() -> None:
    world = World("east")
    world.east.is_silent = True
    assert world.bound.await_topics(world.status)
    assert [each["cluster"] for each in world.warned] == ["east"]


def test_each_input_is_read_where_it_is() -> None:
    world = World("east")
    lock = threading.Condition()
    own = next(name for name in world.pipeline.inputs(world.stage) if name != "speeds")
    assert list(world.bound.elsewhere.items()) == [("speeds", world.east)]
    readers = [world.bound.open(stream, lock) for stream in (own, "speeds")]
    assert [type(reader) for reader in readers] == [BoundaryReader, DistantReader]
    hearing = world.bound.open_control()
    assert hearing.poll() == []
    wait_until(lambda: world.east.requests > 0, 10, "it is asked for there")
    contact = world.bound.open_contact()
    assert contact.answers()
    for reader in readers:
        reader.close()
    hearing.close()
    contact.close()


def test_where_all_is_on_the_own_cluster_nothing_is_elsewhere() -> None:
    assert World("").bound.elsewhere == {}
