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
    ContractLog,
    ContractStatement,
)
from anabranch.protocol.federation.ledger import (
    DISPUTES_MAX,
    AuditCommitted,
    Audited,
    LedgerEntry,
    Metered,
    Settled,
)
from anabranch.protocol.federation.movements import Ended, Why, Withdrawn
from anabranch.protocol.federation.statements import Signature
from harness.examples import examples
from harness.markets import CONTRACT, DAY_MS, answer, contract, signature, started, verify
from harness.written_twice import says_the_same

NAME = "north-south:1/north.a"
SECOND = 900 * 10 * 1_000


def log(**changes: Any) -> ContractLog:
    """Return the log of a contract that both have signed at time 0."""
    made = ContractLog("north-south", verify_at, "auditor")
    for party in ("north", "south"):
        assert say(made, contract(**changes), party) == ""
    return made


def verify_at(given: Signature, message: bytes, at_ms: int) -> bool:
    return verify(given, message)


def say(to: ContractLog, statement: ContractStatement, by: str, at_ms: int = 0) -> str:
    return to.add(statement, signature(statement, by), at_ms)


def word(change: Change, by: str = "north", number: int = 1, at_ms: int = 0) -> ContractChange:
    return ContractChange("north-south", 1, by, change, number, at_ms)


def metered(slot: int, by: str = "south", units: int = 10) -> Metered:
    return Metered("north-south", NAME, by, slot, units)


def state_of(of: ContractLog) -> ContractState | None:
    return None if of.booked is None else of.booked.state


def test_a_contract_has_a_ledger_from_the_moment_at_which_both_have_signed() -> None:
    made = ContractLog("north-south", verify_at, "auditor")
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


@pytest.mark.parametrize(
    "statement",
    [
        started(answer()),
        Withdrawn("north-south", NAME, "north", 0),
        Ended("north-south", NAME, "north", 0, Why.RECALLED),
        metered(0, "north"),
        AuditCommitted("north-south", NAME, "auditor", bytes(32), 100),
        Audited("north-south", NAME, "auditor", bytes(16), (Finding(1, Fault.WRONG_RESULT),)),
        Settled("north-south", "north", 0, 0),
        word(Change.NOTICE),
    ],
)
def test_fr1_what_is_not_signed_by_whoever_says_it_changes_nothing(
    statement: ContractChange | LedgerEntry,
) -> None:
    made = log()
    assert say(made, statement, "south", 200_000) == "not signed by whom it must be"
    forged = replace(signature(statement, "south"), participant=statement.by)
    assert made.add(statement, forged, 200_000) == "not signed by whom it must be"
    assert made.ignored == {"not signed by whom it must be": 2}
    assert made.ledger is not None
    assert list(made.ledger.movements) == []


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
        end = Ended("north-south", NAME, "north", 0, Why.CONTRACT_ENDS)
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
    say(made, Ended("north-south", NAME, "north", 0, Why.RECALLED), "north", 4_000)
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
    made = ContractLog("north-south", verify_at, "auditor")
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
    (Ended("north-south", NAME, "north", 0, Why.WRONG), "north"),
    (word(Change.SUSPENDED), "north"),
    (word(Change.NOTICE, "south"), "south"),
]


@examples(300)
@given(
    st.lists(
        st.tuples(st.sampled_from(STATEMENTS), st.sampled_from([0, 500, 1_000, 60_000])),
        max_size=20,
    ),
    st.data(),
)
def test_fr2_a_log_that_is_written_twice_says_the_same(
    records: list[tuple[tuple[ContractStatement, str], int]], data: st.DataObject
) -> None:
    once, again = (ContractLog("north-south", verify_at, "auditor") for _ in range(2))
    says_the_same(once, again, records, data, lambda of, _: state(of))


def state(of: ContractLog) -> object:
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


def disputed(made: ContractLog, slots: range) -> None:
    for slot in slots:
        for by, units in (("north", 10), ("south", 20)):
            assert say(made, metered(slot, by, units), by, 100_000) == ""


def test_fr4_disputes_suspend_a_contract_for_each_side_once() -> None:
    assert ContractLog("north-south", verify_at, "auditor").reason_to_suspend("north") == ""
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
    assert say(made, Ended("north-south", NAME, "north", 0, Why.SILENT), "north", 9_000) == ""
    assert made.reason_to_suspend("north") == f"south owes a violation for {NAME}"
    assert made.reason_to_suspend("south") == ""
    assert say(made, word(Change.SUSPENDED, at_ms=9_000), "north", 9_000) == ""
    assert made.reason_to_suspend("north") == ""
