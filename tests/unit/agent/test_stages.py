"""What becomes of a stage whose seller has failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.protocol.federation.audit import Fault, Finding, commitment, sample
from anabranch.protocol.federation.contract_book import Change, ContractChange, ContractState
from anabranch.protocol.federation.holdings import Place
from anabranch.protocol.federation.ledger import (
    DISPUTES_MAX,
    AuditCommitted,
    Audited,
    Metered,
)
from anabranch.protocol.federation.movements import Movement, MovementState, Why
from harness.trading_world import BUCKET_MS, CALM, METER_MS, RUSH, SAMPLE_PPM, TradingWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TradingWorld]:
    """North's stage is at south, and has been for a few slots."""
    clock = VirtualClock(1_200_000_000)
    made = TradingWorld(LocalEventLog(clock), clock, tmp_path, lambda: clock.advance(50))
    made.agree()
    made.start("north", "south")
    for _ in range(40):
        made.round()
    made.rate = RUSH
    made.until(lambda: made.place() is Place.AWAY, "the stage is sold")
    for _ in range(100):
        made.round()
    yield made
    made.close()


def is_home(world: TradingWorld) -> bool:
    return world.place() is Place.HERE


def ended(world: TradingWorld) -> Movement:
    """The only movement: the stage runs at home again, and nothing is left out."""
    world.until(lambda: is_home(world), "the ledger has it", 600)
    world.until(lambda: world.runs_on() == "north.0", "it runs at home")
    (movement,) = world.movements()
    assert movement.state is MovementState.OVER
    assert sum(world.balances().values()) == 0
    made = set().union(*(node.closed for node in world.nodes.values()))
    assert made >= set(range(min(made), world.sources["north"].upto - 4))
    return movement


def suspended_by(world: TradingWorld) -> tuple[str, ...]:
    booked = world.contract().booked
    assert booked is not None
    return booked.suspended_by


def penalties(world: TradingWorld) -> list[tuple[str, str]]:
    return [
        (each.payer, each.reason.split(":")[0])
        for each in world.ledger().postings
        if "period" not in each.reason
    ]


def hostile_south_says(world: TradingWorld, units: int) -> None:
    """Each slot that is over, instead of south's own agent."""
    (movement,) = world.movements()
    last_slot = -1

    def round_() -> None:
        nonlocal last_slot
        slot = world.clock.now_ms() // METER_MS - 1
        if slot > last_slot:
            last_slot = slot
            world.book.say(
                "south", Metered("north-south", movement.movement_id, "south", slot, units)
            )

    world.before_round = round_


def test_a_seller_that_is_heard_and_makes_nothing_loses_the_stage_and_pays(
    world: TradingWorld,
) -> None:
    world.nodes["south.0"].is_stuck = True
    stuck_ms = world.clock.now_ms()
    world.until(lambda: world.runs_on() == "north.0", "it runs at home", 300)
    assert world.clock.now_ms() - stuck_ms < 10_000
    assert ended(world).why is Why.SILENT
    assert [(payer, reason.split()[0]) for payer, reason in penalties(world)] == [
        ("south", "silent")
    ]
    world.until(lambda: suspended_by(world) == ("north",), "nothing new moves")


def test_a_seller_that_made_nothing_pays_though_it_is_cheaper_at_home_before_that_is_proved(
    world: TradingWorld,
) -> None:
    world.kill("south")
    hostile_south_says(world, RUSH)
    world.nodes["south.0"].is_stuck = True
    world.until(lambda: world.runs_on() == "north.0", "it runs at home", 300)
    assert world.place() is Place.AWAY, "nothing is proved"
    world.rate = CALM
    world.until(lambda: world.place() is Place.COMING, "it is recalled", 300)
    world.until(lambda: world.place() is not Place.COMING, "it is over", 300)
    assert ended(world).why is Why.SILENT


def test_a_seller_that_makes_too_little_loses_the_stage_and_pays(world: TradingWorld) -> None:
    world.nodes["south.0"].slow_since = world.sources["north"].upto
    world.until(lambda: world.runs_on() == "north.0", "it runs at home", 400)
    assert ended(world).why is Why.SILENT
    assert [payer for payer, _ in penalties(world)] == ["south"]


def test_a_seller_that_makes_nothing_and_measures_zeros_is_not_alive(world: TradingWorld) -> None:
    world.kill("south")
    hostile_south_says(world, 0)
    world.nodes["south.0"].is_stuck = True
    world.until(lambda: world.runs_on() == "north.0", "it runs at home", 300)
    assert ended(world).why is Why.SILENT
    assert penalties(world) == [("south", "made nothing")]
    world.until(lambda: suspended_by(world) == ("north",), "nothing new moves")


def test_a_seller_that_claims_more_than_it_made_gets_no_more_and_no_other_stage(
    world: TradingWorld,
) -> None:
    world.kill("south")
    hostile_south_says(world, 3 * RUSH)
    world.until(lambda: world.runs_on() == "north.0", "it runs at home", 600)
    assert ended(world).why is Why.WRONG
    assert penalties(world) == [], "it is one word against the other"
    assert len(world.ledger().disputes) >= DISPUTES_MAX
    world.until(lambda: suspended_by(world) == ("north",), "nothing new moves")


def test_what_the_auditor_finds_ends_the_movement_and_suspends_the_contract_once(
    world: TradingWorld,
) -> None:
    (movement,) = world.movements()
    name, number = movement.movement_id, bytes(range(16))
    fixed = AuditCommitted("north-south", name, "auditor", commitment(number), BUCKET_MS)
    world.book.say("auditor", fixed)
    world.lasts(20_000)
    assert world.place() is Place.AWAY
    upto = world.sources["north"].upto
    drawn = sample(number, name, range(upto - 70, upto), SAMPLE_PPM)
    found = (Finding(drawn[0], Fault.WRONG_RESULT),)
    world.book.say("auditor", Audited("north-south", name, "auditor", number, found))
    world.until(lambda: suspended_by(world) == ("north",), "nothing new moves")
    assert ended(world).why is Why.WRONG
    assert penalties(world) == [("south", "wrong results")]
    now_ms = world.clock.now_ms()
    world.book.say(
        "north", ContractChange("north-south", 1, "north", Change.RESUMED, now_ms, now_ms)
    )
    for _ in range(20):
        world.round()
    booked = world.contract().booked
    assert booked is not None
    assert booked.state is ContractState.ACTIVE, "an operator has resumed it"
    world.until(lambda: world.place() is Place.AWAY, "it is sold again")


def test_a_pause_within_what_was_promised_is_no_failure(world: TradingWorld) -> None:
    world.nodes["south.0"].is_stuck = True
    world.lasts(3_000)
    world.nodes["south.0"].is_stuck = False
    world.lasts(6_000)
    assert world.place() is Place.AWAY
    assert world.runs_on() == "south.0"
    assert suspended_by(world) == ()
