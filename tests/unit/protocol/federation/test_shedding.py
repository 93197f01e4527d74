"""The buyer's half of an agent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.federation.agent import Agent
from anabranch.protocol.federation.contract_book import ContractState
from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.movements import BringHome, Claim, Prepare, movement_id
from anabranch.protocol.federation.offers import (
    AcceptedTask,
    OfferAnswer,
    OfferedTask,
    ReturnRequest,
    TaskOffer,
)
from anabranch.protocol.federation.shedding import PHASES, SheddingEvent, SheddingPhase
from harness.markets import (
    agent,
    answer,
    booked,
    contract,
    phase,
    place,
    started,
    stepped,
)

COST = stepped(100, 500, 900, 1_500)
"""Three tasks of ten units are as much as is worth its price; the fourth is not."""

SOUTH = booked(contract(fixed_price=1_000, delta=0))
EAST = booked(contract(contract_id="north-east", seller="east", fixed_price=1_200, delta=0))


def busy(*contracts: object, **more: int) -> Agent:
    return agent("north", COST, *(contracts or (SOUTH,)), a=10, b=10, c=10, d=10, **more)  # type: ignore[arg-type]


def offered(made: Agent, now_ms: int) -> TaskOffer:
    [command] = made.tick(now_ms)
    assert isinstance(command, TaskOffer)
    return command


def accepted(given: TaskOffer, *prices: int, seller: str = "south") -> OfferAnswer:
    tasks = tuple(
        AcceptedTask(task.name, task.units, price)
        for task, price in zip(given.tasks, prices, strict=False)
    )
    return OfferAnswer(given.contract_id, given.version, seller, given.number, tasks)


@pytest.fixture
def away() -> Agent:
    """Return an agent of whose four tasks one, north.a, is at south since 2 s, at 1000."""
    made = busy()
    given = answer(offered(made, 1_000).number, AcceptedTask("north.a", 10, 1_000))
    assert [type(each) for each in made.answered(given, 1_100)] == [Prepare]
    [claim] = made.ready(movement_id("north-south", 1_000, "north.a"), 1_500)
    assert claim == Claim("north-south:1000/north.a", "north.a", given)
    assert made.recorded(started(given), 2_000) == []
    assert place(made) is TaskPlace.AWAY
    return made


def test_who_has_too_much_offers_what_costs_more_than_its_price() -> None:
    made = busy()
    assert offered(made, 1_000) == TaskOffer(
        "north-south", 1, "north", 1_000, 1_000, (OfferedTask("north.a", 10, 1_000),)
    )
    assert phase(made) is SheddingPhase.WAITING
    assert place(made) is TaskPlace.OFFERED


def test_fa1_one_offer_is_out_at_a_time() -> None:
    made = busy()
    offered(made, 1_000)
    assert made.tick(1_500) == []


def test_who_has_room_offers_nothing() -> None:
    made = agent("north", COST, SOUTH, a=10, b=10, c=10)
    assert made.tick(1_000) == []
    assert phase(made) is SheddingPhase.IDLE


@pytest.mark.parametrize(
    "state", [ContractState.SUSPENDED, ContractState.ENDING, ContractState.ENDED]
)
def test_nothing_is_offered_under_a_contract_that_does_not_allow_it(state: ContractState) -> None:
    assert busy(booked(SOUTH.contract, state)).tick(1_000) == []


def test_nothing_is_offered_that_the_contract_does_not_name() -> None:
    assert busy(booked(contract(tasks=("south.x",)))).tick(1_000) == []


def test_the_cheapest_is_asked_first_and_the_next_one_when_it_turns_down_or_is_silent() -> None:
    made = busy(EAST, SOUTH)
    first = offered(made, 1_000)
    assert first.contract_id == "north-south"
    [second] = made.answered(accepted(first), 1_100)
    assert isinstance(second, TaskOffer)
    assert second.contract_id == "north-east"
    assert phase(made) is SheddingPhase.WAITING
    assert made.tick(2_099) == []
    assert made.tick(2_100) == [], "nobody is left"
    assert phase(made) is SheddingPhase.RESTING
    assert made.holdings.at(TaskPlace.OFFERED) == []
    assert made.tick(4_099) == []
    assert offered(made, 4_100).contract_id == "north-south"


def test_after_a_success_it_rests_and_the_last_price_is_remembered() -> None:
    made = busy(EAST, SOUTH)
    east_price = replace(EAST.contract, fixed_price=1_200, delta=400)
    made.knows(booked(east_price))
    assert offered(made, 1_000).contract_id == "north-east", "both expect 1000: by name"
    given = answer(
        1_000, AcceptedTask("north.a", 10, 1_150), contract_id="north-east", seller="east"
    )
    assert [type(each) for each in made.answered(given, 1_100)] == [Prepare]
    assert phase(made) is SheddingPhase.RESTING
    assert made.tick(6_099) == []
    made.owns("north.d", 10)
    made.owns("north.a2", 10)
    made.knows(
        booked(contract(fixed_price=1_000, delta=0, tasks=("north.a2", "north.b", "north.c")))
    )
    assert offered(made, 6_100).contract_id == "north-south"


def test_room_at_a_seller_ends_the_rest() -> None:
    made = busy()
    first = offered(made, 1_000)
    assert made.answered(accepted(first), 1_100) == []
    made.room(1_200)
    assert offered(made, 1_200).number == 1_200
    made.room(1_300)
    assert phase(made) is SheddingPhase.WAITING


def test_fa5_a_seller_that_does_not_answer_is_left_alone_for_a_while() -> None:
    made = busy()
    for now_ms in (1_000, 4_000, 7_000):
        offered(made, now_ms)
        assert made.tick(now_ms + 1_000) == []
    assert made.counters.silences == 3
    assert made.tick(10_000) == []
    assert made.tick(67_000) == []
    offered(made, 70_001)


def test_an_answer_ends_the_count_of_silences() -> None:
    made = busy()
    for now_ms in (1_000, 4_000):
        offered(made, now_ms)
        made.tick(now_ms + 1_000)
    assert made.answered(accepted(offered(made, 7_000)), 7_100) == []
    offered(made, 9_200)
    made.tick(10_200)
    offered(made, 12_300)


def test_an_answer_to_what_is_not_out_changes_nothing() -> None:
    made = busy()
    assert made.answered(answer(), 900) == []
    first = offered(made, 1_000)
    assert made.answered(replace(accepted(first, 1_000), number=999), 1_050) == []
    assert made.answered(replace(accepted(first, 1_000), contract_id="other"), 1_050) == []
    assert made.tick(2_000) == []
    assert made.answered(accepted(first, 1_000), 2_100) == [], "it came too late"
    assert place(made) is TaskPlace.HERE


def test_an_answer_out_of_the_bound_is_a_rejection_and_is_counted() -> None:
    made = busy()
    first = offered(made, 1_000)
    assert made.answered(accepted(first, 1_001), 1_100) == []
    assert made.counters.disbelieved == 1
    assert phase(made) is SheddingPhase.RESTING


def test_a_task_that_became_cheap_to_keep_is_not_handed_over() -> None:
    made = busy()
    first = offered(made, 1_000)
    for task in "bcd":
        made.measured(f"north.{task}", 0)
    assert made.answered(accepted(first, 1_000), 1_100) == []
    assert place(made) is TaskPlace.HERE


def test_a_task_is_recalled_when_it_would_cost_less_here_but_not_before_the_hold_is_over(
    away: Agent,
) -> None:
    away.measured("north.d", 0)
    away.measured("north.d", 0)
    for _ in range(20):
        away.measured("north.d", 0)
        away.measured("north.c", 0)
    assert away.tick(11_999) == []
    assert away.tick(12_000) == [BringHome("north-south:1000/north.a", "north.a")]
    assert place(away) is TaskPlace.COMING
    assert away.counters.recalls == 1


def test_a_task_that_would_cost_nearly_as_much_here_stays_away(away: Agent) -> None:
    """At 950 of 1000 it would be recalled, at 960 it would not."""
    cost = stepped(100, 500, 900, 960)
    away._standing.cost = cost
    assert away.tick(12_000) == []
    away._standing.cost = stepped(100, 500, 900, 950)
    assert away.tick(12_100) == [BringHome("north-south:1000/north.a", "north.a")]


@pytest.mark.parametrize("state", [ContractState.ENDING, ContractState.ENDED])
def test_all_comes_home_when_the_contract_ends(away: Agent, state: ContractState) -> None:
    away.knows(booked(SOUTH.contract, state))
    assert away.tick(2_100) == [BringHome("north-south:1000/north.a", "north.a")]


def test_a_seller_that_asks_gets_rid_of_its_task(away: Agent) -> None:
    request = ReturnRequest("north-south", "north-south:1000/north.a", "south")
    assert away.return_requested(replace(request, seller="east"), 3_000) == []
    assert away.counters.disbelieved == 1
    assert away.return_requested(replace(request, contract_id="other"), 3_000) == []
    assert away.return_requested(replace(request, movement_id="other"), 3_000) == []
    assert away.return_requested(request, 3_000) == [BringHome(request.movement_id, "north.a")]
    assert away.return_requested(request, 3_100) == [], "it is on its way"


def test_a_task_that_came_from_the_seller_is_returned_not_sold_to_it() -> None:
    """South has a task of north, and a contract by which it may hand load to north."""
    back = contract(contract_id="south-north", buyer="south", seller="north", delta=0)
    made = agent("south", stepped(100, 5_000), booked(), booked(back))
    made.owns("south.x", 10)
    given = answer(1, AcceptedTask("north.a", 10, 900))
    assert made.recorded(started(given), 0) == []
    assert place(made) is TaskPlace.HERE
    assert not any(isinstance(each, TaskOffer) for each in made.tick(20_000))


def test_the_phases_are_all_reached() -> None:
    assert set(PHASES.values()) == set(SheddingPhase)
    assert {turn for _, turn in PHASES} == set(SheddingEvent)
