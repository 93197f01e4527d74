"""The history of a movement contract, from its first text to its last settlement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.content_contracts import Tier
from anabranch.protocol.federation.contract_book import Change, ContractChange, ContractState
from anabranch.protocol.federation.ledger import DISPUTES_MAX, Settled
from anabranch.protocol.federation.plan_ledger import PlanLedger, PlanLog
from anabranch.protocol.federation.plan_switching import PlanWord, SwitchState, Word
from harness.examples import examples
from harness.plans import (
    AGREED,
    PLAIN,
    PLAN_CONTRACT_ID,
    PLANS,
    PROPOSED,
    SWITCHED,
    figures,
    plan_log,
    plans,
    say,
    verify_at,
    word,
)
from harness.written_twice import says_the_same

PERIOD = 10_000
LATE = 20 * PERIOD
RATE = 100 * 1_000
"""Due for 100 messages at one micro-unit."""


def ledger(of: PlanLog) -> PlanLedger:
    assert of.ledger is not None
    return of.ledger


def change(kind: Change, by: str = "billing", number: int = 1, at_ms: int = 0) -> ContractChange:
    return ContractChange(PLAN_CONTRACT_ID, 1, by, kind, number, at_ms)


def moved(at_ms: int, **changes: Any) -> PlanLog:
    """To plan 1, at this time."""
    made = plan_log(**changes)
    for each in (PROPOSED, AGREED, SWITCHED):
        assert say(made, each, at_ms=at_ms) == ""
    return made


def test_mp1_a_period_is_charged_under_the_plan_that_was_active_when_it_began() -> None:
    made = moved(PERIOD + 1, plans=(PLAIN, replace(PLANS.plans[1], tiers=(Tier(0, 70),))))
    assert say(made, word(Word.CANCELLED, "north", 0), at_ms=3 * PERIOD) == ""
    assert [ledger(made).plan(period) for period in range(5)] == [0, 0, 1, 0, 0]
    found = [ledger(made).terms(period) for period in range(4)]
    assert [each and each.pipeline for each in found] == ["north", "north", "billing", "north"]
    for period in range(4):
        for by in ("north", "billing"):
            assert say(made, figures(period, by), at_ms=LATE) == ""
    assert [ledger(made).due(period) for period in range(4)] == [
        10 * RATE,
        10 * RATE,
        70 * RATE,
        10 * RATE,
    ]
    for period in range(4):
        due = ledger(made).due(period)
        assert say(made, Settled(PLAN_CONTRACT_ID, "auditor", period, due), at_ms=LATE) == ""
    assert ledger(made).balances() == {"north": 100 * RATE, "billing": -100 * RATE}


def test_mp1_a_plan_that_is_not_remembered_charges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = moved(PERIOD)
    del ledger(made).switch.changes[0]
    assert [ledger(made).terms(period) is None for period in range(3)] == [True, False, False]


def test_results_are_anybodys_in_a_period_in_which_their_plan_was_left() -> None:
    made = moved(1)
    for each in (word(Word.PROPOSED, "north", 2, 0), word(Word.AGREED, "billing", 2, 0)):
        assert say(made, each, at_ms=2 * PERIOD + 5) == ""
    assert say(made, word(Word.SWITCHED, "billing", 2), at_ms=3 * PERIOD + 5) == ""
    assert [ledger(made).is_anybodys(period) for period in range(5)] == [
        False,
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("kind", [Change.SUSPENDED, Change.NOTICE])
def test_fx1_the_plain_plan_applies_from_a_suspension_or_notice_on(kind: Change) -> None:
    made = moved(1)
    assert made.is_in_force(1)
    assert say(made, change(kind, at_ms=PERIOD), at_ms=PERIOD) == ""
    switch = ledger(made).switch
    assert (switch.plan, switch.changes[-1].why, switch.changes[-1].by) == (0, kind, "billing")
    assert not made.is_in_force(PERIOD)
    proposal = word(Word.PROPOSED, number=2)
    assert say(made, proposal, at_ms=PERIOD) == "the contract is not in force"
    if kind is Change.SUSPENDED:
        assert say(made, change(Change.RESUMED, number=2, at_ms=PERIOD), at_ms=PERIOD) == ""
        assert say(made, proposal, at_ms=PERIOD) == ""
        assert switch.plan == 0


def test_before_both_have_signed_there_are_no_plans() -> None:
    made = PlanLog(PLAN_CONTRACT_ID, verify_at, "auditor")
    assert not made.is_in_force(0)
    assert say(made, PROPOSED) == "of no contract that is known"
    assert say(made, PLANS, "south") == "by nobody whose right it is"
    assert say(made, plans(plans=(PLAIN,)), "north") == "not a valid contract"
    assert say(made, PLANS, "north") == ""
    assert say(made, PROPOSED) == "of no contract that is known"
    assert say(made, PLANS, "billing", 7) == ""
    assert ledger(made).switch.changes[0].at_ms == 7


def test_fr1_a_word_counts_if_its_speaker_has_signed_it() -> None:
    made = plan_log()
    for statement in (PROPOSED, word(Word.CANCELLED), figures(0)):
        assert say(made, statement, "billing", LATE) == "not signed by whom it must be"
    assert say(made, replace(PROPOSED, contract_id="other")) == "not of this contract"
    assert say(made, replace(PROPOSED, by="south")) == "not by a party of the contract"
    assert say(made, figures(0, "south"), at_ms=LATE) == "not by a party of the contract"
    stranger = Settled(PLAN_CONTRACT_ID, "south", 0, 0)
    assert say(made, stranger, at_ms=LATE) == "not by a party of the contract"
    assert ledger(made).switch.state is SwitchState.STEADY


def test_a_new_version_has_other_prices_and_the_same_plans() -> None:
    made = moved(1)
    dearer = tuple(replace(each, tiers=(Tier(0, 90),)) for each in PLANS.plans)
    other = plans(version=2, plans=dearer[:2])
    assert say(made, other, "north", 2) == "says something else than what both signed"
    for party in ("north", "billing"):
        assert say(made, plans(version=2, plans=dearer, min_hold_ms=9), party, PERIOD + 1) == ""
    assert (ledger(made).switch.contract.min_hold_ms, ledger(made).switch.plan) == (9, 1)
    for period in (1, 2):
        say(made, figures(period), at_ms=LATE)
    assert [ledger(made).due(period) for period in (1, 2)] == [10 * RATE, 90 * RATE]


def test_fr4_disputes_suspend_the_contract() -> None:
    made = moved(1)
    for period in range(DISPUTES_MAX):
        for by, messages in (("north", 10), ("billing", 9)):
            assert say(made, figures(period, by, messages), at_ms=LATE) == ""
    assert made.reason_to_suspend("billing") == f"{DISPUTES_MAX} periods are in dispute"
    assert made.booked is not None
    assert made.booked.state is ContractState.ACTIVE


STATEMENTS: list[tuple[Any, str]] = [
    *(
        (PlanWord(PLAN_CONTRACT_ID, by, kind, number, plan), by)
        for by in ("north", "billing")
        for kind in Word
        for number, plan in ((1, 1), (2, 0))
    ),
    *((figures(period, by, 50), by) for period in (0, 1) for by in ("north", "billing")),
    (Settled(PLAN_CONTRACT_ID, "north", 0, 5 * RATE), "north"),
    (change(Change.SUSPENDED), "billing"),
    (change(Change.RESUMED, number=2), "billing"),
]


@examples(100)
@given(
    st.lists(
        st.tuples(st.sampled_from(STATEMENTS), st.sampled_from([0, 400, 13_000])), max_size=25
    ),
    st.data(),
)
def test_fr2_a_log_that_is_written_twice_says_the_same(
    records: list[tuple[tuple[Any, str], int]], data: st.DataObject
) -> None:
    once, again = (PlanLog(PLAN_CONTRACT_ID, verify_at, "auditor") for _ in range(2))
    for made in (once, again):
        for party in ("north", "billing"):
            say(made, PLANS, party)
    says_the_same(once, again, records, data, state, [(PLANS, "north")])


def state(of: PlanLog, now_ms: int) -> object:
    found = ledger(of)
    assert found.plan(now_ms // PERIOD) in {0, 1}
    switch = found.switch
    seen = switch.state_at(now_ms), switch.plan, switch.number, switch.changes
    return of.booked, seen, found.postings, found.unsettled(), found.settled
