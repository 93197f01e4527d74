"""Tests of which offers and answers are believed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.protocol.federation.contract_book import ContractState
from anabranch.protocol.federation.offers import (
    OFFERED_TASKS_MAX,
    UNITS_MAX,
    AcceptedTask,
    OfferedTask,
    accepted_tasks,
    objection_to_offer,
)
from harness.markets import CONTRACT, answer, booked, contract, offer

TASK = OfferedTask("north.a", 10, 950)


def test_fo1_a_good_offer_is_taken_up() -> None:
    assert objection_to_offer(offer(5), booked(), 4, 0) == ""


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"buyer": "east"}, "no such contract"),
        ({"version": 2}, "version 2 of the contract is not the present one, 1"),
        ({"number": 4}, "an older offer"),
        ({"ttl_ms": 0}, "time to live"),
        ({"tasks": ()}, "at least one task"),
        ({"tasks": (TASK,) * (OFFERED_TASKS_MAX + 1)}, "at least one task"),
        ({"tasks": (TASK, TASK)}, "a task stands twice"),
        ({"tasks": (TASK, replace(TASK, name="north.x"))}, "north.x is not a task of the contract"),
        ({"tasks": (replace(TASK, units=0),)}, "north.a has 0 units"),
        ({"tasks": (replace(TASK, units=UNITS_MAX + 1),)}, "units of load"),
        ({"tasks": (replace(TASK, reserve_price=1_001),)}, "out of the contract's bound"),
        ({"tasks": (replace(TASK, reserve_price=799),)}, "out of the contract's bound"),
    ],
)
def test_fo1_each_objection_is_named(changes: dict[str, Any], text: str) -> None:
    assert text in objection_to_offer(replace(offer(5), **changes), booked(), 4, 0)


def test_fo1_load_moves_only_under_a_contract_that_allows_it_now() -> None:
    assert objection_to_offer(offer(), None, 0, 0) == "no such contract"
    assert (
        objection_to_offer(offer(), booked(state=ContractState.SUSPENDED), 0, 0)
        == "the contract is suspended"
    )
    assert objection_to_offer(offer(), booked(), 0, CONTRACT.valid_to_ms) == "the contract is ended"


def test_fo2_a_good_answer_is_taken_up() -> None:
    assert accepted_tasks(answer(), offer(), CONTRACT) == (AcceptedTask("north.a", 10, 900),)
    assert accepted_tasks(replace(answer(), tasks=()), offer(), CONTRACT) == ()


@pytest.mark.parametrize(
    "changes", [{"number": 2}, {"contract_id": "x"}, {"version": 2}, {"seller": "east"}]
)
def test_fo2_an_answer_to_something_else_is_none(changes: dict[str, Any]) -> None:
    assert accepted_tasks(replace(answer(), **changes), offer(), CONTRACT) is None


@pytest.mark.parametrize(
    "task",
    [
        AcceptedTask("north.b", 10, 900),
        AcceptedTask("north.a", 11, 900),
        AcceptedTask("north.a", 10, 951),
        AcceptedTask("north.a", 10, 799),
    ],
)
def test_fo2_an_answer_with_a_task_load_or_price_that_was_not_offered_is_a_rejection(
    task: AcceptedTask,
) -> None:
    assert accepted_tasks(answer(1, task), offer(), CONTRACT) == ()
    assert (
        accepted_tasks(answer(1, AcceptedTask("north.a", 10, 900), task), offer(), CONTRACT) == ()
    )


def test_fo2_the_contract_bounds_what_the_offer_does_not() -> None:
    assert accepted_tasks(answer(), offer(), contract(delta=50)) == ()
