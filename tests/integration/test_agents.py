"""Agents of two participants as processes on a real broker: a stage is sold in a rush and comes
home, whoever is killed, at each crash point. Ingestion and nodes are stand-ins, which follow the
log of moves as real ones do; so are the brokers of contracts, which are their own in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.protocol.federation.movements import EndReason, Movement, MovementState
from harness.agent_processes import AgentProcesses
from harness.trading_world import CALM

pytestmark = pytest.mark.integration


class World(AgentProcesses):
    """Its agents are processes."""

    def seen(self) -> str:
        ledger = self.ledger()
        seen = f"{ledger.unsettled()} unsettled, {ledger.postings}, {self.book_ignored()}"
        return f"runs on {self.runs_on()}, {self.movements()}\n{seen}"

    def book_ignored(self) -> dict[str, int]:
        with closing(self.book.reader()) as reader:
            reader.read_to_end()
            return dict(reader.ignored)

    def running(self) -> list[Movement]:
        return [each for each in self.movements() if each.state is MovementState.RUNNING]


@pytest.fixture
def world(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[World]:
    made = World.on(kafka, topic_prefix, tmp_path)
    made.agree()
    for name in ("north", "south"):
        made.start_broker(name)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("who", "point"),
    [
        pytest.param("", "", marks=pytest.mark.nightly),
        pytest.param("north", "agent.move_due", marks=pytest.mark.nightly),
        ("north", "agent.move_written"),
        pytest.param("north", "ledger.entry_due", marks=pytest.mark.nightly),
        pytest.param("north", "ledger.entry_written", marks=pytest.mark.nightly),
        # by day: a contract's broker dies there, test_contract_broker.py
        pytest.param("south", "ledger.entry_written", marks=pytest.mark.nightly),
    ],
)
def test_a_rush_sells_the_stage_and_calm_brings_it_home_whoever_is_killed(
    world: World, kafka: str, monkeypatch: pytest.MonkeyPatch, who: str, point: str
) -> None:
    with world.in_a_rush(kafka, monkeypatch, who, point):
        world.wait(lambda: bool(world.running()) and world.runs_on() == "south.0", "it is sold")
        world.wait(
            lambda: any(posting.amount_nano for posting in world.ledger().postings), "it is paid"
        )
        world.rate = CALM
        world.wait(lambda: not world.running() and world.runs_on() == "north.0", "it is home")
    over = [each for each in world.movements() if each.state is MovementState.OVER]
    assert {each.why for each in over} == {EndReason.RECALLED}
    assert all(15 <= each.price <= 40 for each in over)
    balances = world.balances()
    assert sum(balances.values()) == 0
    assert balances["south"] > 0
    assert world.ledger().disputes == []
