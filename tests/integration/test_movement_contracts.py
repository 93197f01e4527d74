"""A movement contract on a real broker: the agents of both sides are processes, and are killed at
their crash points. Ingestion and nodes are stand-ins, which follow the log of moves as real ones
do; so are the brokers of contracts, which are their own in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.protocol.federation.plan_switching import Word
from harness.agent_processes import AgentProcesses
from harness.plan_world import BUSY, PlanWorld
from harness.trading_world import CALM

pytestmark = [pytest.mark.integration, pytest.mark.nightly]


class World(AgentProcesses, PlanWorld):
    """Its agents are processes."""


@pytest.fixture
def world(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[World]:
    made = World.on(kafka, topic_prefix, tmp_path)
    made.agree_on_plans(deadline_ms=30_000)
    for name in ("north", "south"):
        made.start_broker(name)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("who", "point"),
    [
        ("", ""),
        ("north", "ledger.entry_due"),
        ("north", "ledger.entry_written"),
        ("north", "agent.move_due"),
        ("north", "agent.move_written"),
        ("south", "ledger.entry_written"),
    ],
)
def test_a_rush_switches_the_plan_and_a_busy_sender_switches_it_back_whoever_is_killed(
    world: World, kafka: str, monkeypatch: pytest.MonkeyPatch, who: str, point: str
) -> None:
    with world.in_a_rush(kafka, monkeypatch, who, point):
        world.wait(lambda: world.is_under(1), "south runs the query")
        in_a_rush = len(world.plan_ledger().postings)
        world.wait(lambda: len(world.plan_ledger().postings) > in_a_rush + 3, "it is paid")
        world.rate, world.souths_rate = CALM, BUSY
        world.wait(lambda: world.is_under(0), "it is at home again")
    ledger = world.plan_ledger()
    assert [each.plan for each in ledger.switch.changes] == [0, 1, 0]
    assert {each.why for each in ledger.switch.changes[1:]} == {"switched"}
    assert sum(ledger.balances().values()) == 0
    assert ledger.balances()["south"] > 0
    assert ledger.disputes == []
    assert len({each.reason for each in ledger.postings}) == len(ledger.postings)
    assert world.words(Word.FELL_BACK, Word.FAILED) == []
