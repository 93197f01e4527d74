"""Agents and brokers of two participants with a movement contract, on a log in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.agent.stage_logs import StageLogs
from anabranch.codec import control_records
from anabranch.protocol.control.records import Move
from anabranch.protocol.errors import DataMissing
from anabranch.protocol.federation.contract_book import Change, ContractChange
from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.plan_switching import PlanWord, SwitchState, Word
from anabranch.protocol.log.unread_logs import OPEN_AGAIN_MS
from harness.plan_world import BUSY, PLAN_ID, RESULT_PRICE, PlanWorld
from harness.trading_world import CALM, RUSH

SWITCHING = ("proposal_ms", "deadline_ms", "min_hold_ms", "gain_permille")


def made_in(folder: Path) -> PlanWorld:
    clock = VirtualClock(1_200_000_000)
    return PlanWorld(LocalEventLog(clock), clock, folder, lambda: clock.advance(50))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PlanWorld]:
    made = made_in(tmp_path)
    yield made
    made.close()


def begun(world: PlanWorld, **terms: Any) -> None:
    world.agree_on_plans(**terms)
    world.start("north", "south")
    world.lasts(3_000)


def switched(world: PlanWorld) -> None:
    """South runs the query."""
    world.rate = RUSH
    world.until(lambda: world.is_under(1), "south runs the query", 800)


def settled(world: PlanWorld) -> None:
    """No period is charged twice, both said the same of each, and all results are there."""
    world.lasts(25_000)
    ledger = world.plan_ledger()
    assert sum(ledger.balances().values()) == 0
    assert ledger.disputes == []
    periods = [posting.reason for posting in ledger.postings]
    assert len(periods) == len(set(periods))
    assert {posting.payer for posting in ledger.postings} == {"north"}
    made = set().union(*(node.closed for node in world.nodes.values()))
    assert made >= set(range(min(made), world.sources["north"].upto - 4))


def test_an_agent_leaves_a_contract_with_one_plan_to_the_brokers(world: PlanWorld) -> None:
    world.agree_on_plans(plans=world.plans().plans[:1], pipeline="", **dict.fromkeys(SWITCHING, 0))
    world.start("north", "south")
    world.lasts(3_000)
    for agent in world.agents.values():
        assert (agent.status.detail["plans"], agent.status.detail["left_alone"]) == ({}, {})
    assert world.plan_ledger().switch.plan == 0


def whys(world: PlanWorld) -> list[str]:
    return [each.why for each in world.switch().changes[1:]]


def test_both_gain_by_each_switch_and_under_constant_load_nothing_switches(
    world: PlanWorld,
) -> None:
    begun(world)
    switched(world)
    agreed = world.words(Word.AGREED)
    assert [each.by for each in agreed] in (["north"], ["south"])
    world.lasts(60_000)
    assert whys(world) == ["switched"]
    assert len(world.words(Word.PROPOSED)) < 10


def test_the_query_is_load_where_it_runs_and_is_not_traded(world: PlanWorld) -> None:
    begun(world)
    levels = []
    for plan in (0, 1):
        if plan:
            switched(world)
        world.lasts(15_000)
        levels.append([world.agents[name].agent.holdings.level() for name in ("north", "south")])
        assert world.place() is None
    (before, beside), (after, with_query) = levels
    assert (before, beside) == (CALM, CALM)
    assert (after, with_query) == (0, CALM + RUSH)


def lost(*_: object) -> None:
    """Fail as a log whose first records are deleted."""
    raise DataMissing("its first records are deleted")


def shown_at(world: PlanWorld) -> object:
    """Return the node that runs the query, as north's status shows it."""
    plans: Any = world.agents["north"].status.detail["plans"]
    return plans[PLAN_ID]["runs_on"]["speeds"]


