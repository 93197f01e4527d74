"""``anabranch move``: what is written, when it has come to its end, and what is rejected."""

from __future__ import annotations

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec import control_records
from anabranch.codec.catalog import topic_settings
from anabranch.operating.move import MoveCommand
from anabranch.pipeline.model import Federation, HaMode
from anabranch.ports import LogWriter, TopicPartition
from anabranch.protocol.control.records import Move, SplitStep, Step
from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    OutcomeUnknown,
    Unavailable,
)
from anabranch.protocol.log.records import EpochStarted
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.placement import PlacementReader, append_decision
from harness.plain_pipelines import pipeline, stage


class World:
    """A stage of two replicas, on two of four nodes."""

    def __init__(self, ha: HaMode = "active") -> None:
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        self.pipeline = pipeline(
            stage("s", replicas=2, ha=ha), named_nodes={"north.2": [], "north.3": []}
        )
        self.log.admin().create(
            [
                topic_settings("placement", "p.placement"),
                topic_settings("boundaries", "p.s.boundaries"),
            ]
        )

    def begin(self, replica: str, node: str) -> int:
        """Begin a process of the replica on a node."""
        writer = BoundaryWriter(
            self.log,
            "p.s.boundaries",
            ["0", "1"],
            EpochStarted(replica, "f", SeededEntropy(1).token(), node=node),
            self.clock,
        )
        return writer.start()

    def command(self, label: str, node: str) -> MoveCommand:
        return MoveCommand(self.log, self.pipeline, label, node, self.clock)

    def reader(self) -> PlacementReader:
        made = PlacementReader(self.log, "p.placement", self.pipeline.places())
        made.read_to_end()
        return made


@pytest.fixture
def world() -> World:
    return World()


def test_a_move_is_over_when_the_replica_begins_on_its_new_node(world: World) -> None:
    world.begin("0", "north.0")
    command = world.command("s.0", "north.2")
    command.do()
    assert command.runs_on == "north.0"
    assert world.reader().places.node_of("s.0") == "north.2"
    assert not command.is_done(1_000)
    world.begin("1", "north.2")
    assert not command.is_done(1_000), "it is another replica"
    world.begin("0", "north.0")
    assert not command.is_done(1_000), "the old node began again"
    world.begin("0", "north.2")
    assert command.is_done(0)
    world.command("s.0", "north.3").do()


def test_a_move_under_way_can_only_be_cancelled(world: World) -> None:
    world.begin("0", "north.0")
    world.command("s.0", "north.2").do()
    with pytest.raises(
        ConfigurationError,
        match=(
            r"s\.0 is on its way from node north\.0 to node north\.2: .*anabranch move s\.0"
            r" north\.0"
        ),
    ):
        world.command("s.0", "north.3").do()
    back = world.command("s.0", "north.0")
    back.do()
    assert back.is_done(0)
    assert world.reader().places.of_node("north.0") == ["s.0"]


def test_a_replica_of_a_shard_that_was_split_cannot_move(world: World) -> None:
    """It begins on no node any more, so nobody waits for it there."""
    at = TopicPartition("p.placement", 0)
    append_decision(world.log, at, SplitStep("s", Step.WANTED, 0), "split")
    for node in ("north.2", "north.0"):
        world.command("s.0", node).do()
    confirmed = SplitStep("s", Step.CONFIRMED, 0, world.reader().splits.of("s").number)
    append_decision(world.log, at, confirmed, "split")
    with pytest.raises(ConfigurationError, match=r"of its halves, s\.0 and s\.1"):
        world.command("s.0", "north.2").do()
    world.command("s.0", "").do()


def test_a_move_that_is_withdrawn_is_waited_for_no_longer(world: World) -> None:
    world.begin("0", "north.0")
    command = world.command("s.0", "north.2")
    command.do()
    at = TopicPartition("p.placement", 0)
    back = Move("s", "0", "north.0", 0, withdrawn="the store is away")
    append_decision(world.log, at, back, "move")
    with pytest.raises(
        AnabranchError, match=r"was withdrawn; it stays on node north\.0: the store is away"
    ):
        command.is_done(60_000)
    again = world.command("s.0", "north.2")
    again.do()
    assert not again.is_done(0), "the next move is another one"


