"""The history of a contract for a stream, from its first text to its last settlement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.content_contracts import Tier
from anabranch.protocol.federation.content_ledger import ContentEntry
from anabranch.protocol.federation.content_log import ContentLog, ContentStatement
from anabranch.protocol.federation.contract_book import Change, ContractChange, ContractState
from anabranch.protocol.federation.ledger import DISPUTES_MAX, Settled
from anabranch.protocol.federation.statements import Signature
from harness.contents import SUGGESTED, TOLLS, content, content_metered
from harness.examples import examples
from harness.markets import signature, verify
from harness.written_twice import says_the_same

MINUTE = 60_000
FULL = 50 * 1_000 * 1_000


def verify_at(given: Signature, message: bytes, at_ms: int) -> bool:
    return verify(given, message)


def log(**changes: Any) -> ContentLog:
    """Return the log of a contract that both have signed at time 0."""
    made = ContentLog("north-billing", verify_at, "auditor")
    for party in ("north", "billing"):
        assert say(made, content(**changes), party) == ""
    return made


def say(to: ContentLog, statement: ContentStatement, by: str, at_ms: int = 0) -> str:
    return to.add(statement, signature(statement, by), at_ms)


def word(change: Change, by: str = "billing", number: int = 1, at_ms: int = 0) -> ContractChange:
    return ContractChange("north-billing", 1, by, change, number, at_ms)


def in_force(of: ContentLog, periods: range) -> list[int]:
    assert of.ledger is not None
    return [period for period in periods if of.ledger.terms(period) is not None]


def test_a_contract_has_a_ledger_from_the_moment_at_which_both_have_signed() -> None:
    made = ContentLog("north-billing", verify_at, "auditor")
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
    other = content(version=2, stream="north.other")
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
    statement: ContractChange | ContentEntry,
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
    made = ContentLog("north-billing", verify_at, "auditor")
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


STATEMENTS: list[tuple[ContentStatement, str]] = [
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
    records: list[tuple[tuple[ContentStatement, str], int]], data: st.DataObject
) -> None:
    once, again = (ContentLog("north-billing", verify_at, "auditor") for _ in range(2))
    says_the_same(once, again, records, data, lambda of, _: state(of))


def state(of: ContentLog) -> object:
    found = of.ledger
    return of.booked, of.proposal, found and (found.postings, found.unsettled(), found.settled)
