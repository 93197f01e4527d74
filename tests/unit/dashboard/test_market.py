"""The market of a federation as the page shows it."""

from __future__ import annotations

import json
from dataclasses import replace

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec import federation_records
from anabranch.dashboard.market import Offers, market_of
from harness.federations import FederationWorld
from harness.markets import CONTRACT, DAY_MS, answer, offer, started

BEGIN_MS = 5 * DAY_MS


def test_the_market_shows_contracts_movements_and_balances() -> None:
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


def test_offers_are_shown_as_they_pass_if_their_speaker_signed_them() -> None:
    world = FederationWorld(LocalEventLog(VirtualClock(BEGIN_MS)))
    topic = world.topics.offers("north-south")
    world.make("offers", topic)
    reader = world.reader()
    reader.read_to_end()
    offers = Offers(world.log, world.topics, reader.verify)
    offers.read(["north-south", "not there yet"])
    assert offers.shown() == []

    def say(by: str, statement: object) -> None:
        signature = world.keys[by].sign(statement)  # type: ignore[arg-type]
        world.write(topic, federation_records.encode(statement, signature))  # type: ignore[arg-type]

    say("north", offer())
    say("south", answer())
    say("south", answer(2))
    say("south", offer(3))
    say("north", offer(contract_id="another"))
    world.write(topic, b"rubbish", None)
    offers.read(["north-south"])
    assert [(row["what"], row["by"], row["text"]) for row in reversed(offers.shown())] == [
        ("offer", "north", "north.a: 10 units, up to 950"),
        ("answer", "south", "north.a: 10 units at 900"),
        ("answer", "south", "north.a: 10 units at 900"),
    ]
    offers.close()
    reader.close()
