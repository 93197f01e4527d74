"""Equivalent plans of one query, and when they switch."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation import plan_switching
from anabranch.protocol.federation.plan_switching import (
    TRANSITIONS,
    PlanChange,
    PlanSwitch,
    PlanWord,
    SwitchState,
    Word,
    agrees,
    proposes,
)
from harness.contents import content
from harness.plans import AGREED, PLANS, PROPOSED, SWITCHED, plans, switched, word


def test_fx1_a_plan_changes_when_both_have_agreed_and_it_is_done() -> None:
    made = switched(PROPOSED)
    assert (made.plan, made.state, made.by) == (0, SwitchState.PROPOSED, "north")
    assert made.add(AGREED, 5_000, may_switch=True) == ""
    assert (made.plan, made.next_plan) == (0, 1)
    assert made.add(SWITCHED, 9_000, may_switch=True) == ""
    assert (made.plan, made.state, made.active_number) == (1, SwitchState.STEADY, 1)
    assert made.changes == [
        PlanChange(0, 0, "agreed"),
        PlanChange(9_000, 1, "switched", "billing"),
    ]
    assert [made.plan_at(at_ms) for at_ms in (-1, 0, 8_999, 9_000)] == [None, 0, 0, 1]


@pytest.mark.parametrize(
    "last", [(word(Word.DECLINED, "billing"),), (word(Word.DECLINED),), (AGREED,)]
)
def test_fx1_otherwise_it_stays_and_the_next_proposal_has_the_next_number(
    last: tuple[PlanWord, ...],
) -> None:
    made = switched(PROPOSED, *last)
    if last == (AGREED,):
        switched(word(Word.FAILED), at_ms=20_001, of=made)
    assert (made.plan, made.state) == (0, SwitchState.STEADY)
    assert list(made.turned_down) == [1]
    assert made.add(PROPOSED, 30_000, may_switch=True) == "not the next proposal"
    assert made.add(word(Word.PROPOSED, "billing", 2, 2), 30_000, may_switch=True) == ""


@pytest.mark.parametrize(
    ("rejected", "at_ms", "text"),
    [
        (word(Word.AGREED), 0, "the other side agrees"),
        (AGREED, 5_001, "the contract is steady"),
        (word(Word.AGREED, "billing", 2), 0, "not the present proposal"),
        (word(Word.AGREED, "billing", 1, 2), 0, "not the plan that is proposed"),
        (word(Word.AGREED, "east"), 0, "not by a party of the contract"),
        (replace(AGREED, contract_id="other"), 0, "not by a party of the contract"),
        (SWITCHED, 0, "the contract is proposed"),
        (word(Word.PROPOSED, number=2), 0, "the contract is proposed"),
        (word(Word.FAILED), 30_000, "the contract is steady"),
    ],
)
def test_fx1_what_does_not_count(rejected: PlanWord, at_ms: int, text: str) -> None:
    made = switched(PROPOSED)
    assert made.add(rejected, at_ms, may_switch=True) == text
    assert made.plan == 0


def test_fx1_nothing_is_proposed_or_agreed_to_while_the_contract_is_not_in_force() -> None:
    made = PlanSwitch(PLANS, 0)
    assert made.add(PROPOSED, 0, may_switch=False) == "the contract is not in force"
    switched(PROPOSED, of=made)
    assert made.add(AGREED, 0, may_switch=False) == "the contract is not in force"
    assert made.add(word(Word.DECLINED), 0, may_switch=False) == ""


def test_fx1_only_the_receiver_says_that_it_is_done() -> None:
    made = switched(PROPOSED, AGREED)
    assert made.add(word(Word.SWITCHED), 0, may_switch=True) == "not by the receiver"
    assert made.add(SWITCHED, 0, may_switch=False) == "", "it was agreed to in time"


@pytest.mark.parametrize("plan", [0, -1, 3])
def test_only_another_plan_of_the_contract_is_proposed(plan: int) -> None:
    made = PlanSwitch(PLANS, 0)
    assert made.add(word(Word.PROPOSED, plan=plan), 0, may_switch=True) == "no other plan"


@pytest.mark.parametrize(
    "words", [(), (PROPOSED,), (PROPOSED, AGREED), (PROPOSED, AGREED, SWITCHED)]
)
@pytest.mark.parametrize("by", ["north", "billing"])
def test_fx3_either_side_cancels_and_the_plain_plan_applies_for_good(
    words: tuple[PlanWord, ...], by: str
) -> None:
    made = switched(*words, word(Word.CANCELLED, by, 0))
    assert made.plan == 0
    assert [made.add(word(kind, "billing", 2, 1), 99_000, may_switch=True) for kind in Word] == [
        "the contract is cancelled"
    ] * len(Word)
    made.plain(99_000, "suspended", "north")
    assert (made.state, made.changes[-1].why) == (SwitchState.CANCELLED, "cancelled")


def test_fx4_a_plan_stays_for_the_minimum_hold() -> None:
    made = PlanSwitch(plans(min_hold_ms=60_000), 1_000)
    for at_ms, text in ((60_999, "the plan stays for its minimum hold"), (61_000, "")):
        assert made.add(PROPOSED, at_ms, may_switch=True) == text
    switched(AGREED, SWITCHED, at_ms=61_000, of=made)
    again = word(Word.PROPOSED, "billing", 2, 0)
    assert made.add(again, 120_999, may_switch=True) == "the plan stays for its minimum hold"
    fell_back = word(Word.FELL_BACK, "billing")
    assert made.add(fell_back, 62_000, may_switch=True) == "", "the plain one applies at once"


def test_fx5_a_proposal_is_over_by_itself() -> None:
    made = switched(PROPOSED)
    assert [made.state_at(at_ms) for at_ms in (5_000, 5_001)] == [
        SwitchState.PROPOSED,
        SwitchState.STEADY,
    ]
    assert made.add(word(Word.PROPOSED, "billing", 2), 5_001, may_switch=True) == ""
    assert (made.by, made.turned_down) == ("billing", {1: 5_000})


@pytest.mark.parametrize("by", ["north", "billing"])
def test_fx5_a_switch_that_takes_too_long_is_given_up_by_either_side(by: str) -> None:
    made = switched(PROPOSED, AGREED)
    failed = word(Word.FAILED, by)
    assert made.add(failed, 20_000, may_switch=True) == "before the deadline"
    assert made.add(failed, 20_001, may_switch=True) == ""
    assert made.add(SWITCHED, 20_001, may_switch=True) == "the contract is steady"
    assert (made.plan, made.turned_down) == (0, {1: 20_001})


def test_the_receiver_falls_back_to_the_plain_plan() -> None:
    made = switched(PROPOSED, AGREED, SWITCHED)
    fell_back = word(Word.FELL_BACK, "billing")
    assert made.add(replace(fell_back, by="north"), 0, may_switch=True) == "not by the receiver"
    assert made.add(replace(fell_back, number=2), 0, may_switch=True) == "not the active plan"
    switched(word(Word.PROPOSED, "north", 2, 2), of=made)
    assert made.add(fell_back, 7, may_switch=False) == "", "whatever is proposed"
    assert (made.plan, made.turned_down) == (0, {1: 7})
    assert made.add(fell_back, 7, may_switch=True) == "not the active plan"
    again = (
        word(Word.PROPOSED, "north", 3),
        word(Word.AGREED, "billing", 3),
        word(Word.SWITCHED, "billing", 3),
    )
    switched(*again, at_ms=7, of=made)
    assert made.add(fell_back, 7, may_switch=True) == "not the active plan", "FX6"
    assert made.plan == 1


def test_the_plain_plan_applies_from_when_the_contract_is_not_in_force() -> None:
    made = switched(PROPOSED, AGREED)
    made.plain(5, "suspended", "north")
    assert (made.plan, made.state, len(made.changes)) == (0, SwitchState.STEADY, 1)
    switched(
        word(Word.PROPOSED, number=2),
        word(Word.AGREED, "billing", 2),
        word(Word.SWITCHED, "billing", 2),
        of=made,
    )
    made.plain(9, "notice", "billing")
    assert made.changes[-1] == PlanChange(9, 0, "notice", "billing")


def left(of: PlanSwitch) -> list[bool]:
    """In each of four periods of 10 ms."""
    return [of.was_left(10 * number, 10 * number + 10) for number in range(4)]


def test_a_plan_is_being_left_from_the_moment_on_at_which_that_is_agreed() -> None:
    made = switched(PROPOSED, AGREED, SWITCHED)
    assert left(made) == [False] * 4, "the plain one has nothing at the sender"
    switched(
        word(Word.PROPOSED, "north", 2, 0), word(Word.AGREED, "billing", 2, 0), at_ms=15, of=made
    )
    assert left(made) == [False, True, True, True]
    switched(word(Word.SWITCHED, "billing", 2), at_ms=25, of=made)
    assert left(made) == [False, True, True, False]


@pytest.mark.parametrize("how", ["cancelled", "suspended", "fell back", "failed"])
def test_a_plan_is_left_by_right_at_once(how: str) -> None:
    made = switched(PROPOSED, AGREED, SWITCHED)
    if how == "cancelled":
        switched(word(Word.CANCELLED, "north", 0), at_ms=15, of=made)
    elif how == "suspended":
        made.plain(15, how, "north")
    elif how == "fell back":
        switched(word(Word.FELL_BACK, "billing"), at_ms=15, of=made)
    else:
        switched(
            word(Word.PROPOSED, "north", 2, 2),
            word(Word.AGREED, "billing", 2, 2),
            at_ms=15,
            of=made,
        )
        switched(word(Word.FAILED, "north", 2), at_ms=20_016, of=made)
        assert made.was_left(20_010, 20_020)
        assert not made.was_left(20_020, 20_030)
        return
    assert left(made) == [False, how != "fell back", False, False]


def test_one_that_is_being_left_may_be_cancelled_too() -> None:
    made = switched(PROPOSED, AGREED, SWITCHED)
    switched(
        word(Word.PROPOSED, "north", 2, 0), word(Word.AGREED, "billing", 2, 0), at_ms=5, of=made
    )
    switched(word(Word.CANCELLED, "north", 0), at_ms=15, of=made)
    assert left(made) == [True, True, False, False]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_switching, "CHANGES_MAX", 2)
    made = PlanSwitch(PLANS, 0)
    for number in range(1, 7):
        by_both = [
            word(Word.PROPOSED, "north", number, number % 2),
            word(Word.AGREED, "billing", number, number % 2),
            word(Word.SWITCHED, "billing", number),
        ]
        switched(*by_both, at_ms=10 * number, of=made)
    assert len(made.changes) == 2
    assert [made.plan_at(at_ms) for at_ms in (49, 50, 60)] == [None, 1, 0]


def test_fx6_a_log_that_is_written_twice_says_the_same() -> None:
    words = (
        PROPOSED,
        AGREED,
        SWITCHED,
        word(Word.PROPOSED, "billing", 2, 2),
        word(Word.DECLINED, "north", 2),
        word(Word.FELL_BACK, "billing", 1),
        word(Word.CANCELLED, "north", 0),
    )
    made = PlanSwitch(PLANS, 0)
    for number, each in enumerate(words):
        assert made.add(each, number, may_switch=True) == ""
        before = (made.state, made.plan, made.number, list(made.changes))
        for old in words[: number + 1]:
            assert made.add(old, number, may_switch=True) != ""
        assert (made.state, made.plan, made.number, list(made.changes)) == before


PROFITS = st.lists(
    st.tuples(st.integers(-1_000, 1_000), st.integers(-1_000, 1_000)), min_size=3, max_size=3
)


@given(PROFITS, st.integers(0, 200))
def test_fx2_both_gain_by_each_switch_so_switching_ends(
    profits: list[tuple[int, int]], gain: int
) -> None:
    sides = {"north": [north for north, _ in profits], "billing": [other for _, other in profits]}
    made = PlanSwitch(PLANS, 0)
    number = 0
    visited = [0]
    moved = True
    while moved:
        moved = False
        for by, other in (("north", "billing"), ("billing", "north")):
            plan = proposes(sides[by], made.plan, gain)
            if plan is None or not agrees(sides[other], made.plan, plan, gain):
                continue
            assert all(side[plan] > side[made.plan] for side in sides.values())
            number += 1
            switched(
                word(Word.PROPOSED, by, number, plan),
                word(Word.AGREED, other, number, plan),
                word(Word.SWITCHED, "billing", number),
                of=made,
            )
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


@pytest.mark.parametrize("by", ["north", "billing"])
def test_no_words_of_one_side_alone_make_another_plan_the_active_one(by: str) -> None:
    for words in product(Word, repeat=4):
        made = PlanSwitch(PLANS, 0)
        for kind in words:
            number = made.number + (kind is Word.PROPOSED)
            made.add(word(kind, by, number), 30_000, may_switch=True)
        assert made.plan == 0


@pytest.mark.parametrize("kind", Word)
def test_where_there_is_one_plan_no_statement_about_plans_counts(kind: Word) -> None:
    made = PlanSwitch(content(), 0)
    assert made.add(word(kind), 0, may_switch=True) == "the contract has one plan"
    assert (made.state, made.plan) == (SwitchState.STEADY, 0)
