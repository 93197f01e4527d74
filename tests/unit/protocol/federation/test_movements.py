"""Which movements there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.movements import (
    NODES_MAX,
    TRANSITIONS,
    Ended,
    EndReason,
    Movement,
    MovementEntry,
    MovementLog,
    MovementState,
    Placed,
    Started,
    Unfinished,
    Withdrawn,
    is_news,
    movement_id,
    offer_number,
)
from anabranch.protocol.federation.offers import AcceptedTask
from harness.markets import CONTRACT, answer, contract, signature, started, verify

NAME = "north-south:1/north.a"


def log() -> MovementLog:
    return MovementLog(CONTRACT, verify)


def withdrawn(by: str = "south", name: str = NAME) -> Withdrawn:
    return Withdrawn("north-south", name, by, 5)


def ended(by: str = "north", name: str = NAME, at_ms: int = 20_000) -> Ended:
    return Ended("north-south", name, by, at_ms, EndReason.RECALLED)


def placed(number: int, node: str = "west.0", by: str = "south") -> Placed:
    return Placed("north-south", NAME, by, 5, number, node)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (movement_id("north-south", 1_795_760_408_527, "north.a"), 1_795_760_408_527),
        ("another:7/north.a", 0),
        ("north-south:-7/north.a", 0),
        (f"north-south:{'9' * 19}/north.a", 0),
        ("", 0),
    ],
)
def test_the_offer_that_a_movement_comes_from(name: str, number: int) -> None:
    assert offer_number(name, "north-south") == number


def test_a_movement_starts_runs_and_ends() -> None:
    found = log()
    assert found.add(started(answer()), 7) == ""
    movement = found.find(NAME)
    assert movement == Movement(NAME, MovementState.RUNNING, "north.a", 10, 900, 1, 7)
    assert found.add(ended(), 20_000) == ""
    assert list(found) == [
        replace(
            movement,
            state=MovementState.OVER,
            ended_ms=20_000,
            ended_by="north",
            why=EndReason.RECALLED,
        )
    ]


def test_what_would_change_nothing_is_no_news() -> None:
    made = log()
    assert is_news(None, withdrawn())
    assert not is_news(None, ended())
    assert made.add(started(answer()), 10_000) == ""
    assert is_news(made.find(NAME), ended())
    assert is_news(made.find(NAME), placed(1))
    assert not is_news(made.find(NAME), withdrawn())
    assert made.add(ended(), 20_000) == ""
    assert not any(is_news(made.find(NAME), entry) for entry in (ended(), withdrawn(), placed(1)))


def test_fm2_of_started_and_withdrawn_the_first_counts() -> None:
    found = log()
    assert found.add(withdrawn(), 0) == ""
    assert found.add(started(answer()), 0) == "the movement is void"
    found = log()
    assert found.add(started(answer()), 0) == ""
    assert found.add(withdrawn("north"), 0) == "the movement is running"
    assert [movement.state for movement in found] == [MovementState.RUNNING]


@pytest.mark.parametrize("name", ["south-west:1/north.a", "north-southern:1/north.a", "m", ""])
def test_a_movement_of_another_contract_is_not_withdrawn_here(name: str) -> None:
    found = log()
    assert found.add(withdrawn(name=name), 0) == "the movement is of another contract"
    assert list(found) == []


def test_fm1_fm2_what_is_over_stays_over() -> None:
    found = log()
    assert found.add(ended(), 0) == "no such movement"
    assert found.add(started(answer()), 0) == ""
    assert found.add(ended("south"), 0) == ""
    assert [found.add(entry, 0) for entry in (started(answer()), ended(), withdrawn())] == [
        "the movement is over"
    ] * 3


def test_fm3_a_task_runs_under_one_movement_at_a_time() -> None:
    found = log()
    assert found.add(started(answer(1)), 0) == ""
    assert found.add(started(answer(2)), 0) == "the task runs under another movement"
    assert found.add(started(answer(2, AcceptedTask("north.b", 5, 850)), "north.b"), 0) == ""
    assert found.add(ended(), 0) == ""
    assert found.add(started(answer(3)), 0) == ""


def test_a_movement_keeps_the_version_under_which_it_began() -> None:
    found = log()
    assert (
        found.add(started(replace(answer(), version=2)), 0)
        == "the answer is under another contract"
    )
    found.renewed(contract(version=2, fixed_price=5_000))
    dear = replace(answer(1, AcceptedTask("north.a", 10, 4_900)), version=2)
    assert found.add(started(dear), 0) == ""
    movement = found.find(NAME)
    assert movement is not None
    assert found.contract(movement.version).fixed_price == 5_000
    assert found.contract(1) == CONTRACT


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (replace(started(answer()), contract_id="x"), "not by a party"),
        (withdrawn("east"), "not by a party"),
        (started(answer(), by="south"), "started by its buyer"),
        (started(replace(answer(), seller="east")), "started by its buyer"),
        (
            started(replace(answer(), contract_id="x"), contract_id="north-south"),
            "under another contract",
        ),
        (started(answer(), signature=signature(answer(2), "south")), "not signed by the seller"),
        (started(answer(), signature=signature(answer(), "north")), "not signed by the seller"),
        (started(answer(), "north.b"), "does not take this task"),
        (started(answer(), movement_id="north-south:9/north.a"), "does not take this task"),
        (started(answer(1, AcceptedTask("north.a", 10, 1_001))), "out of the contract's bound"),
        (started(answer(1, AcceptedTask("north.a", 10, 799))), "out of the contract's bound"),
        (started(answer(1, AcceptedTask("north.a", 0, 900))), "out of the contract's bound"),
        (
            started(answer(1, AcceptedTask("north.x", 10, 900)), "north.x"),
            "out of the contract's bound",
        ),
    ],
)
def test_fm1_what_does_not_start_a_movement(entry: MovementEntry, text: str) -> None:
    found = log()
    assert text in found.add(entry, 0)
    assert list(found) == []


def test_fm4_the_seller_says_where_a_task_runs_each_word_once() -> None:
    found = log()
    assert found.add(placed(1), 0) == "no such movement"
    assert found.add(started(answer()), 0) == ""
    movement = found[NAME]
    assert (movement.node, movement.nodes) == ("", ())
    assert found.add(placed(1), 0) == ""
    assert found.add(placed(1), 0) == "another word of the seller's is the next"
    assert found.add(placed(3, "south.0"), 0) == "another word of the seller's is the next"
    assert found.add(placed(2, "south.0"), 0) == ""
    assert found.add(placed(3), 0) == ""
    assert found[NAME] == replace(movement, nodes=("west.0", "south.0"), node="west.0", placed=3)
    assert found.add(ended(), 20_000) == ""
    assert found.add(placed(4), 0) == "the movement is over"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (placed(1, by="north"), "its seller's word"),
        (placed(1, by="west"), "not by a party"),
        (placed(1, "north.0"), "no node of its buyer's"),
        (placed(1, "north.7"), "no node of its buyer's"),
        (placed(1, "west"), "names no node"),
        (placed(1, ""), "names no node"),
        (placed(1, ".0"), "names no node"),
        (placed(1, "west.x"), "names no node"),
        (placed(1, "west.0.1"), "names no node"),
        (placed(1, "West.0"), "names no node"),
        (placed(1, "west.\u0663"), "names no node"),
        (placed(0), "is the next"),
    ],
)
def test_fm4_what_names_no_node(entry: Placed, text: str) -> None:
    found = log()
    assert found.add(started(answer()), 0) == ""
    before = found[NAME]
    assert text in found.add(entry, 0)
    assert found[NAME] == before


def test_fm4_a_movement_names_so_many_nodes() -> None:
    found = log()
    assert found.add(started(answer()), 0) == ""
    for number in range(1, NODES_MAX + 1):
        assert found.add(placed(number, f"west.{number}"), 0) == ""
    assert found.add(placed(NODES_MAX + 1), 0) == "it names too many nodes"
    assert found.add(placed(NODES_MAX + 1, "west.1"), 0) == ""


def test_a_movement_lasts_from_the_logs_time_of_its_start_to_that_of_its_end() -> None:
    """The times that the two sides write are their own."""
    found = log()
    assert found.add(started(answer(), at_ms=5), 1_000) == ""
    assert found.add(ended(at_ms=10), 3_000) == ""
    assert [(each.started_ms, each.ended_ms) for each in found] == [(1_000, 3_000)]


def entries() -> st.SearchStrategy[list[MovementEntry]]:
    numbers, parties = st.integers(1, 3), st.sampled_from(["north", "south"])
    names = numbers.map(lambda number: f"north-south:{number}/north.a")
    one: Any = st.one_of(
        numbers.map(lambda n: started(answer(n))),
        st.builds(withdrawn, parties, names),
        st.builds(ended, parties, names),
    )
    return st.lists(one, max_size=15)


@given(entries())
def test_any_order_of_entries_and_any_repetition(given_entries: list[MovementEntry]) -> None:
    """At most one movement runs, each has one life, and what was rejected left no trace."""
    found = log()
    lives: dict[str, list[str]] = {}
    counted = []
    for entry in given_entries:
        if not found.add(entry, 0):
            counted.append(entry)
            lives.setdefault(entry.movement_id, []).append(type(entry).__name__)
        assert sum(each.state is MovementState.RUNNING for each in found) <= 1
    assert set(map(tuple, lives.values())) <= {("Started",), ("Started", "Ended"), ("Withdrawn",)}
    assert list(log_of(counted)) == list(found)


def log_of(given_entries: list[MovementEntry]) -> MovementLog:
    found = log()
    for entry in given_entries:
        found.add(entry, 0)
    return found


def test_the_table_begins_with_nothing_and_ends_with_void_or_over() -> None:
    befores, afters = {before for before, _ in TRANSITIONS}, set(TRANSITIONS.values())
    assert afters - befores == {MovementState.VOID, MovementState.OVER}
    assert befores - afters == {None}
    assert {entry for _, entry in TRANSITIONS} == {Started, Withdrawn, Placed, Ended}


def test_who_is_done_with_a_movement_does_not_come_to_it_again() -> None:
    """A ledger has all that there ever were."""
    found, unfinished = log(), Unfinished()
    assert unfinished.of(found) == []
    assert found.add(withdrawn(name="north-south:9/north.a"), 0) == ""
    assert found.add(started(answer()), 0) == ""
    assert unfinished.of(found) == [found[NAME]]
    assert found.add(ended(), 5) == ""
    assert [each.state for each in unfinished.of(found)] == [MovementState.OVER]
    unfinished.done(NAME)
    unfinished.done(NAME)
    assert found.add(started(answer(2)), 6) == ""
    assert [each.movement_id for each in unfinished.of(found)] == ["north-south:2/north.a"]
    assert len(found) == 3
