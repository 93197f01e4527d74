"""The market's demo: its files, its contract, and its words."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.federation.contract_file import load_contract
from anabranch.federation.tables import ledgers_of, movements_of
from anabranch.pipeline.file import load
from anabranch.protocol.federation.costs import QueueCost
from anabranch.protocol.federation.stage_moves import reason_against
from examples.market.demo import TERMS, ended_well, gains, waiting_micro
from harness.trading_world import TradingWorld

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "market"
BEGINS_MS = 1_796_126_400_000
"""2026-12-01 12:00 UTC."""


def test_both_may_trade_under_the_contract() -> None:
    contract = load_contract(TERMS)
    north, south = (load(EXAMPLES / f"{name}.yaml") for name in ("north", "south"))
    assert north.federation is not None
    assert south.federation is not None
    assert list(south.federation.hosts) == [north.name]
    assert reason_against(contract, "north", {"south": ["north.speeds"]}, ()) == ""
    assert reason_against(contract, "south", {}, ["north.speeds"]) == ""
    for region, policy in (("north", north.federation.agent), ("south", south.federation.agent)):
        assert policy is not None
        cost = QueueCost(policy.capacity_units, policy.scale_micro)
        assert [waiting_micro(region, units) for units in (0, 50, 400)] == [
            cost(units) for units in (0, 50, 400)
        ]


def test_the_stages_are_those_of_the_federation() -> None:
    federations = EXAMPLES.parent / "federation" / "stages.py"
    assert (EXAMPLES / "stages.py").read_text() == federations.read_text()


def test_a_rush_gives_what_stands_beside_it(tmp_path: Path) -> None:
    """Agents and brokers of contracts as they are; ingestion and nodes are stand-ins."""
    for name in ("federation", "market"):
        shutil.copytree(EXAMPLES.parent / name, tmp_path / name)
    clock, rush = VirtualClock(BEGINS_MS), EXAMPLES / "rush"
    folder = tmp_path / "market"
    world = TradingWorld(LocalEventLog(clock), clock, folder, lambda: clock.advance(50))
    for party in ("north", "south"):
        world.book.say(party, load_contract(TERMS))
    world.start("north", "south")
    for load_of in rows(rush / "load.jsonl"):
        world.rate, world.souths_rate = load_of["north"], load_of["south"]
        world.lasts(load_of["for_s"] * 1_000)
    with closing(world.book.reader()) as reader:
        reader.read_to_end()
        movements, ledger = movements_of(reader), ledgers_of(reader)
    world.close()
    assert movements == rows(rush / "movements.expected.jsonl")
    assert ledger["contracts"] == rows(rush / "ledger.expected.jsonl")
    assert ended_well(movements)
    assert all(min(gains(row)) > 0 for row in movements)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_movement_pays_where_both_sides_gain() -> None:
    assert gains({"units": 400, "price_micro": 10}) == (4_000, 3_606)
    north, south = gains({"units": 400, "price_micro": 20})
    assert (north, south) == (0, 7_606)
    assert min(gains({"units": 100, "price_micro": 6})) < 0, "at home it costs less than that"
    assert gains({"units": 450, "price_micro": 10})[0] > 10_000, "more than there is room for"


def test_one_movement_may_end_in_silence_under_load_and_the_others_are_recalled() -> None:
    recalled, silent, returned = ({"why": why} for why in ("recalled", "silent", "returned"))
    assert ended_well([recalled])
    assert ended_well([silent, recalled])
    assert ended_well([silent])
    assert not ended_well([])
    assert not ended_well([silent, silent])
    assert not ended_well([recalled, returned])
    assert not ended_well([recalled, {"why": None}])