def test_where_nobody_ever_ran_nothing_is_under_way(world: World) -> None:
    world.command("s.0", "north.2").do()
    command = world.command("s.0", "north.3")
    command.do()
    assert (command.runs_on, command.is_done(0)) == ("", False)


def test_a_replica_is_removed_and_added(world: World) -> None:
    world.begin("0", "north.0")
    command = world.command("s.0", "")
    command.do()
    assert command.is_done(0)
    assert world.reader().places.node_of("s.0") == ""
    with pytest.raises(ConfigurationError, match=r"not removed: it is the last replica of s"):
        world.command("s.1", "").do()
    world.command("s.0", "north.3").do()
    assert world.reader().places.of_node("north.3") == ["s.0"]


def test_the_processes_of_a_passive_stage_are_one_replica() -> None:
    world = World("passive")
    world.begin("0", "north.0")
    command = world.command("s.1", "north.2")
    command.do()
    assert command.is_done(0)


@pytest.mark.parametrize(
    ("label", "node", "says"),
    [
        ("t.0", "north.2", r"not moved: there is no replica t\.0"),
        ("s.0", "south.0", r"not moved: there is no node south\.0"),
        ("s.0", "north.0", r"not moved: s\.0 is on node north\.0"),
        ("s.0", "north.1", r"not moved: node north\.1 has s\.1"),
    ],
    ids=["replica", "node", "there", "peer"],
)
def test_an_impossible_move_is_rejected_before_anything_is_written(
    world: World, label: str, node: str, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        world.command(label, node).do()
    assert world.log.reader().offsets(TopicPartition("p.placement", 0)) == (0, 0)


def test_a_partner_gets_a_stage_under_a_contract_and_not_by_command(world: World) -> None:
    partners = Federation(name="tolls", participant="north", partners={"south": ["s"]})
    of = world.pipeline.model_copy(update={"federation": partners})
    with pytest.raises(ConfigurationError, match=r"node south.0 is south's: the agent moves"):
        MoveCommand(world.log, of, "s.0", "south.0", world.clock).do()


def test_the_second_of_two_simultaneous_moves_is_rejected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both commands read the log before either wrote."""
    first = world.command("s.1", "north.2")
    append = MoveCommand._append

    def meanwhile(self: MoveCommand) -> None:
        if self is not first:
            first.do()
        append(self)

    monkeypatch.setattr(MoveCommand, "_append", meanwhile)
    with pytest.raises(ConfigurationError, match=r"not moved: node north\.2 has s\.1"):
        world.command("s.0", "north.2").do()
    reader = world.reader()
    assert (reader.places.of_node("north.2"), reader.ignored) == (["s.1"], 1)


def test_an_unknown_outcome_is_reported_and_the_command_may_be_given_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin("0", "north.0")
    writer = world.log.writer

    def broken() -> LogWriter:
        made = writer()
        flush = made.flush

        def unknown() -> list[object]:
            flush()
            raise OutcomeUnknown("timed out")

        monkeypatch.setattr(made, "flush", unknown)
        return made

    monkeypatch.setattr(world.log, "writer", broken)
    with pytest.raises(Unavailable, match="not known whether the move was written"):
        world.command("s.0", "north.2").do()
    with pytest.raises(ConfigurationError, match=r"s\.0 is on node north\.2"):
        world.command("s.0", "north.2").do()


def test_invalid_records_are_no_moves(world: World) -> None:
    at, writer = TopicPartition("p.placement", 0), world.log.writer()
    for value in (None, b"", b"forged", control_records.encode(Move("s", "0", "nowhere", 0))):
        writer.send(at, value)
    writer.flush()
    reader = world.reader()
    assert (reader.ignored, reader.places.of_node("north.0")) == (4, ["s.0"])
    reader.close()


def test_a_broker_without_the_pipeline_is_named() -> None:
    world = World()
    world.log = LocalEventLog(world.clock)
    with pytest.raises(ConfigurationError, match=r"pipeline p has not run there; .* --kafka"):
        world.command("s.0", "north.2").do()
