"""The history of a contract for a stream, from its first text to its last settlement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.contract_book import Change, ContractChange, ContractState
from anabranch.protocol.federation.ledger import DISPUTES_MAX, Settled
from anabranch.protocol.federation.plan_switching import PlanWord, SwitchState, Word
from anabranch.protocol.federation.statements import Signature
from anabranch.protocol.federation.stream_contracts import Tier
from anabranch.protocol.federation.stream_ledger import StreamEntry, StreamLedger
from anabranch.protocol.federation.stream_log import StreamLog, StreamStatement
from harness.contents import SUGGESTED, TOLLS, content, content_metered
from harness.examples import examples
from harness.markets import signature, verify
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
)
from harness.plans import say as speak
from harness.plans import word as plan_word
from harness.written_twice import says_the_same

MINUTE = 60_000
FULL = 50 * 1_000 * 1_000


def verify_at(given: Signature, message: bytes, at_ms: int) -> bool:
    return verify(given, message)


def ledger_of(log: StreamLog) -> StreamLedger:
    assert log.ledger is not None, "both have signed"
    return log.ledger


def log(**changes: Any) -> StreamLog:
    """Return the log of a contract that both have signed at time 0."""
    made = StreamLog("north-billing", verify_at, "auditor")
    for party in ("north", "billing"):
        assert say(made, content(**changes), party) == ""
    return made


def say(to: StreamLog, statement: StreamStatement, by: str, at_ms: int = 0) -> str:
    return to.add(statement, signature(statement, by), at_ms)


def word(change: Change, by: str = "billing", number: int = 1, at_ms: int = 0) -> ContractChange:
    return ContractChange("north-billing", 1, by, change, number, at_ms)


def in_force(of: StreamLog, periods: range) -> list[int]:
    assert of.ledger is not None
    return [period for period in periods if of.ledger.terms(period) is not None]


def test_a_contract_has_a_ledger_from_the_moment_at_which_both_have_signed() -> None:
    made = StreamLog("north-billing", verify_at, "auditor")
    assert state(made) == (None, None, None)
    assert made.reason_to_suspend("north") == ""
    assert say(made, TOLLS, "south") == "by nobody whose right it is"
    assert say(made, content(tiers=()), "north") == "not a valid contract"
    assert say(made, TOLLS, "north") == ""
    assert say(made, content_metered(0), "north", MINUTE * 5) == "of no contract that is known"
    assert say(made, TOLLS, "billing", 5 * MINUTE + 1) == ""
    assert made.booked is not None
    assert made.booked.state is ContractState.ACTIVE
    assert in_force(made, range(9)) == [6, 7, 8]


def test_a_text_of_another_stream_or_time_is_no_version_of_it() -> None:
    made = log()
    other = content(version=2, stream="other")
    assert say(made, other, "north") == "says something else than what both signed"
    assert say(made, content(version=3), "north") == "not the next version"
    assert say(made, content(contract_id="other"), "north") == "not of this contract"
    over = content(version=2, valid_to_ms=5)
    assert say(made, over, "north", 5) == "out of its time"


def test_a_new_version_counts_from_the_next_period_on() -> None:
    made = log()
    dearer = content(version=2, tiers=(Tier(0, 70),))
    for party in ("north", "billing"):
        assert say(made, dearer, party, MINUTE + 1) == ""
    for period in (1, 2):
        assert say(made, content_metered(period), "north", 9 * MINUTE) == ""
    assert made.ledger is not None
    assert [made.ledger.due(period) for period in (1, 2)] == [FULL, 70 * 1_000_000]


@pytest.mark.parametrize(
    "statement",
    [
        content_metered(1),
        SUGGESTED,
        Settled("north-billing", "north", 1, 0),
        word(Change.NOTICE, "north"),
    ],
)
def test_fr1_what_is_not_signed_by_whoever_says_it_changes_nothing(
    statement: ContractChange | StreamEntry,
) -> None:
    made = log()
    assert say(made, statement, "billing", 9 * MINUTE) == "not signed by whom it must be"
    forged = replace(signature(statement, "billing"), participant="north")
    assert made.add(statement, forged, 9 * MINUTE) == "not signed by whom it must be"
    assert made.ledger is not None
    assert (made.ledger.unsettled(), made.ledger.suggestions) == (0, [])


@pytest.mark.parametrize("by", ["north", "billing", "auditor"])
def test_the_parties_and_the_auditor_settle_and_nobody_else(by: str) -> None:
    made = log()
    say(made, content_metered(1), "north", 9 * MINUTE)
    stranger = Settled("north-billing", "south", 1, FULL)
    assert say(made, stranger, "south", 9 * MINUTE) == "not by a party of the contract"
    for due in (1, 2):
        wrong = Settled("north-billing", by, 1, due)
        assert say(made, wrong, by, 9 * MINUTE) == "the sum is another"
    assert say(made, Settled("north-billing", by, 1, FULL), by, 9 * MINUTE) == ""
    assert made.ledger is not None
    assert made.ledger.balances() == {"north": FULL, "billing": -FULL}


def test_a_contract_is_suspended_while_either_side_wants_it() -> None:
    made = log()
    for change, by, number, at_ms in (
        (Change.SUSPENDED, "billing", 1, MINUTE),
        (Change.SUSPENDED, "north", 1, 2 * MINUTE),
        (Change.RESUMED, "billing", 2, 3 * MINUTE),
        (Change.RESUMED, "north", 2, 5 * MINUTE),
    ):
        assert say(made, word(change, by, number, at_ms), by, at_ms) == ""
    assert in_force(made, range(7)) == [0, 5, 6]


def test_a_notice_ends_it_after_its_time_and_not_before_it_was_given() -> None:
    made = log()
    assert say(made, word(Change.NOTICE, at_ms=MINUTE), "billing", MINUTE + 5) == ""
    assert in_force(made, range(14)) == list(range(11))
    made = log(notice_ms=0)
    dated_back = word(Change.NOTICE, at_ms=3 * MINUTE)
    assert say(made, dated_back, "billing", 4 * MINUTE) == ""
    assert in_force(made, range(9)) == [0, 1, 2, 3], "a minute is not had for nothing"


def test_a_proposal_may_be_withdrawn() -> None:
    made = StreamLog("north-billing", verify_at, "auditor")
    say(made, TOLLS, "north")
    assert say(made, word(Change.WITHDRAWN, "north"), "north") == ""
    assert made.booked is None
    assert say(made, TOLLS, "north") == "known already"


def test_fr4_disputes_suspend_a_contract_for_each_side_once() -> None:
    made, now_ms = log(), 60 * MINUTE
    for period in range(DISPUTES_MAX):
        assert made.reason_to_suspend("north") == ""
        for by, messages in (("north", 10), ("billing", 9)):
            assert say(made, content_metered(period, by, messages), by, now_ms) == ""
    for party in ("north", "billing"):
        assert made.reason_to_suspend(party) == f"{DISPUTES_MAX} periods are in dispute"
        assert say(made, word(Change.SUSPENDED, party, at_ms=now_ms), party, now_ms) == ""
        assert made.reason_to_suspend(party) == ""
    assert made.reason_to_suspend("south") == ""


STATEMENTS: list[tuple[StreamStatement, str]] = [
    (TOLLS, "north"),
    (TOLLS, "billing"),
    (content(version=2, rate_max=5), "north"),
    (content(version=2, rate_max=5), "billing"),
    *(
        (content_metered(period, by, messages), by)
        for period in (0, 1)
        for by, messages in (("north", 500), ("billing", 500), ("billing", 400))
    ),
    (SUGGESTED, "north"),
    (Settled("north-billing", "north", 0, FULL // 2), "north"),
    (Settled("north-billing", "auditor", 1, FULL // 2), "auditor"),
    (word(Change.SUSPENDED), "billing"),
    (word(Change.RESUMED, number=2), "billing"),
    (word(Change.NOTICE, "north"), "north"),
]


@examples(200)
@given(
    st.lists(
        st.tuples(st.sampled_from(STATEMENTS), st.sampled_from([0, 500, 63_000])), max_size=20
    ),
    st.data(),
)
def test_fr2_a_log_that_is_written_twice_says_the_same(
    records: list[tuple[tuple[StreamStatement, str], int]], data: st.DataObject
) -> None:
    once, again = (StreamLog("north-billing", verify_at, "auditor") for _ in range(2))
    says_the_same(once, again, records, data, lambda of, _: state(of))


def state(of: StreamLog) -> object:
    found = of.ledger
    return of.booked, of.proposal, found and (found.postings, found.unsettled(), found.settled)


# ---------------------------------------------------------------- several plans

PERIOD = 10_000
PLANS_LATE = 20 * PERIOD
RATE = 100 * 1_000
"""Due for 100 messages at one micro-unit."""


def change(kind: Change, by: str = "billing", number: int = 1, at_ms: int = 0) -> ContractChange:
    return ContractChange(PLAN_CONTRACT_ID, 1, by, kind, number, at_ms)


def moved(at_ms: int, **changes: Any) -> StreamLog:
    """To plan 1, at this time."""
    made = plan_log(**changes)
    for each in (PROPOSED, AGREED, SWITCHED):
        assert speak(made, each, at_ms=at_ms) == ""
    return made


def test_mp1_a_period_is_charged_under_the_plan_that_was_active_when_it_began() -> None:
    made = moved(PERIOD + 1, plans=(PLAIN, replace(PLANS.plans[1], tiers=(Tier(0, 70),))))
    assert speak(made, plan_word(Word.CANCELLED, "north", 0), at_ms=3 * PERIOD) == ""
    assert [ledger_of(made).plan(period) for period in range(5)] == [0, 0, 1, 0, 0]
    found = [ledger_of(made).terms(period) for period in range(4)]
    assert [each and each.pipeline for each in found] == ["north", "north", "billing", "north"]
    for period in range(4):
        for by in ("north", "billing"):
            assert speak(made, figures(period, by), at_ms=PLANS_LATE) == ""
    assert [ledger_of(made).due(period) for period in range(4)] == [
        10 * RATE,
        10 * RATE,
        70 * RATE,
        10 * RATE,
    ]
    for period in range(4):
        due = ledger_of(made).due(period)
        assert (
            speak(made, Settled(PLAN_CONTRACT_ID, "auditor", period, due), at_ms=PLANS_LATE) == ""
        )
    assert ledger_of(made).balances() == {"north": 100 * RATE, "billing": -100 * RATE}


def test_mp1_a_plan_that_is_not_remembered_charges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = moved(PERIOD)
    del ledger_of(made).switch.changes[0]
    assert [ledger_of(made).terms(period) is None for period in range(3)] == [True, False, False]


def test_results_are_anybodys_in_a_period_in_which_their_plan_was_left() -> None:
    made = moved(1)
    for each in (plan_word(Word.PROPOSED, "north", 2, 0), plan_word(Word.AGREED, "billing", 2, 0)):
        assert speak(made, each, at_ms=2 * PERIOD + 5) == ""
    assert speak(made, plan_word(Word.SWITCHED, "billing", 2), at_ms=3 * PERIOD + 5) == ""
    assert [ledger_of(made).is_anybodys(period) for period in range(5)] == [
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
    assert speak(made, change(kind, at_ms=PERIOD), at_ms=PERIOD) == ""
    switch = ledger_of(made).switch
    assert (switch.plan, switch.changes[-1].why, switch.changes[-1].by) == (0, kind, "billing")
    assert not made.is_in_force(PERIOD)
    proposal = plan_word(Word.PROPOSED, number=2)
    assert speak(made, proposal, at_ms=PERIOD) == "the contract is not in force"
    if kind is Change.SUSPENDED:
        assert speak(made, change(Change.RESUMED, number=2, at_ms=PERIOD), at_ms=PERIOD) == ""
        assert speak(made, proposal, at_ms=PERIOD) == ""
        assert switch.plan == 0


def test_fr1_a_word_counts_if_its_speaker_has_signed_it() -> None:
    made = plan_log()
    for statement in (PROPOSED, plan_word(Word.CANCELLED), figures(0)):
        assert speak(made, statement, "billing", PLANS_LATE) == "not signed by whom it must be"
    assert speak(made, replace(PROPOSED, contract_id="other")) == "not of this contract"
    assert speak(made, replace(PROPOSED, by="south")) == "not by a party of the contract"
    assert speak(made, figures(0, "south"), at_ms=PLANS_LATE) == "not by a party of the contract"
    stranger = Settled(PLAN_CONTRACT_ID, "south", 0, 0)
    assert speak(made, stranger, at_ms=PLANS_LATE) == "not by a party of the contract"
    assert ledger_of(made).switch.state is SwitchState.STEADY


def test_a_new_version_has_other_prices_and_the_same_plans() -> None:
    made = moved(1)
    dearer = tuple(replace(each, tiers=(Tier(0, 90),)) for each in PLANS.plans)
    other = plans(version=2, plans=dearer[:2])
    assert speak(made, other, "north", 2) == "says something else than what both signed"
    for party in ("north", "billing"):
        assert speak(made, plans(version=2, plans=dearer, min_hold_ms=9), party, PERIOD + 1) == ""
    assert (ledger_of(made).switch.contract.min_hold_ms, ledger_of(made).switch.plan) == (9, 1)
    for period in (1, 2):
        speak(made, figures(period), at_ms=PLANS_LATE)
    assert [ledger_of(made).due(period) for period in (1, 2)] == [10 * RATE, 90 * RATE]


PLAN_STATEMENTS: list[tuple[Any, str]] = [
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
        st.tuples(st.sampled_from(PLAN_STATEMENTS), st.sampled_from([0, 400, 13_000])), max_size=25
    ),
    st.data(),
)
def test_fr2_a_log_with_plans_that_is_written_twice_says_the_same(
    records: list[tuple[tuple[Any, str], int]], data: st.DataObject
) -> None:
    once, again = (StreamLog(PLAN_CONTRACT_ID, verify_at, "auditor") for _ in range(2))
    for made in (once, again):
        for party in ("north", "billing"):
            speak(made, PLANS, party)
    says_the_same(once, again, records, data, plan_state, [(PLANS, "north")])


def plan_state(of: StreamLog, now_ms: int) -> object:
    found = ledger_of(of)
    assert found.plan(now_ms // PERIOD) in {0, 1}
    switch = found.switch
    seen = switch.state_at(now_ms), switch.plan, switch.number, switch.changes
    return of.booked, seen, found.postings, found.unsettled(), found.settled
