"""The seller's half of an agent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.federation.agent import Agent
from anabranch.protocol.federation.contract_book import ContractState
from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.movements import Ended, EndReason
from anabranch.protocol.federation.offers import (
    AcceptedTask,
    OfferAnswer,
    OfferedTask,
    ReturnRequest,
    TaskOffer,
)
from harness.markets import RULES, agent, answer, booked, contract, offer, place, started, stepped

EAST = booked(contract(contract_id="east-south", buyer="east", tasks=("east.a", "east.b")))
COST = stepped(100, 500, 930, 5_000)


def seller(*contracts: object, rules: object = RULES) -> Agent:
    return agent("south", COST, *(contracts or (booked(), EAST)), rules=rules)  # type: ignore[arg-type]


def answers(made: Agent, now_ms: int) -> list[OfferAnswer]:
    found = made.tick(now_ms)
    assert all(isinstance(each, OfferAnswer) for each in found)
    return [each for each in found if isinstance(each, OfferAnswer)]


@pytest.fixture
def host() -> Agent:
    """South runs north.a since 0, at 900."""
    made = seller()
    assert made.recorded(started(answer(1, AcceptedTask("north.a", 10, 900))), 0) == []
    assert place(made) is TaskPlace.HERE
    return made


def test_offers_are_collected_for_a_while_and_the_best_paid_first_has_the_room() -> None:
    made = seller()
    cheap = offer(1, OfferedTask("north.a", 10, 900), OfferedTask("north.b", 20, 900))
    dear = TaskOffer("east-south", 1, "east", 1, 1_000, (OfferedTask("east.a", 10, 950),))
    assert made.offered(cheap, 1_000) == []
    assert made.offered(dear, 1_150) == []
    assert made.tick(1_199) == []
    found = answers(made, 1_200)
    assert [(each.contract_id, each.tasks) for each in found] == [
        ("east-south", (AcceptedTask("east.a", 10, 875),)),
        ("north-south", (AcceptedTask("north.a", 10, 850),)),
    ]
    assert {holding.place for holding in made.holdings.tasks.values()} == {TaskPlace.PROMISED}
    assert made.counters.taken == 2


def test_fa2_what_was_promised_counts_as_here() -> None:
    made = seller()
    for number in (1, 2, 3):
        made.offered(offer(number, OfferedTask(f"north.{'xabc'[number]}", 10, 940)), 0)
    made.offered(TaskOffer("east-south", 1, "east", 1, 1_000, (OfferedTask("east.a", 10, 939),)), 0)
    assert [len(each.tasks) for each in answers(made, 200)] == [1, 1, 1, 0]
    made.offered(
        TaskOffer("east-south", 1, "east", 2, 1_000, (OfferedTask("east.b", 10, 1_000),)), 300
    )
    assert answers(made, 500)[0].tasks == (), "also in the next batch"
    assert made.holdings.level() == 30


def test_the_inbox_is_bounded() -> None:
    made = seller(rules=replace(RULES, offers_max=2))
    assert made.offered(offer(1), 0) == []
    assert len(made.offered(offer(2, OfferedTask("north.b", 10, 950)), 0)) == 2
    assert made.tick(500) == []


def test_an_offer_that_is_objected_to_is_turned_down_with_the_reason() -> None:
    made = seller(booked(state=ContractState.SUSPENDED))
    made.offered(offer(1), 0)
    assert answers(made, 200) == [
        OfferAnswer("north-south", 1, "south", 1, (), "the contract is suspended")
    ]


def test_an_offer_that_is_repeated_is_not_accepted_twice() -> None:
    made = seller()
    made.offered(offer(1), 0)
    assert len(answers(made, 200)[0].tasks) == 1
    made.offered(offer(1), 300)
    assert answers(made, 500)[0].reason == "an older offer"


def test_a_promise_lapses_when_its_buyer_offers_the_task_again() -> None:
    made = seller()
    made.offered(offer(1, OfferedTask("north.a", 10, 950), OfferedTask("north.b", 10, 950)), 0)
    assert len(answers(made, 200)[0].tasks) == 2
    made.offered(offer(2), 300)
    (again,) = answers(made, 500)
    assert [task.name for task in again.tasks] == ["north.a"]
    came = made.holdings.tasks["north.a"].came
    assert came is not None
    assert came.movement_id == "north-south:2/north.a"
    assert made.holdings.level() == 20, "what is not offered again is promised as before"
    made.offered(offer(3, OfferedTask("north.a", 9_000, 950)), 600)
    assert answers(made, 800)[0].tasks == ()
    assert made.holdings.level() == 10, "an offer that is turned down takes it, too"


def test_a_stranger_gets_no_answer() -> None:
    made = seller()
    made.offered(offer(1, contract_id="unknown"), 0)
    made.offered(offer(1, buyer="east"), 0)
    assert answers(made, 200) == []
    assert made.counters.disbelieved == 2
    buyer = agent("north", COST, booked())
    buyer.offered(offer(1), 0)
    assert answers(buyer, 200) == [], "who buys under a contract sells nothing under it"


def test_a_task_that_is_known_is_not_taken_again(host: Agent) -> None:
    host.offered(offer(2, OfferedTask("north.a", 10, 950), OfferedTask("north.b", 10, 950)), 0)
    assert [task.name for task in answers(host, 200)[0].tasks] == ["north.b"]
    host.offered(offer(3, OfferedTask("north.a", 10, 950)), 300)
    assert answers(host, 500)[0].reason == "promised, or here, already"


def test_what_does_not_pay_is_asked_back_when_the_hold_is_over_and_everybody_was_asked(
    host: Agent,
) -> None:
    host.owns("south.x", 10)
    host.owns("south.y", 10)
    assert host.tick(9_999) == []
    request = ReturnRequest("north-south", "north-south:1/north.a", "south")
    assert host.tick(12_100) == [], "who could take it is asked now"
    assert host.tick(12_200) == [request]
    assert place(host) is TaskPlace.RETURNING
    assert host.tick(14_199) == []
    assert host.tick(14_200) == [request]
    assert host.counters.returns == 1


def test_it_stays_when_it_pays_again(host: Agent) -> None:
    host.owns("south.x", 20)
    host.tick(12_100)
    host.tick(12_200)
    assert place(host) is TaskPlace.RETURNING
    del host.holdings.tasks["south.x"]
    assert host.tick(12_300) == []
    assert place(host) is TaskPlace.HERE
    host.owns("south.x", 20)
    assert host.tick(12_400) == [], "everybody is asked again first"


def test_it_is_not_asked_back_when_it_pays_again_before(host: Agent) -> None:
    host.owns("south.x", 20)
    host.tick(1_000)
    del host.holdings.tasks["south.x"]
    host.tick(12_000)
    host.owns("south.x", 20)
    assert host.tick(12_001) == []


def test_fa3_what_nobody_takes_back_ends_after_the_drain_time(host: Agent) -> None:
    host.owns("south.x", 20)
    host.tick(12_100)
    host.tick(12_200)
    found = [each for now in range(12_300, 80_000, 100) for each in host.tick(now)]
    ends = [each for each in found if isinstance(each, Ended)]
    assert ends[0] == Ended(
        "north-south", "north-south:1/north.a", "south", 72_200, EndReason.RETURNED
    )
    assert [each.at_ms for each in ends] == [
        72_200,
        74_200,
        76_200,
        78_200,
    ], "until the ledger has it"
    assert host.recorded(ends[0], 80_000) == []
    assert host.tick(80_100) == []
    assert "north.a" not in host.holdings.tasks


def test_only_as_many_are_asked_back_as_do_not_pay(host: Agent) -> None:
    """Two tasks came, and room for one is left: one goes, whichever is seen first."""
    host.recorded(started(answer(2, AcceptedTask("north.b", 10, 900)), "north.b"), 0)
    host.owns("south.x", 10)
    host.tick(12_100)
    assert len(host.tick(12_200)) == 1
    assert host.tick(12_300) == []


def test_all_goes_when_the_contract_has_ended(host: Agent) -> None:
    host.knows(booked(state=ContractState.ENDED))
    end = Ended("north-south", "north-south:1/north.a", "south", 100, EndReason.CONTRACT_ENDS)
    assert host.tick(100) == [end]
    assert host.tick(200) == []
    assert host.tick(2_100) == [replace(end, at_ms=2_100)]
