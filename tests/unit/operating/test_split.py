"""``anabranch split``: what is written, when it has come to its end, and what is rejected."""

from __future__ import annotations

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec import control_records
from anabranch.codec.catalog import topic_settings
from anabranch.operating.split import SplitCommand
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Move, SplitStep, Step
from anabranch.protocol.errors import AnabranchError, ConfigurationError
from anabranch.protocol.stage.splitting import SplitPhase
from anabranch.streams.placement import PlacementReader, append_decision
from harness.plain_pipelines import pipeline, stage


class World:
    """A stage that may be split, and a node beside its own."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        halves = [stage(name, parent="s") for name in ("s.0", "s.1")]
        self.pipeline = pipeline(stage("s"), *halves, named_nodes={"north.2": []})
        self.log.admin().create(
            [
                topic_settings("placement", "p.placement"),
                *(topic_settings("boundaries", f"p.{name}.boundaries") for name in ("s", "s.1")),
            ]
        )

    def command(self, shard: str = "s", node: str = "") -> SplitCommand:
        return SplitCommand(self.log, self.pipeline, shard, node, self.clock)

    def answer(self, step: Step, attempt: int, reason: str = "") -> None:
        at = TopicPartition("p.placement", 0)
        append_decision(self.log, at, SplitStep("s", step, 0, attempt, reason), "answer")

    def reader(self) -> PlacementReader:
        made = PlacementReader(self.log, "p.placement", self.pipeline.places())
        made.read_to_end()
        return made


@pytest.fixture
def world() -> World:
    return World()


def test_a_split_is_done_when_the_shard_has_confirmed_it(world: World) -> None:
    command = world.command()
    command.do()
    assert world.reader().splits.of("s").phase is SplitPhase.WANTED
    assert not command.is_done(200)
    world.answer(Step.CONFIRMED, world.reader().splits.of("s").number)
    assert command.is_done(0)
    with pytest.raises(ConfigurationError, match=r"not split: s was split: split s\.0 or s\.1"):
        command.do()


def test_the_upper_half_is_placed_before_the_split(world: World) -> None:
    world.command(node="north.2").do()
    reader = world.reader()
    assert [reader.places.node_of(label) for label in ("s.0.0", "s.1.0")] == ["north.0", "north.2"]
    partition = world.log.partition(TopicPartition("p.placement", 0))
    kinds = [type(control_records.decode(partition.at(n).value)) for n in range(partition.end)]
    assert kinds == [Move, SplitStep], "the move is before it"
    world.command(node="north.2").do()
    assert partition.end == 2, "it is one"


def test_what_is_withdrawn_says_why(world: World) -> None:
    command = world.command()
    command.do()
    world.answer(Step.WITHDRAWN, world.reader().splits.of("s").number, "bucket 7 is another")
    with pytest.raises(AnabranchError, match="nothing has changed: bucket 7 is another"):
        command.is_done(0)
    command.do()
    assert world.reader().splits.of("s").phase is SplitPhase.WANTED, "it may be wanted again"


@pytest.mark.parametrize(
    ("shard", "node", "why"),
    [
        ("t", "", "not split: there is no stage t"),
        ("s.0", "", "not split: the pipeline file names no halves of s.0"),
        ("s", "north.9", "not moved: there is no node north.9"),
    ],
)
def test_what_cannot_be_split_leaves_no_record(
    world: World, shard: str, node: str, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        world.command(shard, node).do()
    assert world.reader().splits.of(shard).phase is SplitPhase.NONE
