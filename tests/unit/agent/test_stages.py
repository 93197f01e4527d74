"""Tests of a stage whose seller has failed, and of a resold stage."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.agent.stage_logs import StageLogs
from anabranch.codec import control_records
from anabranch.protocol.control.records import Move
from anabranch.protocol.errors import DataMissing
from anabranch.protocol.federation.audit import Fault, Finding, commitment, sample
from anabranch.protocol.federation.contract_book import Change, ContractChange, ContractState
from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.ledger import (
    DISPUTES_MAX,
    AuditCommitted,
    Audited,
    Metered,
)
from anabranch.protocol.federation.movements import EndReason, Movement, MovementState, Placed
from anabranch.protocol.log.unread_logs import OPEN_AGAIN_MS
from harness.emptied_logs import emptied
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
    made.until(lambda: made.place() is TaskPlace.AWAY, "the stage is sold")
    for _ in range(100):
        made.round()
    yield made
    made.close()


def is_home(world: TradingWorld) -> bool:
    return world.place() is TaskPlace.HERE


def ended(world: TradingWorld) -> Movement:
    """Return the only movement after its end: the stage runs at home again, and nothing is left
    out.
    """
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


@pytest.mark.parametrize("is_other_width", [False, True])
def test_a_hosted_pipeline_that_cannot_be_read_holds_up_no_other(
    world: TradingWorld, is_other_width: bool
) -> None:
    """The hosted pipeline has not run yet, or has buckets of another width than its file here."""
    world.agree()
    world.start("north", "south")
    agent = world.agents["south"]
    stages, north = agent._stages, world.pipelines["north"]
    assert stages is not None
    other = north.model_copy(update={"bucket_ms": 300} if is_other_width else {"name": "west"})
    stages._hosted = {**stages._hosted, "west": other}
    stages._logs.drop("north.speeds")
    for task in ("west.speeds", "north.speeds"):
        stages.host(task)
    world.lasts(3_000)
    assert str(agent.status.waiting_for).startswith("west.speeds: ")
    assert stages.workloads()["north.speeds"].runs_on != ""


def lost(*_: object) -> None:
    """Fail as a log whose first records are deleted."""
    raise DataMissing("its first records are deleted")


def test_a_hosted_pipeline_whose_log_lost_records_is_read_anew(
    world: TradingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner cannot end the agent, again after each start."""
    world.agree()
    world.start("north", "south")
    agent = world.agents["south"]
    stages = agent._stages
    assert stages is not None
    before = stages.workloads()["north.speeds"]

    monkeypatch.setattr(before, "poll", lost)
    agent.step()
    assert "north.speeds: its first records are deleted" in str(agent.status.waiting_for)
    world.lasts(3_000)
    assert agent.status.waiting_for is None
    assert stages.workloads()["north.speeds"] is not before
    assert stages.workloads()["north.speeds"].runs_on != ""


