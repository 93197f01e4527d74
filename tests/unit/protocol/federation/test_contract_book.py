"""Contracts as their records make them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation import contract_book
from anabranch.protocol.federation.contract_book import (
    PROPOSALS_MAX,
    TRANSITIONS,
    Book,
    Change,
    ContractChange,
    ContractState,
    Verdict,
)
from anabranch.protocol.federation.contracts import Contract, defects
from harness.markets import CONTRACT, DAY_MS, booked, contract, signature, verify


def signed(text: Contract = CONTRACT, by: str = "both") -> Book[Contract]:
    book = Book(verify, defects)
    for party in ("north", "south") if by == "both" else (by,):
        assert book.sign(text, signature(text, party), 0) is Verdict.ACCEPTED
    return book


def verdict_on(
    book: Book[Contract], by: str, change: Change, number: int = 1, **more: Any
) -> Verdict:
    word = ContractChange(
        **{
            "contract_id": "north-south",
            "version": 1,
            "by": by,
            "change": change,
            "number": number,
            "at_ms": 0,
            **more,
        }
    )
    return book.change(word, signature(word, by))


def state(book: Book[Contract], now_ms: int = 0) -> ContractState:
    return next(iter(book)).state_at(now_ms)


def may_move(book: Book[Contract], now_ms: int = 0) -> bool:
    return next(iter(book)).may_move(now_ms)


def test_fc1_load_may_move_when_both_have_signed() -> None:
    book = signed(by="north")
    assert state(book) is ContractState.PROPOSED
    assert not may_move(book)
    assert book.find("north-south") is None
    assert book.sign(CONTRACT, signature(CONTRACT, "south"), 0) is Verdict.ACCEPTED
    assert may_move(book)
    assert book.find("north-south") == booked()


def test_fc1_only_in_its_time() -> None:
    book = signed(contract(valid_from_ms=100, valid_to_ms=200))
    assert [now for now in (0, 99, 100, 199, 200) if may_move(book, now)] == [100, 199]
    assert state(book, 200) is ContractState.ENDED


@pytest.mark.parametrize("by", ["north", "south"])
def test_fc1_not_while_suspended(by: str) -> None:
    book = signed()
    assert verdict_on(book, by, Change.SUSPENDED) is Verdict.ACCEPTED
    assert state(book) is ContractState.SUSPENDED
    assert not may_move(book)
    assert verdict_on(book, by, Change.RESUMED, 2) is Verdict.ACCEPTED
    assert may_move(book)


def test_who_suspended_resumes() -> None:
    book = signed()
    assert verdict_on(book, "north", Change.SUSPENDED) is Verdict.ACCEPTED
    assert verdict_on(book, "south", Change.RESUMED) is Verdict.NOT_NOW
    assert verdict_on(book, "south", Change.SUSPENDED, 2) is Verdict.ACCEPTED
    assert verdict_on(book, "south", Change.SUSPENDED, 3) is Verdict.NOT_NOW
    assert verdict_on(book, "north", Change.RESUMED, 2) is Verdict.ACCEPTED
    assert not may_move(book), "south has not resumed it"
    assert verdict_on(book, "south", Change.RESUMED, 4) is Verdict.ACCEPTED
    assert may_move(book)


def test_fc1_a_notice_ends_movement_at_once_and_the_contract_after_the_drain() -> None:
    book = signed()
    assert verdict_on(book, "south", Change.NOTICE) is Verdict.ACCEPTED
    end_ms = DAY_MS + 60_000
    assert state(book, end_ms - 1) is ContractState.ENDING
    assert not may_move(book)
    assert state(book, end_ms) is ContractState.ENDED
    assert verdict_on(book, "south", Change.NOTICE, 2) is Verdict.NOT_NOW
    assert (
        book.sign(contract(version=2), signature(contract(version=2), "north"), 0)
        is Verdict.NOT_NOW
    )


def test_what_is_suspended_can_end_by_notice_and_by_time() -> None:
    book = signed()
    assert verdict_on(book, "north", Change.SUSPENDED) is Verdict.ACCEPTED
    assert state(book, 30 * DAY_MS) is ContractState.ENDED
    assert verdict_on(book, "south", Change.NOTICE) is Verdict.ACCEPTED
    assert state(book) is ContractState.ENDING


def test_a_proposal_can_be_withdrawn_by_who_made_it_and_has_no_end_of_its_own() -> None:
    book = signed(by="north")
    assert state(book, 31 * DAY_MS) is ContractState.PROPOSED
    assert verdict_on(book, "south", Change.WITHDRAWN) is Verdict.NOT_NOW
    assert verdict_on(book, "north", Change.WITHDRAWN) is Verdict.ACCEPTED
    assert list(book) == []
    assert verdict_on(book, "north", Change.WITHDRAWN, 2) is Verdict.UNKNOWN


def test_fc2_a_text_that_contradicts_what_both_signed_changes_nothing() -> None:
    book = signed()
    dearer = contract(fixed_price=2_000)
    for party in ("north", "south"):
        assert book.sign(dearer, signature(dearer, party), 0) is Verdict.CONTRADICTS
    other = contract(version=2, seller="east")
    assert book.sign(other, signature(other, "east"), 0) is Verdict.CONTRADICTS
    assert book.find("north-south") == booked()


def test_fc2_who_proposed_may_propose_otherwise_and_nobody_signs_what_was_not_proposed() -> None:
    book = signed(by="north")
    dearer = contract(fixed_price=2_000)
    assert book.sign(dearer, signature(dearer, "south"), 0) is Verdict.CONTRADICTS
    assert book.sign(dearer, signature(dearer, "north"), 0) is Verdict.ACCEPTED
    assert book.sign(dearer, signature(dearer, "south"), 0) is Verdict.ACCEPTED
    assert book.find("north-south") == booked(dearer)


def test_fc3_a_record_that_is_written_again_changes_nothing() -> None:
    book = signed(by="north")
    assert book.sign(CONTRACT, signature(CONTRACT, "north"), 0) is Verdict.KNOWN
    book = signed()
    assert book.sign(CONTRACT, signature(CONTRACT, "north"), 0) is Verdict.KNOWN
    assert verdict_on(book, "north", Change.SUSPENDED) is Verdict.ACCEPTED
    assert verdict_on(book, "north", Change.RESUMED, 2) is Verdict.ACCEPTED
    assert verdict_on(book, "north", Change.SUSPENDED) is Verdict.KNOWN
    assert may_move(book)


def test_fc3_versions_follow_each_other_and_keep_the_state() -> None:
    book = Book(verify, defects)
    second, third = contract(version=2, fixed_price=2_000), contract(version=3)
    assert book.sign(second, signature(second, "north"), 0) is Verdict.NOT_NEXT
    book = signed()
    assert verdict_on(book, "north", Change.SUSPENDED) is Verdict.ACCEPTED
    assert book.sign(third, signature(third, "north"), 0) is Verdict.NOT_NEXT
    assert book.sign(second, signature(second, "north"), 0) is Verdict.ACCEPTED
    assert book.find("north-south") == booked(
        state=ContractState.SUSPENDED, suspended_by=("north",)
    )
    assert len(list(book)) == 1
    assert book.sign(second, signature(second, "south"), 0) is Verdict.ACCEPTED
    assert book.find("north-south") == booked(
        second, ContractState.SUSPENDED, suspended_by=("north",)
    )
    assert verdict_on(book, "north", Change.RESUMED, 2) is Verdict.NOT_NEXT, (
        "it is of the first version"
    )
    assert verdict_on(book, "north", Change.RESUMED, 3, version=2) is Verdict.ACCEPTED


def test_fc3_a_word_that_was_out_of_place_does_not_count_later() -> None:
    book = signed()
    assert verdict_on(book, "north", Change.RESUMED, 2) is Verdict.NOT_NOW
    assert verdict_on(book, "north", Change.SUSPENDED, 3) is Verdict.ACCEPTED
    assert verdict_on(book, "north", Change.RESUMED, 2) is Verdict.KNOWN
    assert not may_move(book)


def test_fc4_others_have_nothing_to_say() -> None:
    book = signed()
    assert (
        book.sign(contract(version=2), signature(contract(version=2), "east"), 0)
        is Verdict.NOT_A_PARTY
    )
    assert verdict_on(book, "east", Change.SUSPENDED) is Verdict.NOT_A_PARTY
    assert verdict_on(book, "north", Change.SIGNED) is Verdict.NOT_A_PARTY
    assert verdict_on(book, "north", Change.EXPIRED) is Verdict.NOT_A_PARTY
    assert verdict_on(book, "north", Change.SUSPENDED, contract_id="other") is Verdict.UNKNOWN


def test_what_is_unsigned_expired_or_defective_is_rejected() -> None:
    book = Book(verify, defects)
    forged = signature(contract(fixed_price=1), "north")
    assert book.sign(CONTRACT, forged, 0) is Verdict.UNSIGNED
    assert (
        book.sign(CONTRACT, signature(CONTRACT, "north"), CONTRACT.valid_to_ms) is Verdict.EXPIRED
    )
    defective = contract(tasks=())
    assert book.sign(defective, signature(defective, "north"), 0) is Verdict.DEFECTIVE
    assert list(book) == []
    book = signed()
    word = ContractChange("north-south", 1, "north", Change.SUSPENDED, 1, 0)
    assert book.change(word, signature(word, "south")) is Verdict.UNSIGNED
    assert may_move(book)


def test_a_book_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_book, "CONTRACTS_MAX", 1)
    book = signed(by="north")
    other = contract(contract_id="other")
    assert book.sign(other, signature(other, "north"), 0) is Verdict.TOO_MANY
    assert book.sign(CONTRACT, signature(CONTRACT, "south"), 0) is Verdict.ACCEPTED


def test_each_row_of_the_table_can_be_reached() -> None:
    """And what is not in the table is no change."""
    assert set(TRANSITIONS.values()) == set(ContractState) - {ContractState.PROPOSED}
    assert not any((ContractState.ENDED, change) in TRANSITIONS for change in Change)


WORDS = st.lists(
    st.tuples(
        st.sampled_from(["north", "south", "east"]),
        st.sampled_from(list(Change)),
        st.integers(1, 4),
    ),
    max_size=12,
)


@given(WORDS)
def test_any_words_replayed_give_the_same_book_and_load_moves_only_when_nobody_objects(
    words: list[tuple[str, Change, int]],
) -> None:
    first, again = signed(), signed()
    objects: set[str] = set()
    notice = False
    for by, change, number in words:
        if verdict_on(first, by, change, number) is Verdict.ACCEPTED:
            objects = (
                objects | {by}
                if change is Change.SUSPENDED
                else objects - {by}
                if change is Change.RESUMED
                else objects
            )
            notice = notice or change is Change.NOTICE
    for _ in range(2):
        for by, change, number in words:
            verdict_on(again, by, change, number)
    assert may_move(first) == (not objects and not notice)
    assert list(first) == list(again)


def test_who_proposes_without_end_is_no_longer_heard() -> None:
    book = Book(verify, defects)
    for price in range(PROPOSALS_MAX):
        text = contract(fixed_price=1_000 + price)
        assert book.sign(text, signature(text, "north"), 0) is Verdict.ACCEPTED
    text = contract(fixed_price=999_999)
    assert book.sign(text, signature(text, "north"), 0) is Verdict.TOO_MANY
