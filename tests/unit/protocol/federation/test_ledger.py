"""Tests of the debts under a contract for load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.audit import Fault, Finding, commitment, is_sampled
from anabranch.protocol.federation.ledger import (
    AuditCommitted,
    Audited,
    Ledger,
    LedgerEntry,
    Metered,
    Posting,
    Settled,
)
from anabranch.protocol.federation.movements import Ended, EndReason, MovementState, Withdrawn
from anabranch.protocol.federation.offers import UNITS_MAX, AcceptedTask
from harness.markets import CONTRACT, DAY_MS, answer, contract, started, verify

NAME = "north-south:1/north.a"
VIOLATION = 5_000_000 * 1_000
"""Price of a violation of the contract, in thousandths of a micro-unit."""
SECOND = 900 * 10 * 1_000
"""Price of a second of the movement: 10 units at 900."""


def ledger(begun_ms: int = 0, **changes: Any) -> Ledger:
    """With a movement of 10 units at 900, which runs."""
    made = Ledger(contract(**changes), verify, "broker")
    assert made.add(started(answer()), begun_ms) == ""
    return made


def metered(slot: int, units: int = 10, by: str = "south", name: str = NAME) -> Metered:
    return Metered("north-south", name, by, slot, units)


def settled(period: int, due: int, by: str = "south") -> Settled:
    return Settled("north-south", by, period, due)


def ended(why: EndReason = EndReason.RECALLED, by: str = "north") -> Ended:
    return Ended("north-south", NAME, by, 0, why)


NONCE = bytes(16)
WIDTH_MS = 100
SAMPLED = next(b for b in range(11, 5_000) if is_sampled(NONCE, NAME, b, 10_000))
"""The first bucket of the sample that ends after the first second; with ``WIDTH_MS``."""
FOUND_MS = SAMPLED * WIDTH_MS


def committed(nonce: bytes = NONCE, by: str = "broker") -> AuditCommitted:
    return AuditCommitted("north-south", NAME, by, commitment(nonce), WIDTH_MS)


def audited(*found: Finding, nonce: bytes = NONCE, by: str = "broker") -> Audited:
    return Audited("north-south", NAME, by, nonce, found)


def test_fl2_a_period_costs_price_times_units_times_time() -> None:
    made = ledger(begun_ms=500)
    for slot in range(60):
        assert made.add(metered(slot), 60_000) == ""
        assert made.add(metered(slot, by="north"), 60_000) == ""
    assert made.due(0) == 59 * SECOND + SECOND // 2, "half of the first slot"
    assert made.add(settled(0, made.due(0)), 120_000) == ""
    assert made.postings == [Posting("north", "south", 59 * SECOND + SECOND // 2, "period 0")]
    assert made.balances() == {
        "north": -59 * SECOND - SECOND // 2,
        "south": 59 * SECOND + SECOND // 2,
    }
    assert made.settled == 0


def test_fl2_a_period_is_settled_once_with_its_sum_when_both_had_the_time_to_measure() -> None:
    made = ledger()
    assert made.add(metered(0), 1_000) == ""
    assert made.add(settled(0, SECOND), 119_999) == "too early"
    assert made.add(settled(0, SECOND - 1), 120_000) == f"the sum is {SECOND}"
    assert made.add(settled(0, SECOND, "east"), 120_000) == "not by a party of the contract"
    may = [who for who in ("north", "south", "broker", "east", "") if made.may_settle(who)]
    assert may == ["north", "south", "broker"]
    assert made.add(settled(0, SECOND, "broker"), 120_000) == ""
    assert made.add(settled(0, SECOND), 120_000) == "settled already"
    assert len(made.postings) == 1


def test_fl2_what_is_ripe_can_be_settled_and_nothing_else() -> None:
    made = ledger()
    assert made.ripe(DAY_MS) is None, "nothing was measured"
    assert made.add(metered(0), 1_000) == ""
    assert made.add(metered(130, 9), 131_000) == ""
    assert made.ripe(119_999) is None
    assert made.unsettled() == SECOND + SECOND * 9 // 10
    for period, due, ripe_ms in ((0, SECOND, 120_000), (2, SECOND * 9 // 10, 240_000)):
        assert made.ripe(ripe_ms - 1) is None
        assert made.ripe(ripe_ms) == (period, due)
        assert made.add(settled(period, due), ripe_ms) == ""
    assert made.ripe(DAY_MS) is None
    assert made.unsettled() == 0


def test_fl2_periods_are_settled_in_order_and_empty_ones_may_be_left_out() -> None:
    made = ledger()
    assert made.add(metered(0), 1_000) == ""
    assert made.add(metered(130), 131_000) == ""
    assert made.add(settled(2, SECOND), 300_000) == "an earlier period is not settled"
    assert made.add(settled(0, SECOND), 300_000) == ""
    assert made.add(settled(2, SECOND), 300_000) == ""
    assert made.add(settled(3, 0), 300_000) == ""
    assert [posting.reason for posting in made.postings] == ["period 0", "period 2"]


def test_fl3_a_slot_is_measured_once_by_each_side_after_it_is_over_and_before_it_is_settled() -> (
    None
):
    made = ledger()
    assert made.add(metered(0), 999) == "the slot is not over"
    assert made.add(metered(0), 1_000) == ""
    assert made.add(metered(0, 99), 1_000) == "measured already"
    assert made.add(metered(0, by="north"), 1_000) == ""
    assert made.add(metered(0, by="north"), 1_000) == "measured already"
    assert made.add(metered(1, by="east"), 2_000) == "not by a party of the contract"
    assert made.add(settled(0, SECOND), 120_000) == ""
    assert made.add(metered(1), 120_000) == "the period is settled"


@pytest.mark.parametrize(
    "entry",
    [metered(0), metered(9), metered(3, -1), metered(3, UNITS_MAX + 1), metered(3, name="unknown")],
)
def test_fl3_only_what_ran_is_measured(entry: Metered) -> None:
    made = ledger(begun_ms=2_000)
    assert made.add(ended(), 8_500) == ""
    assert made.add(metered(8), 20_000) == ""
    assert made.add(entry, 20_000) == "the movement did not run in this slot"


def test_fl3_what_was_withdrawn_costs_nothing() -> None:
    made = Ledger(CONTRACT, verify, "broker")
    assert made.add(Withdrawn("north-south", NAME, "south", 0), 0) == ""
    assert made.add(metered(0), 1_000) == "the movement did not run in this slot"
    assert made.add(audited(), 1_000) == "no such movement"


def test_a_seller_that_claims_more_than_it_ran_gets_what_the_buyer_measured_and_is_named() -> None:
    made = ledger()
    assert made.add(metered(0, 20), 1_000) == ""
    assert made.disputes == []
    assert made.add(metered(0, 10, "north"), 1_000) == ""
    assert made.due(0) == SECOND
    assert made.disputes == [(NAME, 0)]
    assert (made.disputed(NAME), made.disputed("other")) == (1, 0)


def test_a_buyer_that_does_not_measure_pays_what_was_agreed() -> None:
    made = ledger()
    assert made.add(metered(0, 10_000), 1_000) == ""
    assert made.due(0) == SECOND


def test_a_movement_keeps_the_price_and_tolerance_of_its_version() -> None:
    made = ledger()
    made.renewed(
        contract(
            version=2, fixed_price=5_000, audit=replace(CONTRACT.audit, tolerance_ppm=1_000_000)
        ),
        0,
    )
    dear = replace(answer(2, AcceptedTask("north.b", 10, 4_900)), version=2)
    assert made.add(started(dear, "north.b"), 0) == ""
    for name in (NAME, "north-south:2/north.b"):
        assert made.add(metered(0, 15, name=name), 1_000) == ""
        assert made.add(metered(0, 10, "north", name), 1_000) == ""
    assert made.due(0) == SECOND + 4_900 * 15 * 1_000
    assert made.disputes == [(NAME, 0)]


def test_slots_and_periods_stay_as_they_began_for_all_who_ask() -> None:
    """With the slots of the second version a seller that measures each slot in time, which takes
    12 seconds, would count as silent after 5.
    """
    began = replace(CONTRACT.audit, meter_ms=10_000)
    made = ledger(audit=began)
    shorter = replace(CONTRACT.audit, meter_ms=100, settle_ms=30_000)
    made.renewed(contract(version=2, audit=shorter), 0)
    later = replace(answer(2, AcceptedTask("north.b", 10, 900)), version=2)
    assert made.add(started(later, "north.b"), 0) == ""
    movement = made.movements["north-south:2/north.b"]
    assert made.movements.contract(2).audit == began == made.clauses
    assert made.add(metered(0, name=movement.movement_id), 12_000) == ""
    assert not made.is_silent(movement, 22_000)


@pytest.mark.parametrize(
    ("why", "by", "payer"),
    [(EndReason.RECALLED, "north", "north"), (EndReason.RETURNED, "south", "south")],
)
def test_who_ends_a_movement_before_its_time_owes_a_violation(
    why: EndReason, by: str, payer: str
) -> None:
    made = ledger()
    assert made.add(ended(why, by), 9_999) == ""
    assert [(each.payer, each.amount_nano) for each in made.postings] == [(payer, VIOLATION)]
    made = ledger()
    assert made.add(ended(why, by), 10_000) == ""
    assert made.postings == []


def test_a_silent_seller_owes_a_violation_and_the_time() -> None:
    made = ledger()
    assert made.add(metered(4), 5_000) == ""
    assert made.add(metered(2), 5_000) == ""
    assert made.add(ended(EndReason.SILENT), 13_000) == ""
    assert made.postings == [
        Posting("south", "north", VIOLATION + 2_000 * 8_000, f"silent 8000 ms: {NAME}")
    ]


def test_a_seller_that_made_nothing_owes_a_violation_once_both_say_so() -> None:
    made = ledger()
    for slot in range(1, 9):
        assert made.add(metered(slot, 0), 9_000) == ""
        if slot < 6:
            assert made.add(metered(slot, 0, "north"), 9_000) == ""
    movement = made.movements[NAME]
    assert not made.is_silent(movement, 10_000), "of the sixth slot the buyer has said nothing"
    assert made.add(metered(6, 0, "north"), 9_000) == ""
    assert made.is_silent(movement, 10_000)
    assert made.add(ended(EndReason.SILENT), 10_000) == ""
    assert made.postings == [Posting("south", "north", VIOLATION, f"made nothing: {NAME}")]
    assert made.breaches == [NAME]


@pytest.mark.parametrize(("by", "at_ms"), [("north", 9_000), ("south", 9_999)])
def test_silence_that_was_none_is_no_reason(by: str, at_ms: int) -> None:
    """The seller measured within its time before the end; or it is the seller that says so."""
    made = ledger()
    assert made.add(metered(1), 2_000) == ""
    assert made.add(ended(EndReason.SILENT, by), at_ms) == ""
    assert [(each.payer, each.amount_nano) for each in made.postings] == [(by, VIOLATION)]


def test_wrong_results_cost_a_violation_if_an_audit_found_them() -> None:
    made = ledger()
    assert made.add(committed(), 1_000) == ""
    assert made.add(audited(Finding(SAMPLED, Fault.WRONG_RESULT)), FOUND_MS) == ""
    assert made.add(ended(EndReason.WRONG), FOUND_MS + 20_000) == ""
    assert made.postings == [Posting("south", "north", VIOLATION, f"wrong results: {NAME}")]
    assert made.breaches == [NAME]
    for found, by in (((), "north"), ((Finding(SAMPLED, Fault.NO_RESULT),), "south")):
        made = ledger(begun_ms=FOUND_MS - 1_000)
        assert made.add(committed(), FOUND_MS - 1_000) == ""
        assert made.add(audited(*found), FOUND_MS) == ""
        assert made.add(ended(EndReason.WRONG, by), FOUND_MS + 1) == ""
        assert [each.payer for each in made.postings] == [by], "judged as an end before its time"


@pytest.mark.parametrize("why", list(EndReason))
@pytest.mark.parametrize("by", ["north", "south"])
def test_wrong_results_cost_a_violation_whoever_ends_it_and_why(by: str, why: EndReason) -> None:
    """The buyer may have recalled it before it knows; the seller may be quicker."""
    made = ledger()
    assert made.add(committed(), 1_000) == ""
    assert made.add(metered(FOUND_MS // 1_000 - 1), FOUND_MS) == ""
    assert made.add(audited(Finding(SAMPLED, Fault.WRONG_RESULT)), FOUND_MS) == ""
    assert made.add(ended(why, by), FOUND_MS + 1) == ""
    assert made.postings == [Posting("south", "north", VIOLATION, f"wrong results: {NAME}")]
    assert made.breaches == [NAME]


def test_what_is_found_after_the_end_costs_a_violation_once() -> None:
    made, second = ledger(), bytes(range(16))
    again = next(b for b in range(11, 5_000) if is_sampled(second, NAME, b, 10_000))
    over_ms = max(SAMPLED, again) * WIDTH_MS
    assert made.add(committed(), 1_000) == ""
    assert made.add(committed(second), 1_000) == ""
    assert made.add(ended(), over_ms) == ""
    assert made.postings == []
    for nonce, bucket in ((NONCE, SAMPLED), (second, again)):
        found = audited(Finding(bucket, Fault.WRONG_RESULT), nonce=nonce)
        assert made.add(found, over_ms + 1_000) == ""
        assert made.postings == [Posting("south", "north", VIOLATION, f"wrong results: {NAME}")]
        assert made.breaches == [NAME]
        assert sum(made.balances().values()) == 0


def test_an_audit_is_the_auditors_and_counts_once_and_as_it_was_committed_to() -> None:
    made, wrong = ledger(), Finding(SAMPLED, Fault.WRONG_RESULT)
    assert made.add(audited(wrong), FOUND_MS) == "not committed to before"
    assert made.add(committed(by="north"), FOUND_MS) == "not by the auditor"
    assert made.add(replace(committed(), movement_id="unknown"), FOUND_MS) == "no such movement"
    assert made.add(committed(), FOUND_MS) == ""
    assert made.add(audited(by="north"), FOUND_MS) == "not by the auditor"
    assert made.add(audited(*[wrong] * 1_001), FOUND_MS) == "too many findings"
    late = made.add(audited(wrong), FOUND_MS + 1)
    assert late == "a bucket that did not end in the time that counts", "it was known before"
    assert not made.is_wrong(NAME)
    assert made.add(audited(), FOUND_MS) == ""
    assert made.add(audited(), FOUND_MS) == "not committed to before"


def test_a_bucket_after_the_end_is_not_its_sellers() -> None:
    made = ledger()
    assert made.add(committed(), 1_000) == ""
    assert made.add(ended(), FOUND_MS - 1) == ""
    found = made.add(audited(Finding(SAMPLED, Fault.WRONG_RESULT)), FOUND_MS + 1)
    assert found == "a bucket that did not end in the time that counts"


@pytest.mark.parametrize("notice_ms", [None, 6_000, 3_000])
def test_the_end_of_the_contract_is_a_reason_if_it_ends(notice_ms: int | None) -> None:
    made = ledger()
    if notice_ms is not None:
        made.noticed(notice_ms, "north", notice_ms)
        made.noticed(notice_ms + 9_000, "south", notice_ms)
    assert made.add(ended(EndReason.CONTRACT_ENDS, "south"), 5_000) == ""
    assert [each.payer for each in made.postings] == ([] if notice_ms == 3_000 else ["south"])
    made = ledger(begun_ms=30 * DAY_MS - 5)
    assert made.add(ended(EndReason.CONTRACT_ENDS, "south"), 30 * DAY_MS) == ""
    assert made.postings == []


def test_a_contract_without_penalties_posts_none() -> None:
    made = ledger(penalty=replace(CONTRACT.penalty, violation_micro=0))
    assert made.add(ended(), 5_000) == ""
    assert made.postings == []


@pytest.mark.parametrize("entry", [metered(0), committed(), audited(), settled(0, 0), ended()])
def test_fl5_what_is_of_another_contract_does_not_count(entry: LedgerEntry) -> None:
    made = ledger()
    assert made.add(replace(entry, contract_id="other"), 1_000_000) == "not of this contract"


def test_an_end_that_does_not_count_costs_nothing() -> None:
    made = ledger()
    assert made.add(ended(), 20_000) == ""
    assert made.add(ended(EndReason.SILENT), 30_000) == "the movement is over"
    assert made.postings == []


PARTIES = st.sampled_from(["north", "south"])
NUMBERS = st.integers(1, 3)
NAMES = NUMBERS.map(lambda number: f"north-south:{number}/north.a")
ENTRIES: Any = st.one_of(
    NUMBERS.map(lambda number: started(answer(number))),
    st.builds(lambda name, by: Withdrawn("north-south", name, by, 0), NAMES, PARTIES),
    st.builds(
        lambda name, by, why: Ended("north-south", name, by, 0, why),
        NAMES,
        PARTIES,
        st.sampled_from(EndReason),
    ),
    st.builds(metered, st.integers(0, 200), st.integers(0, 20), PARTIES, NAMES),
    st.builds(lambda period: ("settle", period), st.integers(0, 3)),
)


def reference(log: list[tuple[LedgerEntry, int]], made: Ledger) -> int:
    """Return what the buyer owes for load, millisecond by millisecond, without slots of a log
    state: of settled periods only.
    """
    total = 0
    readings: dict[tuple[str, int], dict[str, int]] = {}
    for entry, _ in log:
        if isinstance(entry, Metered):
            readings.setdefault((entry.movement_id, entry.slot), {})[entry.by] = entry.units
    for (name, slot), by in readings.items():
        movement = made.movements[name]
        until = movement.ended_ms if movement.state is MovementState.OVER else 10**9
        ran = (
            sum(movement.started_ms <= t * 100 < until for t in range(slot * 10, slot * 10 + 10))
            * 100
        )
        south, north = by.get("south"), by.get("north")
        if south is None or north is None:
            units = north if north is not None else min(south or 0, 10)
        else:
            units = south if abs(south - north) * 20 <= north else min(south, north)
        if slot // 60 <= made.settled:
            total += 900 * units * ran
    return total


@given(st.lists(st.tuples(ENTRIES, st.integers(0, 300)), max_size=40))
def test_fl1_fl2_fl4_fl5_any_log(steps: list[tuple[Any, int]]) -> None:
    """Balances are zero in sum, postings stay, what did not count left no trace, and a replay
    gives the same.
    """
    made, now_ms = Ledger(CONTRACT, verify, "broker"), 0
    log: list[tuple[LedgerEntry, int]] = []
    for entry, tenths in steps:
        now_ms += tenths * 100
        before = list(made.postings)
        added: LedgerEntry = (
            settled(entry[1], made.due(entry[1])) if isinstance(entry, tuple) else entry
        )
        if not made.add(added, now_ms):
            log.append((added, now_ms))
        assert sum(made.balances().values()) == 0
        assert made.postings[: len(before)] == before
    again = Ledger(CONTRACT, verify, "broker")
    assert [again.add(*each) for each in log] == [""] * len(log)
    assert again.postings == made.postings
    assert sum(
        each.amount_nano for each in made.postings if each.reason.startswith("period")
    ) == reference(log, made)
