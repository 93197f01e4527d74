"""Equivalent plans of one query, and when they switch."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.plan_switching import (
    TRANSITIONS,
    MovementContract,
    PlanSwitch,
    PlanWord,
    SwitchState,
    Word,
    agrees,
    proposes,
)

CONTRACT = MovementContract(
    "tolls",
    ("north", "south"),
    "north.tolls",
    ("plain", "filter-at-south", "all-at-south"),
    5_000,
    50,
)


def word(
    kind: Word, by: str = "north", number: int = 1, plan: int = 1, contract_id: str = "tolls"
) -> PlanWord:
    return PlanWord(contract_id, by, kind, number, plan)


def after(*words: PlanWord) -> PlanSwitch:
    made = PlanSwitch(CONTRACT)
    assert [made.add(each, 0) for each in words] == [""] * len(words)
    return made


PROPOSED, AGREED = word(Word.PROPOSED), word(Word.AGREED, "south")


def test_fx1_a_plan_changes_when_both_have_agreed_and_it_is_done() -> None:
    made = after(PROPOSED)
    assert (made.in_force, made.state) == ("plain", SwitchState.PROPOSED)
    assert made.add(AGREED, 5_000) == ""
    assert (made.in_force, made.next_plan) == ("plain", 1)
    assert made.add(word(Word.SWITCHED), 9_000) == ""
    assert (made.in_force, made.state) == ("filter-at-south", SwitchState.STEADY)


@pytest.mark.parametrize(
    "last", [(word(Word.DECLINED, "south"),), (word(Word.DECLINED),), (AGREED, word(Word.FAILED))]
)
def test_fx1_otherwise_it_stays_and_the_next_proposal_has_the_next_number(
    last: tuple[PlanWord, ...],
) -> None:
    made = after(PROPOSED, *last)
    assert (made.in_force, made.state) == ("plain", SwitchState.STEADY)
    assert made.add(PROPOSED, 0) == "the next proposal is 2"
    assert made.add(word(Word.PROPOSED, "south", 2, 2), 0) == ""


@pytest.mark.parametrize(
    ("rejected", "at_ms", "text"),
    [
        (word(Word.AGREED), 0, "the other side agrees"),
        (AGREED, 5_001, "the proposal is over"),
        (word(Word.AGREED, "south", 2), 0, "the proposal is 1"),
        (word(Word.AGREED, "east"), 0, "not by a party"),
        (word(Word.AGREED, "south", contract_id="other"), 0, "not by a party"),
        (word(Word.SWITCHED), 0, "the contract is proposed"),
        (word(Word.PROPOSED, number=2), 0, "the contract is proposed"),
    ],
)
def test_fx1_what_does_not_count(rejected: PlanWord, at_ms: int, text: str) -> None:
    made = after(PROPOSED)
    assert text in made.add(rejected, at_ms)
    assert (made.state, made.plan) == (SwitchState.PROPOSED, 0)


@pytest.mark.parametrize("plan", [0, -1, 3])
def test_only_another_plan_of_the_contract_is_proposed(plan: int) -> None:
    assert PlanSwitch(CONTRACT).add(word(Word.PROPOSED, plan=plan), 0) == "no other plan"


@pytest.mark.parametrize(
    "words", [(), (PROPOSED,), (PROPOSED, AGREED), (PROPOSED, AGREED, word(Word.SWITCHED))]
)
@pytest.mark.parametrize("by", ["north", "south"])
def test_fx3_either_side_cancels_and_the_first_plan_applies_for_good(
    words: tuple[PlanWord, ...], by: str
) -> None:
    made = after(*words, word(Word.CANCELLED, by, 0))
    assert made.in_force == "plain"
    assert [made.add(word(kind, "south", 2, 1), 0) for kind in Word] == [
        "the contract is cancelled"
    ] * len(Word)


PROFITS = st.lists(
    st.tuples(st.integers(-1_000, 1_000), st.integers(-1_000, 1_000)), min_size=3, max_size=3
)


@given(PROFITS, st.integers(0, 200))
def test_fx2_both_gain_by_each_switch_so_switching_ends(
    profits: list[tuple[int, int]], gain: int
) -> None:
    sides = {"north": [north for north, _ in profits], "south": [south for _, south in profits]}
    made = PlanSwitch(CONTRACT)
    number = 0
    visited = [0]
    moved = True
    while moved:
        moved = False
        for by, other in (("north", "south"), ("south", "north")):
            plan = proposes(sides[by], made.plan, gain)
            if plan is None or not agrees(sides[other], made.plan, plan, gain):
                continue
            assert all(side[plan] > side[made.plan] for side in sides.values())
            number += 1
            assert made.add(word(Word.PROPOSED, by, number, plan), 0) == ""
            assert made.add(word(Word.AGREED, other, number), 0) == ""
            assert made.add(word(Word.SWITCHED, by, number), 0) == ""
            assert plan not in visited
            visited.append(plan)
            moved = True


def test_a_gain_below_the_margin_is_none() -> None:
    assert proposes([1_000, 1_051], 0, 50) == 1
    assert proposes([1_000, 1_050], 0, 50) is None
    assert proposes([5, 5, 5], 1, 0) is None
    assert agrees([-100, -90], 0, 1, 50)
    assert not agrees([-100, -96], 0, 1, 50)


def test_each_state_can_be_left_but_cancelled_and_each_word_is_heard() -> None:
    assert {before for before, _ in TRANSITIONS} == set(SwitchState) - {SwitchState.CANCELLED}
    assert set(TRANSITIONS.values()) == set(SwitchState)
    assert {kind for _, kind in TRANSITIONS} == set(Word)


def test_no_words_of_one_side_alone_change_the_plan() -> None:
    for words in product(Word, repeat=4):
        made = PlanSwitch(CONTRACT)
        for kind in words:
            made.add(word(kind, number=made.number + (kind is Word.PROPOSED)), 0)
        assert made.plan == 0
