"""A stage is sold from hand to hand and comes home the same way, on real Spark and a real broker:
three owners, each with an agent and a contract broker, and three nodes for the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from harness.waiting import wait_until
from moves import judgement
from moves.deployment import NORTH
from moves.three_owners import CALM, LOAD_OF_OWN, RUSH, STEP_S, WEST, ThreeOwners

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

PRICES: Final = (6, 20)
TASK: Final = "north.speeds"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ThreeOwners]:
    made = ThreeOwners(tmp_path)
    yield made
    made.close()


def test_a_stage_is_sold_on_and_comes_home(world: ThreeOwners) -> None:
    world.until("north.0", {}, "north runs its stage")
    world.owners.sign()
    world.traffic.at_once = RUSH
    world.until("south.0", {"north-south": "south.0"}, "north sells it")
    world.own.at_once = LOAD_OF_OWN
    both = {"north-south": "west.0", "south-west": "west.0"}
    world.until("west.0", both, "south sells it on")
    paid(world, lambda balances: balances.get(WEST, 0) > 0, "west is paid")
    world.own.at_once = CALM
    world.until("south.0", {"north-south": "south.0"}, "south has it back")
    world.traffic.at_once = CALM
    world.until("north.0", {}, "north has it back")
    sent, found = world.judged()
    assert judgement.wrong_results(found) == []
    movements, ledger = world.book()
    assert {row["why"] for row in movements} == {"recalled"}
    assert {(row["task"], row["contract"]) for row in movements} == {
        (TASK, "north-south"),
        (TASK, "south-west"),
    }
    assert all(PRICES[0] <= row["price_micro"] <= PRICES[1] for row in movements)
    balances = ledger["balances_nano"]
    assert ledger["sum_nano"] == sum(balances.values()) == 0
    assert balances[NORTH] < 0 < balances[WEST]
    assert [row["disputes"] for row in ledger["contracts"]] == [0, 0]
    print(f"{sent} sightings, {found}; balances {balances}; {movements}")


def paid(world: ThreeOwners, holds: Callable[[dict[str, int]], bool], what: str) -> None:
    wait_until(lambda: holds(world.book()[1]["balances_nano"]), STEP_S, what, every_s=1.0)
