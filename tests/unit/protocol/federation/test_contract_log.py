"""Everything that was said about one contract, in one order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.audit import Fault, Finding
from anabranch.protocol.federation.contract_book import Change, ContractChange, ContractState
from anabranch.protocol.federation.contract_log import (
    WORD_SKEW_MS,
    ContractStatement,
    LoadLog,
    StreamLog,
)
from anabranch.protocol.federation.ledger import (
    DISPUTES_MAX,
    AuditCommitted,
    Audited,
    Metered,
    Settled,
)
from anabranch.protocol.federation.movements import Ended, EndReason, Withdrawn
from anabranch.protocol.federation.plan_switching import Word
from anabranch.protocol.federation.stream_contracts import Tier
from anabranch.protocol.federation.stream_ledger import StreamLedger
from harness.contents import SUGGESTED, TOLLS, content, stream_metered
from harness.examples import examples
from harness.markets import CONTRACT, DAY_MS, answer, contract, signature, started
from harness.plans import (
    AGREED,
    PLANS,
    PROPOSED,
    SWITCHED,
    figures,
    plan_log,
    plans,
    verify_at,
)
from harness.plans import say as speak
from harness.plans import word as plan_word
from harness.written_twice import says_the_same

NAME = "north-south:1/north.a"
SECOND = 900 * 10 * 1_000


def log(**changes: Any) -> LoadLog:
    """Return the log of a contract that both have signed at time 0."""
    made = LoadLog("north-south", verify_at, "auditor")
    for party in ("north", "south"):
        assert say(made, contract(**changes), party) == ""
    return made


def stream_log(**changes: Any) -> StreamLog:
    """Return the log of a contract for one stream that both have signed at time 0."""
    made = StreamLog("north-billing", verify_at, "auditor")
    for party in ("north", "billing"):
        assert say(made, content(**changes), party) == ""
    return made


def say(to: LoadLog | StreamLog, statement: ContractStatement, by: str, at_ms: int = 0) -> str:
    return to.add(statement, signature(statement, by), at_ms)


def stream_word(
    change: Change, by: str = "billing", number: int = 1, at_ms: int = 0
) -> ContractChange:
    return ContractChange("north-billing", 1, by, change, number, at_ms)


def ledger_of(made: StreamLog) -> StreamLedger:
    assert made.ledger is not None, "both have signed"
    return made.ledger


def in_force(made: StreamLog, periods: range) -> list[int]:
    return [period for period in periods if ledger_of(made).terms(period) is not None]


def word(change: Change, by: str = "north", number: int = 1, at_ms: int = 0) -> ContractChange:
    return ContractChange("north-south", 1, by, change, number, at_ms)


def metered(slot: int, by: str = "south", units: int = 10) -> Metered:
    return Metered("north-south", NAME, by, slot, units)


def state_of(of: LoadLog) -> ContractState | None:
    return None if of.booked is None else of.booked.state


def test_a_contract_has_a_ledger_from_the_moment_at_which_both_have_signed() -> None:
    made = LoadLog("north-south", verify_at, "auditor")
    assert state_of(made) is None
    assert say(made, CONTRACT, "north") == ""
    assert state_of(made) is ContractState.PROPOSED
    assert made.proposal == made.booked
    assert say(made, started(answer()), "north") == "of no contract that is known"
    assert made.ledger is None
    assert say(made, CONTRACT, "south") == ""
    assert state_of(made) is ContractState.ACTIVE
    assert made.proposal is None
    assert say(made, started(answer()), "north") == ""


def test_a_text_of_another_contract_is_not_of_this_log() -> None:
    made = log()
    other = contract(contract_id="other")
    assert say(made, other, "north") == "not of this contract"
    assert say(made, Withdrawn("other", NAME, "north", 0), "north") == "not of this contract"


FORGED: list[tuple[Any, str]] = [
    (started(answer()), "south"),
    (Withdrawn("north-south", NAME, "north", 0), "south"),
    (Ended("north-south", NAME, "north", 0, EndReason.RECALLED), "south"),
    (metered(0, "north"), "south"),
    (AuditCommitted("north-south", NAME, "auditor", bytes(32), 100), "south"),
    (
        Audited("north-south", NAME, "auditor", bytes(16), (Finding(1, Fault.WRONG_RESULT),)),
        "south",
    ),
    (Settled("north-south", "north", 0, 0), "south"),
    (word(Change.NOTICE), "south"),
    (stream_metered(1), "billing"),
    (SUGGESTED, "billing"),
    (PROPOSED, "billing"),
    (plan_word(Word.CANCELLED), "billing"),
    (Settled("north-billing", "north", 1, 0), "billing"),
    (stream_word(Change.NOTICE, "north"), "billing"),
]


@pytest.mark.parametrize(("statement", "forger"), FORGED)
def test_fr1_what_is_not_signed_by_whoever_says_it_changes_nothing(
    statement: Any, forger: str
) -> None:
    made = log() if forger == "south" else stream_log()
    assert say(made, statement, forger, 200_000) == "not signed by whom it must be"
    forged = replace(signature(statement, forger), participant=statement.by)
    assert made.add(statement, forged, 200_000) == "not signed by whom it must be"
    assert made.ignored == {"not signed by whom it must be": 2}
    assert made.ledger is not None
    assert made.ledger.unsettled() == 0


@pytest.mark.parametrize(
    "entry", [started(answer()), metered(0), Withdrawn("north-south", NAME, "north", 0)]
)
def test_an_entry_about_load_does_not_count_where_streams_are_paid_for(entry: Any) -> None:
    made = stream_log()
    of_this_log = replace(entry, contract_id="north-billing", by="north")
    assert say(made, of_this_log, "north") == "of another kind of contract"


@pytest.mark.parametrize("entry", [stream_metered(1), PROPOSED, SUGGESTED])
def test_an_entry_about_streams_does_not_count_where_load_is_paid_for(entry: Any) -> None:
    assert say(log(), replace(entry, contract_id="north-south"), "north") == (
        "of another kind of contract"
    )


def test_the_text_that_both_have_signed_first_decides_the_kind() -> None:
    text = content(contract_id="north-south", receiver="south")
    made = LoadLog("north-south", verify_at, "auditor")
    for each in (CONTRACT, text):
        assert say(made, each, "north") == "", "a side may propose another text"
    assert say(made, CONTRACT, "south") == "says something else than what both signed"
    assert say(made, text, "south") == ""
    for load in (CONTRACT, contract(version=2)):
        assert say(made, load, "north") == "says something else than what both signed"
    other = log()
    for stream in (text, replace(text, version=2)):
        assert say(other, stream, "south") == "says something else than what both signed"


def test_a_movement_begins_under_a_version_that_both_have_signed_by_then() -> None:
    made, second = log(), contract(version=2, fixed_price=2_000)
    under = replace(answer(), version=2)
    assert say(made, started(under), "north") == "the answer is under another contract"
    assert say(made, second, "south") == ""
    assert say(made, started(under), "north") == "the answer is under another contract"
    assert say(made, second, "north") == ""
    assert say(made, started(answer(), task="north.a"), "north") == ""
    assert made.booked is not None
    assert made.booked.contract.version == 2


def test_an_end_after_a_notice_costs_nothing_and_one_before_does() -> None:
    for is_noticed in (True, False):
        made = log()
        say(made, started(answer()), "north", 1_000)
        if is_noticed:
            assert say(made, word(Change.NOTICE, at_ms=1_000), "north", 1_500) == ""
        end = Ended("north-south", NAME, "north", 0, EndReason.CONTRACT_ENDS)
        assert say(made, end, "north", 2_000) == ""
        assert made.ledger is not None
        assert bool(made.ledger.postings) is not is_noticed


def test_fr3_a_word_that_is_dated_back_or_ahead_is_none() -> None:
    now_ms = 10 * DAY_MS
    for off_ms, reason in (
        (-WORD_SKEW_MS - 1, "out of its time"),
        (WORD_SKEW_MS + 1, "out of its time"),
        (-WORD_SKEW_MS, ""),
        (WORD_SKEW_MS, ""),
    ):
        made = log()
        notice = word(Change.NOTICE, at_ms=now_ms + off_ms)
        assert say(made, notice, "north", now_ms) == reason


def test_the_logs_time_never_goes_back() -> None:
    made = log()
    say(made, started(answer()), "north", 5_000)
    say(made, Ended("north-south", NAME, "north", 0, EndReason.RECALLED), "north", 4_000)
    assert made.now_ms == 5_000
    assert made.ledger is not None
    assert made.ledger.movements[NAME].ended_ms == 5_000


def test_a_settlement_with_another_sum_is_counted_under_one_reason() -> None:
    made = log()
    say(made, started(answer()), "north", 0)
    say(made, metered(0), "south", 1_000)
    for due in (1, 2, 3):
        assert say(made, Settled("north-south", "south", 0, due), "south", 120_000)
    assert made.ignored == {"the sum is another": 3}
    assert say(made, Settled("north-south", "south", 0, SECOND), "south", 120_000) == ""


def test_fr2_a_text_that_was_withdrawn_or_given_up_does_not_come_back_with_an_old_signature() -> (
    None
):
    """Else the other side could sign what was no longer offered."""
    made = LoadLog("north-south", verify_at, "auditor")
    cheap = contract(fixed_price=500)
    for text in (cheap, CONTRACT):
        assert say(made, text, "south") == ""
    assert say(made, cheap, "south") == "known already"
    assert say(made, cheap, "north") == "says something else than what both signed"
    assert say(made, word(Change.WITHDRAWN, "south"), "south") == ""
    for text in (cheap, CONTRACT):
        assert say(made, text, "south") == "known already"
    assert state_of(made) is None
    assert say(made, CONTRACT, "north") == ""
    assert state_of(made) is ContractState.PROPOSED


STATEMENTS: list[tuple[ContractStatement, str]] = [
    (CONTRACT, "north"),
    (CONTRACT, "south"),
    (contract(version=2), "north"),
    (contract(version=2), "south"),
    (started(answer()), "north"),
    (started(answer(2)), "north"),
    (Withdrawn("north-south", "north-south:2/north.a", "south", 0), "south"),
    *((metered(slot, by), by) for slot in (0, 1) for by in ("north", "south")),
    (Audited("north-south", NAME, "auditor", b"n", (Finding(1, Fault.NO_RESULT),)), "auditor"),
    (Settled("north-south", "south", 0, SECOND), "south"),
    (Settled("north-south", "auditor", 0, 2 * SECOND), "auditor"),
    (Ended("north-south", NAME, "north", 0, EndReason.WRONG), "north"),
    (word(Change.SUSPENDED), "north"),
    (word(Change.NOTICE, "south"), "south"),
]


def state(of: LoadLog, now_ms: int) -> object:
    ledger = of.ledger
    return (
        of.booked,
        of.proposal,
        ledger
        and (
            list(ledger.movements),
            ledger.postings,
            ledger.disputes,
            ledger.settled,
            ledger.ripe(10 * DAY_MS),
        ),
    )


STREAM_STATEMENTS: list[tuple[Any, str]] = [
    (TOLLS, "north"),
    (TOLLS, "billing"),
    (content(version=2, rate_max=5), "north"),
    (content(version=2, rate_max=5), "billing"),
    *(
        (stream_metered(period, by, messages), by)
        for period in (0, 1)
        for by, messages in (("north", 500), ("billing", 500), ("billing", 400))
    ),
    (SUGGESTED, "north"),
    (Settled("north-billing", "north", 0, 25_000_000), "north"),
    (Settled("north-billing", "auditor", 1, 25_000_000), "auditor"),
    (stream_word(Change.SUSPENDED), "billing"),
    (stream_word(Change.RESUMED, number=2), "billing"),
    (stream_word(Change.NOTICE, "north"), "north"),
]
PLAN_STATEMENTS: list[tuple[Any, str]] = [
    (PLANS, "north"),
    (PLANS, "billing"),
    *(
        (plan_word(kind, by, number, plan), by)
        for by in ("north", "billing")
        for kind in Word
        for number, plan in ((1, 1), (2, 0))
    ),
    *((figures(period, by, 50), by) for period in (0, 1) for by in ("north", "billing")),
    (Settled("north-billing", "north", 0, 500_000), "north"),
    (stream_word(Change.SUSPENDED), "billing"),
    (stream_word(Change.RESUMED, number=2), "billing"),
]


def stream_state(of: StreamLog, now_ms: int) -> object:
    ledger = of.ledger
    if ledger is None or of.booked is None:
        return of.booked, of.proposal
    assert ledger.is_in_force(now_ms) is of.booked.may_move(now_ms), "FX1"
    switch = ledger.switch
    seen = switch.state_at(now_ms), switch.plan, switch.number, switch.changes
    found = ledger.postings, ledger.unsettled(), ledger.settled, ledger.suggestions
    return of.booked, of.proposal, seen, found


@pytest.mark.parametrize(
    ("name", "statements", "state_of", "begins"),
    [
        ("north-south", STATEMENTS, state, 0),
        ("north-billing", STREAM_STATEMENTS, stream_state, 0),
        ("north-billing", PLAN_STATEMENTS, stream_state, 2),
    ],
    ids=["load", "one plan", "three plans"],
)
@examples(200)
@given(data=st.data())
def test_fr2_a_log_that_is_written_twice_says_the_same(
    name: str, statements: list[Any], state_of: Any, begins: int, data: st.DataObject
) -> None:
    """``begins``: so many statements, which both signed the contract with, stand there at first."""
    once, again = (LoadLog(name, verify_at, "auditor") for _ in range(2))
    for made in (once, again):
        for statement, by in statements[:begins]:
            assert say(made, statement, by) == ""
    pauses = st.sampled_from([0, 500, 1_000, 13_000, 63_000])
    spoken = st.lists(st.tuples(st.sampled_from(statements), pauses), max_size=20)
    says_the_same(once, again, data.draw(spoken), data, state_of, statements[:begins])


def disputed(made: LoadLog, slots: range) -> None:
    for slot in slots:
        for by, units in (("north", 10), ("south", 20)):
            assert say(made, metered(slot, by, units), by, 100_000) == ""


def test_fr4_disputes_suspend_a_contract_for_each_side_once() -> None:
    assert LoadLog("north-south", verify_at, "auditor").reason_to_suspend("north") == ""
    made = log()
    say(made, started(answer()), "north")
    disputed(made, range(DISPUTES_MAX - 1))
    assert made.reason_to_suspend("north") == ""
    disputed(made, range(DISPUTES_MAX - 1, DISPUTES_MAX))
    for party in ("north", "south"):
        assert made.reason_to_suspend(party) == f"{DISPUTES_MAX} slots are in dispute"
        assert say(made, word(Change.SUSPENDED, party, at_ms=100_000), party, 100_000) == ""
        assert made.reason_to_suspend(party) == ""
    assert made.reason_to_suspend("east") == ""
    assert say(made, word(Change.RESUMED, "north", 2, 100_000), "north", 100_000) == ""
    assert made.reason_to_suspend("north") == ""
    disputed(made, range(DISPUTES_MAX, 2 * DISPUTES_MAX))
    assert made.reason_to_suspend("north") == f"{DISPUTES_MAX} slots are in dispute"
    assert say(made, word(Change.NOTICE, "south", 2, 100_000), "south", 100_000) == ""
    assert made.reason_to_suspend("north") == "", "it ends"


def test_fr4_a_breach_is_its_buyers_to_suspend_for() -> None:
    made = log()
    say(made, started(answer()), "north")
    assert say(made, Ended("north-south", NAME, "north", 0, EndReason.SILENT), "north", 9_000) == ""
    assert made.reason_to_suspend("north") == f"south owes a violation for {NAME}"
    assert made.reason_to_suspend("south") == ""
    assert say(made, word(Change.SUSPENDED, at_ms=9_000), "north", 9_000) == ""
    assert made.reason_to_suspend("north") == ""


def test_fr4_periods_in_dispute_suspend_a_contract_too() -> None:
    made, now_ms = stream_log(), 3_600_000
    for period in range(DISPUTES_MAX):
        assert made.reason_to_suspend("north") == ""
        for by, messages in (("north", 10), ("billing", 9)):
            assert say(made, stream_metered(period, by, messages), by, now_ms) == ""
    assert made.reason_to_suspend("north") == f"{DISPUTES_MAX} periods are in dispute"


def test_a_contract_for_a_stream_is_suspended_while_either_side_wants_it() -> None:
    made = stream_log()
    for change, by, number, minutes in (
        (Change.SUSPENDED, "billing", 1, 1),
        (Change.SUSPENDED, "north", 1, 2),
        (Change.RESUMED, "billing", 2, 3),
        (Change.RESUMED, "north", 2, 5),
    ):
        at_ms = minutes * 60_000
        assert say(made, stream_word(change, by, number, at_ms), by, at_ms) == ""
    assert in_force(made, range(7)) == [0, 5, 6]


def test_a_notice_ends_it_after_its_time_and_not_before_it_was_given() -> None:
    made = stream_log()
    assert say(made, stream_word(Change.NOTICE, at_ms=60_000), "billing", 60_005) == ""
    assert in_force(made, range(14)) == list(range(11))
    made = stream_log(notice_ms=0)
    dated_back = stream_word(Change.NOTICE, at_ms=180_000)
    assert say(made, dated_back, "billing", 240_000) == ""
    assert in_force(made, range(9)) == [0, 1, 2, 3], "a minute is not had for nothing"


@pytest.mark.parametrize("kind", [Change.SUSPENDED, Change.NOTICE])
def test_fx1_the_plain_plan_applies_from_a_suspension_or_notice_on(kind: Change) -> None:
    made = plan_log()
    for each in (PROPOSED, AGREED, SWITCHED):
        assert speak(made, each, at_ms=1) == ""
    assert ledger_of(made).is_in_force(1)
    assert say(made, stream_word(kind, at_ms=10_000), "billing", 10_000) == ""
    switch = ledger_of(made).switch
    assert (switch.plan, switch.changes[-1].why, switch.changes[-1].by) == (0, kind, "billing")
    assert not ledger_of(made).is_in_force(10_000)
    proposal = plan_word(Word.PROPOSED, number=2)
    assert speak(made, proposal, at_ms=10_000) == "the contract is not in force"
    if kind is Change.SUSPENDED:
        resumed = stream_word(Change.RESUMED, number=2, at_ms=10_000)
        assert say(made, resumed, "billing", 10_000) == ""
        assert speak(made, proposal, at_ms=10_000) == ""
        assert switch.plan == 0


def test_a_version_has_other_prices_and_the_same_plans() -> None:
    made = plan_log()
    dearer = tuple(replace(each, tiers=(Tier(0, 90),)) for each in PLANS.plans)
    other = plans(version=2, plans=dearer[:2])
    assert say(made, other, "north", 2) == "says something else than what both signed"
    for party in ("north", "billing"):
        assert say(made, plans(version=2, plans=dearer, min_hold_ms=9), party, 10_001) == ""
    assert ledger_of(made).switch.contract.min_hold_ms == 9
    for period in (1, 2):
        assert speak(made, figures(period), at_ms=200_000) == ""
    assert [ledger_of(made).due(period) for period in (1, 2)] == [1_000_000, 9_000_000]
