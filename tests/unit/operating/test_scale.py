"""``anabranch scale``: what it sees, what was decided, and what would be decided now."""

from __future__ import annotations

import itertools

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import topic_settings
from anabranch.operating.scale import LoadView, look
from anabranch.pipeline.model import Scaling
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Move, NodeReport, ReplicaLoad
from anabranch.protocol.errors import ConfigurationError
from anabranch.streams.placement import append_decision
from harness.control_topics import say
from harness.plain_pipelines import pipeline, stage

HOME, POOL = "north.0", "north.7"


class World:
    """Two stages on one node, and a node of the pool."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        self.pipeline = pipeline(
            stage("slow"),
            stage("light"),
            named_nodes={POOL: []},
            scaling=Scaling(pool=[POOL], above_permille=700, for_ms=3_000, rest_ms=60_000),
        )
        names = self.pipeline.topic_names
        self.log.admin().create(
            [
                topic_settings("placement", names.placement()),
                *(topic_settings("control", names.node_reports(node)) for node in (HOME, POOL)),
            ]
        )
        self.busy = {"slow": 200, "light": 200}

    def look(self) -> LoadView:
        """Look, while both nodes report."""
        rounds = itertools.count()

        def waiting() -> bool:
            self.clock.advance(250)
            if next(rounds) % 4 == 0:
                loads = tuple(
                    ReplicaLoad(name, "0", "running", True, False, busy, 7, 0, need_permille=busy)
                    for name, busy in self.busy.items()
                )
                say(
                    self.log,
                    self.pipeline,
                    NodeReport(HOME, 0, 2, loads),
                    NodeReport(POOL, 0, 2),
                )
            return True

        return look(self.log, self.pipeline, self.clock, waiting)


def test_without_load_there_is_nothing_to_do() -> None:
    found = World().look()
    assert found.would == ()
    nodes = found.shown["nodes"]
    assert (nodes[HOME]["state"], nodes[HOME]["busy_permille"]) == ("alive", 400)
    assert (nodes[POOL]["is_pool"], nodes[POOL]["replicas"]) == (True, [])


def test_what_would_be_moved_is_named_and_nothing_is_written() -> None:
    """Also where the manager rests."""
    world = World()
    world.busy["slow"] = 900
    found = world.look()
    assert [(each.label, each.target) for each in found.would] == [("slow.0", POOL)]
    placement = TopicPartition(world.pipeline.topic_names.placement(), 0)
    assert world.log.partition(placement).end == 0


def test_what_was_decided_is_listed() -> None:
    world = World()
    placement = TopicPartition(world.pipeline.topic_names.placement(), 0)
    move = Move("slow", "0", POOL, 9, only_from=HOME, cause="overload", because="it is slow")
    append_decision(world.log, placement, move, "move")
    (event,) = world.look().shown["events"]
    assert (event["label"], event["source"], event["because"]) == ("slow.0", HOME, "it is slow")


def test_a_file_without_the_section_says_what_to_add() -> None:
    world = World()
    world.pipeline = world.pipeline.model_copy(update={"scaling": None})
    with pytest.raises(ConfigurationError, match=r"Add one, as scaling: \{nodes: \[local\.7\]\}"):
        world.look()
