"""Tests of an agent's rules."""

from __future__ import annotations

from anabranch.protocol.federation.contract_book import ContractState
from anabranch.protocol.federation.holdings import Holding, TaskPlace, Term
from anabranch.protocol.federation.load_average import LoadAverage
from anabranch.protocol.federation.standing import AgentRules, Partner, Standing
from harness.markets import CONTRACT, RULES, booked, contract, stepped


def standing(**places: TaskPlace) -> Standing:
    made = Standing("north", stepped(*range(1, 20)), RULES)
    for name, place in places.items():
        made.holdings.tasks[name] = Holding(name, LoadAverage.of(10), place)
    return made


def test_fy1_bids_count_what_is_sure_and_asks_all_that_there_may_be() -> None:
    made = standing(**{place.value: place for place in TaskPlace})
    assert made.sure() == 20, "what is here, and what is offered"
    assert made.most() == 60, "all but what is away"
    assert made.saves(made.holdings.tasks["here"]) == 2 * 10
    assert made.saves(made.holdings.tasks["returning"]) == 3 * 10, "on top of what stays"
    assert made.adds(made.holdings.tasks["away"]) == 7 * 10


def test_the_expected_price_is_the_last_one_or_the_middle() -> None:
    partner = Partner(booked())
    assert partner.expected_price == 900
    partner.price = 870
    assert partner.expected_price == 870
    assert partner.contract == CONTRACT


def test_contracts_by_side_and_by_movement() -> None:
    made = standing()
    made.partners = {
        "north-south": Partner(booked()),
        "x": Partner(booked(contract(buyer="east", seller="north"))),
    }
    assert [name for name, _ in made.bought()] == ["north-south"]
    term = Term("m", "north-south", 900, 0)
    assert made.of(term).contract == CONTRACT
    assert made.state_of(term, 0) is ContractState.ACTIVE


def test_jitter_is_within_its_spread_and_differs_between_participants() -> None:
    rules = AgentRules(jitter_ms=500)
    north, south = (Standing(name, stepped(1), rules) for name in ("north", "south"))
    found = [[each.jitter(now) for now in range(50)] for each in (north, south)]
    assert found[0] != found[1]
    assert all(0 <= value < 500 for values in found for value in values)
    assert len(set(found[0])) > 25
    assert found[0] == [north.jitter(now) for now in range(50)]
    assert standing().jitter(1) == 0
