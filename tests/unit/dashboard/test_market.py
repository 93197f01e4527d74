"""The market of a federation as the page shows it."""

from __future__ import annotations

import json
from dataclasses import replace

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.dashboard.market import market_of
from harness.federations import FederationWorld
from harness.markets import CONTRACT, DAY_MS, answer, started

BEGIN_MS = 5 * DAY_MS


def test_who_runs_whose_stage_under_which_bound() -> None:
    world = FederationWorld(LocalEventLog(VirtualClock(BEGIN_MS)))
    world.say("north", CONTRACT)
    world.say("south", CONTRACT)
    signed = replace(started(answer()), signature=world.keys["south"].sign(answer()))
    world.say("north", signed)
    reader = world.reader()
    reader.read_to_end()
    found = market_of(reader, BEGIN_MS)
    (contract,) = found["contracts"]
    assert (contract["buyer"], contract["seller"], contract["state"]) == (
        "north",
        "south",
        "active",
    )
    assert (contract["price_lowest_micro"], contract["price_highest_micro"]) == (800, 1_000)
    (movement,) = found["movements"]
    assert (movement["task"], movement["run_by"], movement["price_micro"]) == (
        "north.a",
        "south",
        900,
    )
    assert found["participants"] == [
        {"participant": "north", "runs_for_others": 0, "runs_elsewhere": 10, "balance": "0"},
        {"participant": "south", "runs_for_others": 10, "runs_elsewhere": 0, "balance": "0"},
    ]
    json.dumps(found, allow_nan=False)
    reader.close()
