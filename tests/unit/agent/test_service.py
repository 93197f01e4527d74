"""Agents of two participants on a log in memory, with stand-ins for ingestion and nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.key_files import VARIABLE
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.signing import SigningKey
from anabranch.agent.service import build
from anabranch.codec import federation_records
from anabranch.pipeline.model import Federation
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.contract_book import Change, ContractChange
from anabranch.protocol.federation.contracts import Contract, LoadUnit
from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.movements import Ended, EndReason, MovementState, Withdrawn
from anabranch.protocol.federation.offers import OfferAnswer, OfferedTask, ReturnRequest, TaskOffer
from anabranch.protocol.federation.stage_moves import reason_against
from harness import outputs
from harness.trading_world import CALM, METER_MS, MIN_HOLD_MS, RUSH, TradingWorld, terms


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TradingWorld]:
    clock = VirtualClock(1_200_000_000)
    made = TradingWorld(LocalEventLog(clock), clock, tmp_path, lambda: clock.advance(50))
    yield made
    made.close()


def sold(world: TradingWorld) -> None:
    world.agree()
    world.start("north", "south")
    for _ in range(40):
        world.round()
    assert world.runs_on() == "north.0"
    world.rate = RUSH
    world.until(lambda: world.place() is TaskPlace.AWAY, "the stage is sold")


class FastClock(VirtualClock):
    """Clock that runs an hour ahead of another, until it is set right."""

    def __init__(self, right: VirtualClock) -> None:
        super().__init__()
        self.right, self.is_fast = right, True

    def now_ms(self) -> int:
        return self.right.now_ms() + 3_600_000 * self.is_fast

    def monotonic_ms(self) -> int:
        return self.right.monotonic_ms()

    def sleep_ms(self, duration_ms: int) -> None:
        self.right.sleep_ms(duration_ms)


def test_a_fast_clock_that_is_set_back_stops_neither_sales_nor_measurements(
    world: TradingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(world.clock, VirtualClock)
    fast, of = FastClock(world.clock), world._context
    monkeypatch.setattr(world, "_context", lambda *names: replace(of(*names), clock=fast))
    world.agree()
    world.start("north", "south")
    world.lasts(4_000)
    fast.is_fast = False
    world.rate = RUSH
    world.until(lambda: world.place() is TaskPlace.AWAY, "the stage is sold")
    world.until(lambda: len(world.ledger().postings) > 0, "a period is paid", 600)
    assert {each.payer for each in world.ledger().postings} == {"north"}
    world.rate = CALM
    world.until(lambda: world.place() is TaskPlace.HERE, "it is home again")
    assert world.movements()[0].why is EndReason.RECALLED


@pytest.mark.parametrize("at", ["before it is sold", "while it moves", "while it is away"])
@pytest.mark.parametrize("who", ["north", "south"])
def test_an_agent_that_is_killed_goes_on_from_the_ledgers(
    world: TradingWorld, at: str, who: str
) -> None:
    world.agree()
    world.start("north", "south")
    for _ in range(40):
        world.round()
    if at != "before it is sold":
        world.nodes["south.0"].is_alive = at != "while it moves"
        world.rate = RUSH
        wanted = TaskPlace.LEAVING if at == "while it moves" else TaskPlace.AWAY
        world.until(lambda: world.place() is wanted, at)
    world.kill(who)
    for _ in range(20):
        world.round()
    world.start(who)
    world.nodes["south.0"].is_alive = True
    world.rate = RUSH
    world.until(
        lambda: world.runs_on() == "south.0" and world.place() is TaskPlace.AWAY, "it is sold"
    )
    world.rate = CALM
    world.until(lambda: world.place() is TaskPlace.HERE, "it is home again")
    assert world.runs_on() == "north.0"
    assert sum(world.balances().values()) == 0
    states = {movement.state for movement in world.movements()}
    assert MovementState.RUNNING not in states


def test_a_stage_whose_seller_dies_is_taken_home_and_the_seller_pays(world: TradingWorld) -> None:
    sold(world)
    for _ in range(60):
        world.round()
    before = world.sources["north"].upto
    world.nodes["south.0"].is_alive = False
    world.kill("south")
    world.until(lambda: world.runs_on() == "north.0", "it runs at home", 300)
    assert (world.sources["north"].upto - before) * 250 < 10_000
    world.until(lambda: world.place() is TaskPlace.HERE, "the ledger has it")
    (movement,) = world.movements()
    assert movement.why is EndReason.SILENT
    assert world.balances()["south"] < 0
    assert any("silent" in posting.reason for posting in world.ledger().postings)


def test_a_buyer_cannot_blame_a_seller_that_works_for_silence(world: TradingWorld) -> None:
    """With the terms that ``anabranch contracts terms`` writes: a slot of a second."""
    sold(world)
    longest_ms = 0
    for _ in range(300):
        world.round()
        ledger, now_ms = world.ledger(), world.clock.now_ms()
        for movement in ledger.movements:
            longest_ms = max(longest_ms, ledger._silence.silent_ms(movement, now_ms))
            assert not ledger.is_silent(movement, now_ms)
    assert longest_ms > 2 * METER_MS, "it is measured later than two slots after"
    (movement,) = world.movements()
    now_ms = world.clock.now_ms()
    world.book.say(
        "north", Ended("north-south", movement.movement_id, "north", now_ms, EndReason.SILENT)
    )
    assert {each.payer for each in world.ledger().postings} <= {"north"}


def test_a_buyers_agent_that_restarts_after_its_seller_died_ends_the_movement(
    world: TradingWorld,
) -> None:
    sold(world)
    for _ in range(60):
        world.round()
    world.nodes["south.0"].is_alive = False
    world.kill("south")
    world.until(lambda: world.runs_on() == "north.0", "it runs at home", 300)
    world.kill("north")
    world.start("north")
    world.until(lambda: world.place() is TaskPlace.HERE, "the ledger has it")
    assert world.runs_on() == "north.0"


def test_a_partner_cannot_withdraw_what_runs_under_another_contract(world: TradingWorld) -> None:
    """Such a withdrawal would end the agent, and every one that is started after it."""
    sold(world)
    (movement,) = world.movements()
    hostile = SigningKey.generate("west", "1")
    world.book.keys["west"] = hostile
    world.book.publish(hostile)
    world.book.open("north-west")
    world.book.make("offers", world.book.topics.offers("north-west"))
    text = terms(world.clock.now_ms(), world.task, contract_id="north-west", seller="west")
    for party in ("north", "west"):
        world.book.say(party, text)
    world.lasts(6_000)
    world.book.say("west", Withdrawn("north-west", movement.movement_id, "west", 0))
    world.lasts(3_000)
    assert world.place() is TaskPlace.AWAY
    world.kill("north")
    world.start("north")
    assert world.place() is TaskPlace.AWAY


def test_a_seller_that_never_gets_ready_is_not_waited_for(world: TradingWorld) -> None:
    world.nodes["south.0"].is_alive = False
    world.agree()
    world.start("north", "south")
    world.rate = RUSH
    world.until(lambda: world.place() is TaskPlace.LEAVING, "an answer")
    world.until(lambda: world.place() is TaskPlace.HERE, "it stays")
    assert world.runs_on() == "north.0"
    assert {movement.state for movement in world.movements()} == {MovementState.VOID}
    assert set(world.balances().values()) == {0}


def test_a_seller_that_stops_making_results_is_paid_for_what_it_made(world: TradingWorld) -> None:
    sold(world)
    for _ in range(60):
        world.round()
    (movement,) = world.movements()
    node = world.nodes["south.0"]
    node.is_stuck = True
    world.lasts(3_000)
    node.is_stuck = False
    world.lasts(20_000)
    assert world.ledger().disputes == []
    seen = world.ledger()
    assert seen.movements[movement.movement_id].state is MovementState.RUNNING


def test_forged_replayed_and_unreadable_offers_move_nothing(world: TradingWorld) -> None:
    text = world.agree()
    world.start("north", "south")
    offer = TaskOffer(
        text.contract_id, 1, "north", 1, 5_000, (OfferedTask("north.speeds", 50, 40),)
    )
    topic = world.book.topics.offers("north-south")
    keys = world.book.keys

    def says(by: str, statement: TaskOffer | OfferAnswer | ReturnRequest, at: str = topic) -> None:
        world.book.write(at, federation_records.encode(statement, keys[by].sign(statement)))

    world.round()
    says("south", offer)
    says("north", replace(offer, contract_id="other"))
    world.book.write(topic, b"nothing", None)
    world.book.write(
        topic,
        federation_records.encode(
            entry := Withdrawn("north-south", "m", "north", 1), keys["north"].sign(entry)
        ),
    )
    for _ in range(20):
        world.round()
    talk = world.agents["south"].status.detail["ignored"]
    assert isinstance(talk, dict)
    assert talk["not signed by who speaks"] == 1
    assert talk["of another contract"] == 1
    assert talk["unreadable"] == 2
    assert talk["not of this topic"] == 1
    assert world.place("south") is None
    says("north", offer)
    for _ in range(20):
        world.round()
    assert world.place("south") is TaskPlace.PROMISED  # nobody begins it: it lapses
    says("north", offer)
    world.until(lambda: world.place("south") is None, "the promise lapses")
    for _ in range(20):
        world.round()
    assert world.place("south") is None
    assert world.runs_on() == "north.0"


def test_answers_that_nobody_asked_for_do_not_displace_those_that_count(
    world: TradingWorld,
) -> None:
    """The answers come from another seller, which would rather have the task itself."""
    world.agree()
    world.start("north", "south")
    world.round()
    agent, topic = world.agents["north"], world.book.topics.offers("north-south")
    for number in range(1, 6):
        answer = OfferAnswer("north-south", 1, "south", number, ())
        signature = world.book.keys["south"].sign(answer)
        world.book.write(topic, federation_records.encode(answer, signature))
    world.lasts(1_000)
    assert not agent._answers
    world.rate = RUSH
    world.until(lambda: world.place() is TaskPlace.AWAY, "the stage is sold")
    assert len(agent._answers) == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"unit": LoadUnit("core", 10_000)}, "its unit is"),
        ({"tasks": ("north.other", "north.speeds")}, "may not run north.other"),
    ],
)
def test_nobody_trades_under_a_contract_that_cannot_be_carried_out(
    world: TradingWorld, changes: dict[str, Any], why: str
) -> None:
    world.agree(**changes)
    world.start("north", "south")
    world.rate = RUSH
    for _ in range(100):
        world.round()
    left = world.agents["north"].status.detail["left_alone"]
    assert isinstance(left, dict)
    assert why in left["north-south"]
    assert world.agents["south"].status.detail["left_alone"]
    assert world.movements() == []


def test_contracts_are_looked_at_only_when_there_is_something_new(
    world: TradingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Counter[str]()

    def counted(contract: Contract, participant: str, *rest: Any) -> str:
        asked[participant] += 1
        return reason_against(contract, participant, *rest)

    monkeypatch.setattr("anabranch.agent.service.reason_against", counted)
    text = world.agree()
    world.start("north", "south")
    world.lasts(1_000)
    asked.clear()
    world.lasts(4_000)
    assert asked["north"] <= 2, "one for the look every five seconds"
    world.book.say("north", replace(text, version=2))
    world.book.say("south", replace(text, version=2))
    asked.clear()
    world.lasts(500)
    assert asked["north"] > 0
    assert (
        world.agents["north"].agent._standing.partners["north-south"].booked.contract.version == 2
    )


def test_a_contract_that_can_no_longer_be_carried_out_moves_nothing_new(
    world: TradingWorld,
) -> None:
    """The agents have traded under it, and its next version is in another unit."""
    text = world.agree()
    world.start("north", "south")
    world.lasts(2_000)
    other = replace(text, version=2, unit=LoadUnit("core", 10_000))
    for party in ("north", "south"):
        world.book.say(party, other)
    world.lasts(1_000)
    world.rate = RUSH
    world.lasts(8_000)
    left = world.agents["north"].status.detail["left_alone"]
    assert isinstance(left, dict)
    assert "its unit is" in left["north-south"]
    assert world.movements() == []
    assert world.place() is TaskPlace.HERE


def test_a_seller_that_takes_a_stage_and_gives_notice_is_not_paid_for_that(
    world: TradingWorld,
) -> None:
    sold(world)
    now_ms = world.clock.now_ms()
    notice = ContractChange("north-south", 1, "south", Change.NOTICE, now_ms, now_ms)
    world.book.say("south", notice)
    world.until(lambda: world.place() is TaskPlace.HERE, "it is home again")
    (movement,) = world.movements()
    assert movement.ended_ms - movement.started_ms < MIN_HOLD_MS
    assert (movement.ended_by, movement.why) == ("north", EndReason.CONTRACT_ENDS)
    assert not [each for each in world.ledger().postings if "its time" in each.reason]


def test_an_agent_that_restarts_does_not_begin_the_minimum_hold_anew(world: TradingWorld) -> None:
    hold_ms = 20_000
    world.agree(min_hold_ms=hold_ms)
    world.start("north", "south")
    world.lasts(2_000)
    world.rate = RUSH
    world.until(lambda: world.place() is TaskPlace.AWAY, "the stage is sold")
    world.lasts(hold_ms)
    world.kill("north")
    world.rate = CALM
    world.start("north")
    world.lasts(10_000)
    assert world.place() is TaskPlace.HERE
    (movement,) = world.movements()
    assert hold_ms < movement.ended_ms - movement.started_ms < 2 * hold_ms
    assert not [each for each in world.ledger().postings if "its time" in each.reason]


def test_what_an_operator_has_removed_stays_removed(world: TradingWorld) -> None:
    sold(world)
    world.move("")
    for _ in range(20):
        world.round()
    assert world.runs_on() == "south.0"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_stage_stays_at_its_seller_while_the_log_of_its_contract_is_cut(
    world: TradingWorld, *, is_damaged: bool
) -> None:
    """The log may say that it runs there, and nobody can know; all else goes on."""
    sold(world)
    world.lasts(3_000)  # the start of the movement is not the last record any more
    world.kill("north", "south")
    topic = world.book.topics.contract("north-south")
    assert isinstance(world.log, LocalEventLog)
    at = TopicPartition(topic, 0)
    if is_damaged:  # what comes before it, the start of the movement too, counts for nothing
        world.log.damage(at, world.log.partition(at).end - 1)
    else:
        world.log.trim(at, 1)
    world.start("north", "south")
    for name in ("north", "south"):
        world.lasts(10_000)
        assert world.runs_on() == "south.0"
        assert world.place() is None, "it is not traded"
        for status in (world.agents[name].status, world.brokers[name].status):
            assert status.waiting_for is not None
            assert topic in status.waiting_for
    left = world.agents["north"].status.detail["left_at_seller"]
    assert isinstance(left, dict)
    assert list(left) == [world.task]


def test_an_agent_wants_a_policy_a_key_and_the_right_files(
    world: TradingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.agree()
    north = world.pipelines["north"]
    assert north.federation is not None

    def build_of(federation: Federation | None) -> None:
        of = north.model_copy(update={"federation": federation})
        made = outputs.context(world.log, of, world.clock, SeededEntropy(1), "agent", "north")
        build(made.settings, made)

    for none in (None, north.federation.model_copy(update={"agent": None})):
        with pytest.raises(ConfigurationError, match="there is no agent"):
            build_of(none)
    with pytest.raises(ConfigurationError, match="ANABRANCH_SIGNING_KEY_FILE"):
        build_of(north.federation)
    monkeypatch.setenv(f"{VARIABLE}_FILE", str(world.folder / "north.key"))
    wrong = north.federation.model_copy(update={"hosts": {"east": world.folder / "south.yaml"}})
    with pytest.raises(ConfigurationError, match="is the file of pipeline south"):
        build_of(wrong)