def test_an_own_stage_whose_log_lost_records_stays_where_it_is_until_it_is_read_anew(
    world: TradingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody says meanwhile where it runs: its seller is not blamed."""
    agent = world.agents["north"]
    stages = agent._stages
    assert stages is not None
    before = stages.workloads()["north.speeds"]

    with monkeypatch.context() as patched:
        patched.setattr(StageLogs, "poll", lost)
        world.lasts(5_000)
        assert stages.known_logs("north.speeds") is None
        assert "north.speeds: its first records are deleted" in str(agent.status.waiting_for)
    (movement,) = world.movements()
    assert (movement.state, world.place()) == (MovementState.RUNNING, TaskPlace.AWAY)
    world.lasts(OPEN_AGAIN_MS)
    assert agent.status.waiting_for is None
    assert stages.workloads()["north.speeds"] is not before
    assert (world.place(), stages.workloads()["north.speeds"].runs_on) == (
        TaskPlace.AWAY,
        "south.0",
    )


@pytest.mark.parametrize("name", ["north", "south"])
def test_an_emptied_log_says_nothing_about_where_a_stage_runs(
    world: TradingWorld, name: str
) -> None:
    """The seller may write the stage's stream, and is not the reason why its first records lack."""
    agent = world.agents[name]
    stages = agent._stages
    assert stages is not None
    stages._logs.drop("north.speeds")
    assert isinstance(world.log, LocalEventLog)
    with emptied(world.log, world.pipelines["north"].topic_names.boundaries("speeds")):
        stages.host("north.speeds")
        world.lasts(3_000)
        assert stages.known_logs("north.speeds") is None
        assert "its first records are deleted" in str(agent.status.waiting_for)
    world.lasts(OPEN_AGAIN_MS)
    assert agent.status.waiting_for is None
    assert world.place() is TaskPlace.AWAY
    assert stages.workloads()["north.speeds"].runs_on == "south.0"


def test_a_seller_that_is_heard_and_makes_nothing_loses_the_stage_and_pays(
    world: TradingWorld,
) -> None:
    world.nodes["south.0"].is_stuck = True
    stuck_ms = world.clock.now_ms()
    world.until(lambda: world.runs_on() == "north.0", "it runs at home", 300)
    assert world.clock.now_ms() - stuck_ms < 10_000
    assert ended(world).why is EndReason.SILENT
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
    assert world.place() is TaskPlace.AWAY, "nothing is proved"
    world.rate = CALM
    world.until(lambda: world.place() is TaskPlace.COMING, "it is recalled", 300)
    world.until(lambda: world.place() is not TaskPlace.COMING, "it is over", 300)
    assert ended(world).why is EndReason.SILENT


def test_a_seller_that_claims_more_than_it_made_gets_no_more_and_no_other_stage(
    world: TradingWorld,
) -> None:
    world.kill("south")
    hostile_south_says(world, 3 * RUSH)
    world.until(lambda: world.runs_on() == "north.0", "it runs at home", 600)
    assert ended(world).why is EndReason.WRONG
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
    assert world.place() is TaskPlace.AWAY
    upto = world.sources["north"].upto
    drawn = sample(number, name, range(upto - 70, upto), SAMPLE_PPM)
    found = (Finding(drawn[0], Fault.WRONG_RESULT),)
    world.book.say("auditor", Audited("north-south", name, "auditor", number, found))
    world.until(lambda: suspended_by(world) == ("north",), "nothing new moves")
    assert ended(world).why is EndReason.WRONG
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
    world.until(lambda: world.place() is TaskPlace.AWAY, "it is sold again")


def test_a_pause_within_what_was_promised_is_no_failure(world: TradingWorld) -> None:
    world.nodes["south.0"].is_stuck = True
    world.lasts(3_000)
    world.nodes["south.0"].is_stuck = False
    world.lasts(6_000)
    assert world.place() is TaskPlace.AWAY
    assert world.runs_on() == "south.0"
    assert suspended_by(world) == ()


# ------------------------------------------------------------------ sold on

FULL = 500
"""Rows per second of south's own, of the 600 that it can bear."""
WESTS_FULL = 1_100
"""Rows per second of west's own, of the 1 200 that it can bear."""
ON, FURTHER = "south-west", "west-east"


@pytest.fixture
def three(tmp_path: Path) -> Iterator[TradingWorld]:
    """North's stage is at south, which may sell it on to west."""
    yield from chain(tmp_path, "north", "south", "west")


@pytest.fixture
def four(tmp_path: Path) -> Iterator[TradingWorld]:
    """North's stage is at south, which may sell it on to west, and west to east."""
    yield from chain(tmp_path, "north", "south", "west", "east")


def chain(folder: Path, *participants: str) -> Iterator[TradingWorld]:
    """Yield a world where the first one's stage is at the second, and each may sell it on to the
    next one.
    """
    clock = VirtualClock(1_200_000_000)
    made = TradingWorld(
        LocalEventLog(clock), clock, folder, lambda: clock.advance(50), participants=participants
    )
    for buyer, seller in pairwise(participants):
        made.agree(contract_id=f"{buyer}-{seller}", buyer=buyer, seller=seller)
    made.start(*participants)
    made.lasts(2_000)
    made.rate = RUSH
    made.until(lambda: made.place() is TaskPlace.AWAY, "the stage is sold")
    yield made
    made.close()


def sell_on(world: TradingWorld) -> None:
    world.souths_rate = FULL
    world.until(lambda: world.place("south") is TaskPlace.AWAY, "it is sold on")
    assert world.runs_on() == "west.0"


def seen_to_end(world: TradingWorld) -> None:
    """Every bucket was made, and every ledger is of zero sum."""
    made = set().union(*(node.closed for node in world.nodes.values()))
    assert made >= set(range(min(made), world.sources["north"].upto - 4))
    for buyer, seller in pairwise(world.participants):
        name = f"{buyer}-{seller}"
        assert sum(world.ledger(name).balances().values()) == 0
        assert world.ledger(name).disputes == []


def test_a_stage_is_sold_on_and_comes_back_the_same_way(three: TradingWorld) -> None:
    sell_on(three)
    (movement,), (on,) = three.movements(), three.movements(ON)
    assert (movement.node, on.node) == ("west.0", "")
    three.lasts(12_000)
    three.souths_rate = CALM
    three.until(lambda: three.place("south") is TaskPlace.HERE, "south has it back")
    assert three.runs_on() == "south.0"
    three.lasts(4_000)
    three.rate = CALM
    three.until(lambda: three.place() is TaskPlace.HERE, "north has it back")
    three.until(lambda: three.runs_on() == "north.0", "it runs there")
    three.lasts(12_000)
    assert {each.why for each in (*three.movements(), *three.movements(ON))} == {EndReason.RECALLED}
    assert three.movements()[0].nodes == ("west.0", "south.0")
    assert all(three.ledger(name).balances()["south"] for name in ("north-south", ON))
    assert three.ledger(ON).balances()["west"] > 0
    seen_to_end(three)


def sell_further(world: TradingWorld) -> None:
    """Sell the stage on twice, from hand to hand."""
    sell_on(world)
    world.lasts(6_000)  # west must keep it for its minimum hold
    world.wests_rate = WESTS_FULL
    world.until(lambda: world.place("west") is TaskPlace.AWAY, "it is sold on again", 600)
    assert world.runs_on() == "east.0"


def test_a_stage_is_sold_on_twice_and_comes_back_through_every_hand(four: TradingWorld) -> None:
    sell_further(four)
    nodes = [four.movements(name)[0].node for name in ("north-south", ON, FURTHER)]
    assert nodes == ["east.0", "east.0", ""]
    four.lasts(12_000)
    four.wests_rate = CALM
    four.until(lambda: four.place("west") is TaskPlace.HERE, "west has it back", 600)
    assert four.runs_on() == "west.0"
    four.lasts(4_000)
    four.souths_rate = CALM
    four.until(lambda: four.place("south") is TaskPlace.HERE, "south has it back", 600)
    assert four.runs_on() == "south.0"
    four.lasts(4_000)
    four.rate = CALM
    four.until(lambda: four.place() is TaskPlace.HERE, "north has it back", 600)
    four.until(lambda: four.runs_on() == "north.0", "it runs there")
    four.lasts(12_000)
    sales = [four.movements(name) for name in ("north-south", ON, FURTHER)]
    assert [[each.why for each in sale] for sale in sales] == [[EndReason.RECALLED]] * 3
    assert [sale[0].nodes for sale in sales] == [
        ("west.0", "east.0", "south.0"),
        ("east.0", "west.0"),
        (),
    ]
    for sale, (buyer, seller) in zip(sales, pairwise(four.participants), strict=True):
        balances = four.ledger(f"{buyer}-{seller}").balances()
        assert balances[seller] == -balances[buyer] > 0, "each is paid by its own buyer"
        assert sale[0].ended_by == buyer
    seen_to_end(four)


@pytest.mark.parametrize("when", ["while it leaves", "while it is there", "while it comes"])
def test_a_middleman_that_is_killed_goes_on_from_its_two_ledgers(
    three: TradingWorld, when: str
) -> None:
    three.souths_rate = FULL
    if when == "while it leaves":
        three.until(lambda: three.movements()[0].node == "west.0", "it is to run at west")
        assert three.movements(ON) == []
        three.kill("south")
        three.start("south")
        three.until(lambda: three.movements()[0].node == "south.0", "it is to run at south")
    sell_on(three)
    three.lasts(5_000)
    if when == "while it is there":
        three.kill("south")
        three.start("south")
    three.souths_rate = CALM
    if when == "while it comes":
        three.until(lambda: three.movements()[0].node == "south.0", "it is called home")
        three.kill("south")
        three.start("south")
    three.until(lambda: three.place("south") is TaskPlace.HERE, "south has it back", 600)
    three.until(lambda: three.runs_on() == "south.0", "it runs there")
    seen_to_end(three)


def test_a_third_that_dies_pays_the_middleman_who_pays_the_owner(three: TradingWorld) -> None:
    sell_on(three)
    three.lasts(6_000)
    three.kill("west")
    three.nodes["west.0"].is_alive = False
    three.until(lambda: three.runs_on() == "north.0", "north has taken it home", 400)
    both = ("north-south", ON)
    three.until(
        lambda: all(three.movements(each)[0].state is MovementState.OVER for each in both),
        "over",
        600,
    )
    (movement,), (on,) = three.movements(), three.movements(ON)
    assert (movement.why, on.why) == (EndReason.SILENT, EndReason.SILENT)
    for name, payer in (("north-south", "south"), (ON, "west")):
        fines = [each for each in three.ledger(name).postings if "period" not in each.reason]
        assert [each.payer for each in fines] == [payer]
    seen_to_end(three)


def test_who_has_it_from_a_middleman_is_not_blamed_for_what_the_owner_does(
    three: TradingWorld,
) -> None:
    """North takes its stage home, and does not say so."""
    sell_on(three)
    three.lasts(6_000)
    three.kill("north")
    north = three.pipelines["north"]
    move = Move("speeds", "0", "north.0", three.clock.now_ms())
    value, key = control_records.encode(move), control_records.key_of(move)
    three.book.write(north.topic_names.placement(), value, key=key)
    three.until(lambda: three.runs_on() == "north.0", "it is at home")
    three.lasts(12_000)
    (on,) = three.movements(ON)
    assert on.state is MovementState.RUNNING
    three.start("north")
    three.until(lambda: three.movements()[0].state is MovementState.OVER, "north says so", 600)
    three.until(lambda: three.movements(ON)[0].state is MovementState.OVER, "south, too")
    assert [each for each in three.ledger(ON).postings if "period" not in each.reason] == []


def test_a_node_that_may_not_run_it_is_not_followed(three: TradingWorld) -> None:
    three.kill("south")
    (movement,) = three.movements()
    word = Placed("north-south", movement.movement_id, "south", 0, 1, "east.0")
    three.book.say("south", word)
    three.lasts(2_000)
    left = three.agents["north"].status.detail["left_at_seller"]
    assert left == {
        three.task: "its seller names east.0, which may not run it: federation.partners"
    }
    assert three.runs_on() == "south.0"
    three.start("south")
    three.until(lambda: three.movements()[0].node == "south.0", "south says it anew")
    three.until(lambda: not three.agents["north"].status.detail["left_at_seller"], "it is right")