def test_a_sender_is_judged_by_logs_that_can_be_read(
    world: PlanWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by what was read of them before they lost records."""
    begun(world)
    switched(world)
    with monkeypatch.context() as patched:
        patched.setattr(StageLogs, "poll", lost)
        world.lasts(12_000)
        assert shown_at(world) == ""
    world.lasts(OPEN_AGAIN_MS)
    assert whys(world) == ["switched"]
    assert shown_at(world) == "south.0"
    world.nodes["south.0"].is_alive = False
    world.until(lambda: world.is_under(0), "the query falls back", 400)
    assert whys(world) == ["switched", "fell_back"]


@pytest.mark.parametrize("by", ["north", "south"])
def test_either_side_cancels_and_the_plain_contract_applies_for_good(
    world: PlanWorld, by: str
) -> None:
    begun(world)
    switched(world)
    world.lasts(10_000)
    world.book.say(by, PlanWord(PLAN_ID, by, Word.CANCELLED, 0))
    world.until(lambda: world.is_under(0), "it is at home again")
    world.lasts(20_000)
    assert whys(world) == ["switched", "cancelled"]
    assert world.place() is TaskPlace.HERE, "it may be traded"
    text, ledger = world.plans(), world.plan_ledger()
    last = world.clock.now_ms() // text.settle_ms - 3
    terms = ledger.terms(last)
    assert terms is not None
    assert terms.pipeline == "south"
    settled(world)
    left = world.switch().changes[-1].at_ms // text.settle_ms
    paid = {each.reason: each.amount_nano for each in world.plan_ledger().postings}
    assert paid[f"period {left}"] == RUSH // 2 * 5 * RESULT_PRICE * 1_000, "home made a part"


@pytest.mark.parametrize("who", ["north", "south"])
@pytest.mark.parametrize("at", ["proposed", "switching", "switched", "switching back"])
def test_an_agent_that_is_killed_goes_on_from_the_log(world: PlanWorld, at: str, who: str) -> None:
    begun(world)
    world.rate = RUSH
    world.nodes["south.0"].is_alive = at not in {"proposed", "switching"}
    if at == "proposed":
        proposed = SwitchState.PROPOSED
        world.until(lambda: world._read().state is proposed, at, 800)
    elif at == "switching":
        world.until(lambda: world._read().state is SwitchState.SWITCHING, at, 800)
    else:
        switched(world)
    if at == "switching back":
        world.lasts(5_000)
        world.rate, world.souths_rate = CALM, BUSY
        world.nodes["north.0"].is_alive = False
        world.until(lambda: world._read().state is SwitchState.SWITCHING, at, 800)
    world.kill(who)
    world.lasts(2_000)
    world.start(who)
    for node in world.nodes.values():
        node.is_alive = True
    if at == "switching back":
        world.until(lambda: world.is_under(0), "it is at home again", 800)
    else:
        switched(world)
    settled(world)


def test_a_sender_whose_node_is_gone_loses_the_query_at_once_and_is_not_paid(
    world: PlanWorld,
) -> None:
    begun(world)
    switched(world)
    world.lasts(10_000)
    gone_ms = world.clock.now_ms()
    world.nodes["south.0"].is_alive = False
    world.kill("south")
    world.until(lambda: world.is_under(0), "it is at home again")
    assert world.clock.now_ms() - gone_ms < 10_000
    assert whys(world) == ["switched", "fell_back"]
    world.lasts(35_000)
    ledger = world.plan_ledger()
    charged = {
        posting.reason: posting.amount_nano // 1_000
        for posting in ledger.postings
        if posting.amount_nano
    }
    whole = RUSH // 2 * 5 * 60
    assert whole in charged.values(), "south ran it for a whole period"
    within = gone_ms // 5_000
    assert charged.get(f"period {within}", 0) < whole
    assert charged[f"period {within + 3}"] == RUSH * 5 * 10, "the plain plan"


def test_after_it_fell_back_nothing_is_agreed_to_for_a_while(world: PlanWorld) -> None:
    begun(world)
    switched(world)
    world.lasts(5_000)
    world.nodes["south.0"].is_stuck = True
    world.until(lambda: world.is_under(0), "heard, but it makes nothing")
    fell_ms = world.clock.now_ms()
    world.nodes["south.0"].is_stuck = False
    world.until(lambda: world.is_under(1), "south runs it again", 800)
    assert world.clock.now_ms() - fell_ms > 6_000
    assert whys(world) == ["switched", "fell_back", "switched"]
    settled(world)


def test_a_sender_that_never_gets_ready_is_not_waited_for(world: PlanWorld) -> None:
    world.nodes["south.0"].is_alive = False
    begun(world)
    world.rate = RUSH
    world.until(lambda: bool(world.words(Word.FAILED)), "it is given up", 800)
    world.lasts(1_000)
    assert world.is_under(0)
    assert whys(world) == []
    settled(world)


@pytest.mark.parametrize("change", [Change.SUSPENDED, Change.NOTICE])
def test_a_suspension_and_a_notice_bring_the_query_home(world: PlanWorld, change: Change) -> None:
    begun(world)
    switched(world)
    world.lasts(5_000)
    now_ms = world.clock.now_ms()
    world.book.say("south", ContractChange(PLAN_ID, 1, "south", change, now_ms, now_ms))
    world.until(lambda: world.is_under(0), "it is at home again")
    assert whys(world) == ["switched", change.value]
    world.lasts(15_000)
    assert world.is_under(0)
    if change is Change.SUSPENDED:
        now_ms = world.clock.now_ms()
        resumed = ContractChange(PLAN_ID, 1, "south", Change.RESUMED, now_ms, now_ms)
        world.book.say("south", resumed)
        world.until(lambda: world.is_under(1), "south runs it again", 800)
    else:
        assert world.place() is TaskPlace.HERE, "it is over"


def test_at_the_end_of_the_contracts_time_the_query_goes_home(world: PlanWorld) -> None:
    begun(world, valid_to_ms=world.clock.now_ms() + 40_000)
    switched(world)
    world.until(lambda: world.newest() == "north.0", "it is at home again", 1_000)
    world.lasts(5_000)
    assert world.place() is TaskPlace.HERE
    last = max(int(each.reason.split()[1]) for each in world.plan_ledger().postings)
    assert (last + 1) * 5_000 <= world.plans().valid_to_ms


def test_a_query_that_is_sold_under_a_contract_for_load_is_waited_for(world: PlanWorld) -> None:
    begun(world)
    for name in ("north", "south"):
        world.kill(name)
    north = world.pipelines["north"]
    assert north.federation is not None
    world.agree_on_plans(version=2)
    world.start("north", "south")
    agent, oracle = world.agents["north"].agent, world.agents["north"]._oracle
    assert oracle is not None
    agent.holdings.tasks["north.speeds"].place = TaskPlace.OFFERED
    world.agents["north"].step()
    assert "traded under a contract for load" in oracle.left_alone[PLAN_ID]
    agent.holdings.tasks["north.speeds"].place = TaskPlace.HERE
    world.agents["north"].step()
    assert oracle.left_alone == {}
    shown = world.agents["north"].status.detail["plans"]
    assert isinstance(shown, dict)
    assert shown[PLAN_ID]["plan"] == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"pipeline": "other"}, "no file here has pipeline other"),
        ({"at_sender": ("other",)}, "may not run other"),
        ({"stream": "other"}, "does not read stream other"),
    ],
)
def test_a_contract_that_cannot_be_carried_out_is_left_alone(
    world: PlanWorld, changes: dict[str, Any], why: str
) -> None:
    plain, other = world.plans().plans
    if "pipeline" in changes:
        other = replace(other, pipeline="other")
    elif "stream" in changes:
        plain = replace(plain, stream="other")
        changes = {}
    else:
        other = replace(other, at_sender=("other",), stream="other")
        changes = {}
    begun(world, plans=(plain, other), **changes)
    world.rate = RUSH
    world.lasts(10_000)
    for agent in world.agents.values():
        left = agent.status.detail["left_alone"]
        assert isinstance(left, dict)
        assert why in left[PLAN_ID]
    assert world.words(*Word) == []


def test_what_is_made_at_home_under_another_plan_is_not_paid(world: PlanWorld) -> None:
    """An operator has moved the query home while north's agent was away."""
    begun(world)
    switched(world)
    world.lasts(3_000)
    world.kill("north")
    world.start_broker("north")
    move = Move("speeds", "0", "north.0", world.clock.now_ms())
    topic = world.pipelines["north"].topic_names.placement()
    world.book.write(topic, control_records.encode(move))
    world.until(lambda: world.newest() == "north.0", "it runs at home")
    first = world.clock.now_ms() // 5_000 + 1
    world.lasts(30_000)
    ledger = world.plan_ledger()
    assert (ledger.switch.plan, ledger.disputes) == (1, [])
    assert ledger.settled > first
    paid = {each.reason: each.amount_nano for each in ledger.postings}
    assert [paid.get(f"period {each}") for each in range(first, ledger.settled)] == [None] * (
        ledger.settled - first
    )
    world.brokers.pop("north").stop()
    world.start("north")
    world.until(lambda: world.is_under(1), "it is moved back", 800)


def test_a_query_that_does_not_come_to_the_sender_falls_back(world: PlanWorld) -> None:
    begun(world)
    switched(world)
    world.lasts(3_000)
    world.kill("north")
    world.nodes["south.0"].is_alive = False
    move = Move("speeds", "0", "north.0", world.clock.now_ms())
    topic = world.pipelines["north"].topic_names.placement()
    world.book.write(topic, control_records.encode(move))
    world.until(lambda: world.newest() == "north.0", "it runs at home")
    world.start("north")
    world.until(lambda: world._read().plan == 0, "it fell back", 800)
    assert whys(world) == ["switched", "fell_back"]
    assert world.is_under(0)
