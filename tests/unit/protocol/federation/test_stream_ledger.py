"""Tests of the debts for a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation import stream_ledger
from anabranch.protocol.federation.contracts import TIME_MS_MAX, Side
from anabranch.protocol.federation.ledger import Posting, Settled
from anabranch.protocol.federation.plan_switching import Word
from anabranch.protocol.federation.stream_contracts import (
    Payment,
    PeriodDelivery,
    SuggestedContract,
    Tier,
)
from anabranch.protocol.federation.stream_ledger import (
    StreamEntry,
    StreamLedger,
)
from harness.contents import CHEAPER, SUGGESTED, content, stream_metered
from harness.markets import DAY_MS
from harness.plans import AGREED, PLAIN, PLANS, PROPOSED, SWITCHED, figures, plans, word

MINUTE = 60_000
LATE = 10 * MINUTE
"""Everything of the first periods is over, and may be settled."""
FULL = 50 * 1_000 * 1_000
"""Due for 1 000 messages at the highest price."""


def ledger(agreed_ms: int = 0, **changes: Any) -> StreamLedger:
    return StreamLedger(content(**changes), agreed_ms, "auditor")


def settled(period: int, due_nano: int, by: str = "north") -> Settled:
    return Settled("north-billing", by, period, due_nano)


def after(*entries: StreamEntry, at_ms: int = LATE, of: StreamLedger | None = None) -> list[str]:
    made = of or ledger()
    return [made.add(entry, at_ms) for entry in entries]


def test_what_both_measured_is_due_and_settled_once() -> None:
    made = ledger()
    both = [stream_metered(1, by) for by in ("north", "billing")]
    assert after(*both, of=made) == ["", ""]
    assert (made.due(1), made.unsettled(), made.disputes) == (FULL, FULL, [])
    assert made.ripe(3 * MINUTE + 2_999) is None
    assert made.ripe(3 * MINUTE + 3_000) == (1, FULL)
    assert after(settled(1, FULL), settled(1, FULL), of=made) == ["", "settled already"]
    assert made.postings == [Posting("billing", "north", FULL, "period 1")]
    assert made.balances() == {"billing": -FULL, "north": FULL}
    assert (made.settled, made.unsettled(), made.ripe(LATE)) == (1, 0, None)
    assert made.last == PeriodDelivery(MINUTE, 1_000, 600, 600)


def test_a_stream_that_is_paid_by_time_keeps_the_sums_of_its_oldest_periods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.protocol.federation.ledger.POSTINGS_MAX", 3)
    made = ledger()
    due = [made.add(stream_metered(n), n * MINUTE + LATE) or made.due(n) for n in range(1, 6)]
    for period, amount in enumerate(due, 1):
        assert made.add(settled(period, int(amount)), 2 * LATE) == ""
    assert [each.reason for each in made.postings] == ["period 3", "period 4", "period 5"]
    assert made.postings_before == 2
    assert made.balances() == {"billing": -sum(map(int, due)), "north": sum(map(int, due))}


@pytest.mark.parametrize(
    ("sender", "receiver", "due", "disputes"),
    [
        ((1_000, 600), None, FULL, 0),
        (None, (1_000, 600), FULL, 0),
        ((1_000, 600), (999, 600), FULL - 50_000, 1),
        ((900, 600), (1_000, 599), 30 * 900_000, 1),
        ((1_000, 600), (0, 0), 0, 1),
        ((10**9, 600), None, 50 * 60_000 * 1_000, 0),
    ],
)
def test_ff2_ff5_which_figures_count(
    sender: tuple[int, int] | None, receiver: tuple[int, int] | None, due: int, disputes: int
) -> None:
    """The last: a sender alone claims a milliard of messages, and gets what the rate allows."""
    made = ledger()
    for by, said in (("north", sender), ("billing", receiver)):
        if said is not None:
            assert after(stream_metered(1, by, *said), of=made) == [""]
    assert made.due(1) == due
    assert made.disputes == [1] * disputes


def test_a_stream_has_one_plan_whoever_makes_it() -> None:
    made = ledger()
    assert (made.plan(1), made.is_anybodys(1)) == (0, False)


def test_a_subscription_is_due_by_the_availability_alone() -> None:
    made = ledger(payment=Payment.SECOND)
    after(stream_metered(1, messages=0), stream_metered(2, messages=0, buckets=539), of=made)
    assert (made.due(1), made.due(2)) == (50 * MINUTE, 0)


@pytest.mark.parametrize(
    ("entry", "at_ms", "reason"),
    [
        (stream_metered(1), 2 * MINUTE + 2_999, "the period is not over"),
        (stream_metered(1), 2 * MINUTE + 3_000, ""),
        (stream_metered(1, "south"), LATE, "not by a party of the contract"),
        (stream_metered(-1), LATE, "the contract was not in force in this period"),
        (stream_metered(1, buckets=601), LATE, "more than a period has"),
        (stream_metered(1, buckets=-1), LATE, "more than a period has"),
        (stream_metered(1, messages=-1), LATE, "more than a period has"),
        (stream_metered(1, messages=TIME_MS_MAX + 1), LATE, "more than a period has"),
    ],
)
def test_ff3_ff4_a_figure_counts_if_it_can_be_one(
    entry: StreamEntry, at_ms: int, reason: str
) -> None:
    made = ledger()
    assert made.add(entry, at_ms) == reason
    assert made.due(1) == (0 if reason else FULL)


def test_ff3_each_side_measures_a_period_once_and_none_that_is_settled() -> None:
    made = ledger()
    for by in ("north", "billing"):
        assert after(stream_metered(1, by), stream_metered(1, by, 9), of=made) == [
            "",
            "measured already",
        ]
    after(settled(1, FULL), of=made)
    assert after(stream_metered(0), stream_metered(1), of=made) == ["the period is settled"] * 2


@pytest.mark.parametrize(
    ("entry", "at_ms", "reason"),
    [
        (settled(1, FULL), 3 * MINUTE + 2_999, "too early"),
        (settled(1, FULL + 1), LATE, f"the sum is {FULL}"),
        (settled(2, FULL), LATE, "an earlier period is not settled"),
    ],
)
def test_ff2_only_the_right_sum_settles_and_not_too_early(
    entry: Settled, at_ms: int, reason: str
) -> None:
    made = ledger()
    after(stream_metered(1), stream_metered(2), of=made, at_ms=3 * MINUTE + 5_000)
    assert made.add(entry, at_ms) == reason
    assert made.postings == []


def test_a_period_of_nothing_is_settled_without_a_posting() -> None:
    made = ledger()
    assert after(stream_metered(1, "billing", 0, 0), settled(1, 0), of=made) == ["", ""]
    assert (made.settled, made.postings) == (1, [])
    assert after(settled(5, 0), of=made) == [""], "nobody measured"
    assert made.last == PeriodDelivery(MINUTE, 0, 0, 600)


@pytest.mark.parametrize(
    ("period", "counts"), [(0, False), (1, False), (2, True), (4, True), (5, False)]
)
def test_ff2_only_whole_periods_of_the_contracts_time_count(period: int, counts: bool) -> None:
    """Both have signed in the second minute, and it ends within the sixth."""
    made = ledger(MINUTE + 1, valid_to_ms=5 * MINUTE + 59_999)
    assert (made.terms(period) is not None) is counts
    made = ledger(0, valid_from_ms=MINUTE + 1, valid_to_ms=5 * MINUTE)
    assert (made.terms(period) is not None) is counts


def test_a_period_has_the_version_that_both_had_signed_when_it_began() -> None:
    made = ledger()
    dearer = content(version=2, tiers=(Tier(0, 70),))
    made.renewed(dearer, 2 * MINUTE + 1)
    after(*[stream_metered(period) for period in (1, 2, 3)], of=made)
    assert [made.due(period) for period in (1, 2, 3)] == [FULL, FULL, 70 * 1_000_000]
    assert made.contract == dearer


def test_a_suspension_frees_the_periods_that_lie_in_it_whole() -> None:
    made = ledger()
    made.suspended(MINUTE + 30_000, "north")
    made.suspended(MINUTE + 40_000, "north")
    made.resumed(4 * MINUTE + 30_000)
    assert [made.terms(period) is not None for period in range(7)] == [
        True,
        True,
        False,
        False,
        True,
        True,
        True,
    ]
    made.suspended(6 * MINUTE, "north")
    assert made.terms(5) is not None
    assert made.terms(6) is None, "still"


def test_after_a_notice_has_run_out_nothing_is_due() -> None:
    made = ledger()
    assert made.last_period() == 30 * DAY_MS // MINUTE - 1
    made.noticed(0, "north", 3 * MINUTE + 1)
    assert [made.terms(period) is not None for period in (1, 2, 3)] == [True, True, False]
    assert made.last_period() == 2


def test_each_side_knows_what_it_has_to_measure_next() -> None:
    made = ledger(MINUTE + 1)
    assert [made.next_period(side) for side in Side] == [2, 2]
    after(stream_metered(2, "billing"), of=made)
    assert (made.next_period(Side.BUYER), made.next_period(Side.SELLER)) == (3, 2)
    after(settled(2, FULL), of=made)
    assert [made.next_period(side) for side in Side] == [3, 3]
    assert ledger(valid_from_ms=5 * MINUTE).next_period(Side.BUYER) == 5


@pytest.mark.parametrize(
    ("suggested", "at_ms", "reason"),
    [
        (SUGGESTED, LATE, ""),
        (SUGGESTED, SUGGESTED.open_until_ms, "out of its time"),
        (replace(SUGGESTED, by="billing"), LATE, "not by the sender, or not to the receiver"),
        (replace(SUGGESTED, by="south"), LATE, "not by a party of the contract"),
        (replace(SUGGESTED, receiver="south"), LATE, "not by the sender, or not to the receiver"),
        (replace(SUGGESTED, terms=content(CHEAPER, tiers=())), LATE, "not a valid contract"),
        (replace(SUGGESTED, terms=replace(CHEAPER, receiver="x")), LATE, "not a valid contract"),
    ],
)
def test_a_sender_suggests_another_to_its_receiver(suggested: Any, at_ms: int, reason: str) -> None:
    made = ledger()
    assert made.add(suggested, at_ms) == reason
    assert made.suggestions == ([] if reason else [SUGGESTED])
    if not reason:
        assert made.add(suggested, at_ms) == "known already"


def test_nothing_is_suggested_in_place_of_a_movement_contract() -> None:
    made = StreamLedger(plans(), 0, "auditor")
    assert made.add(SUGGESTED, 0) == "not to a contract for one stream"
    assert made.suggestions == []


def suggestion(number: int, open_until_ms: int = DAY_MS) -> SuggestedContract:
    """Return a suggestion of a text of its own."""
    terms = replace(CHEAPER, contract_id=f"other-{number}")
    return replace(SUGGESTED, terms=terms, open_until_ms=open_until_ms)


def test_ff6_what_is_closed_leaves_room_and_what_is_open_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_ledger, "SUGGESTIONS_MAX", 3)
    made, given = ledger(), [suggestion(number, DAY_MS + number) for number in range(3)]
    for each in given:
        assert made.add(each, LATE) == ""
    full = "more suggestions than a contract has at a time"
    later = suggestion(9, 2 * DAY_MS)
    assert made.add(later, DAY_MS - 1) == full
    assert made.suggestions == given
    assert made.add(later, DAY_MS) == ""
    assert made.suggestions == [*given[1:], later]
    assert made.add(given[0], DAY_MS) == "out of its time"


def test_ff6_a_text_that_is_suggested_again_stays_open_for_longer() -> None:
    made = ledger()
    short, long = suggestion(1), suggestion(1, DAY_MS + 1)
    for each, reason in ((short, ""), (long, ""), (short, "known already")):
        assert made.add(each, LATE) == reason
    assert made.suggestions == [long]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 40), st.integers(0, 9)), max_size=40))
def test_ff6_any_history_of_suggestions(steps: list[tuple[int, int, int]]) -> None:
    made, now_ms = ledger(), LATE
    for number, open_ms, passes_ms in steps:
        now_ms += passes_ms
        is_open = [each for each in made.suggestions if now_ms < each.open_until_ms]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream_ledger, "SUGGESTIONS_MAX", 3)
            made.add(suggestion(number, now_ms + open_ms), now_ms)
        texts = [each.terms for each in made.suggestions]
        assert len(set(texts)) == len(texts) <= 3
        for each in is_open:
            (kept,) = (one for one in made.suggestions if one.terms == each.terms)
            assert kept.open_until_ms >= each.open_until_ms


def test_versions_and_suspensions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_ledger, "VERSIONS_MAX", 2)
    made = ledger()
    for number in range(1, 4):
        made.renewed(content(version=number + 1), number * MINUTE)
        made.suspended(number * MINUTE, "north")
        made.resumed(number * MINUTE + 30_000)
    assert (made.terms(1), made.terms(3)) == (None, content().plans[0])
    assert made.next_period(Side.BUYER) == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["north", "billing"]),
            st.integers(0, 5),
            st.sampled_from([0, 3, 2_000]),
            st.sampled_from([0, 540, 600]),
        ),
        max_size=12,
    )
)
def test_ff1_balances_are_zero_together_and_a_receiver_never_pays_more_than_either_says(
    figures: list[tuple[str, int, int, int]],
) -> None:
    made = ledger()
    claims: dict[int, dict[str, int]] = {}
    for by, period, messages, buckets in figures:
        if not made.add(stream_metered(period, by, messages, buckets), LATE):
            claims.setdefault(period, {})[by] = 50 * messages * 1_000 if buckets else 0
    while (ripe := made.ripe(LATE)) is not None:
        assert made.add(settled(*ripe), LATE) == ""
        assert ripe[1] <= min(claims[ripe[0]].values())
        assert sum(made.balances().values()) == 0
    assert made.settled == max(claims, default=-1)
    assert -made.balances()["billing"] == sum(each.amount_nano for each in made.postings)


# ---------------------------------------------------------------- several plans

PERIOD = 10_000
RATE = 100 * 1_000
"""Due for 100 messages at one micro-unit."""


def moved(at_ms: int, **changes: Any) -> StreamLedger:
    """Return a ledger whose plan 1 is active from this time on."""
    made = StreamLedger(plans(**changes), 0, "auditor")
    assert after(PROPOSED, AGREED, SWITCHED, at_ms=at_ms, of=made) == ["", "", ""]
    return made


def test_mp1_a_period_is_charged_under_the_plan_that_was_active_when_it_began() -> None:
    made = moved(PERIOD + 1, plans=(PLAIN, replace(PLANS.plans[1], tiers=(Tier(0, 70),))))
    assert made.add(word(Word.CANCELLED, "north", 0), 3 * PERIOD) == ""
    assert [made.plan(period) for period in range(5)] == [0, 0, 1, 0, 0]
    found = [made.terms(period) for period in range(4)]
    assert [each and each.pipeline for each in found] == ["north", "north", "billing", "north"]
    for period in range(4):
        for by in ("north", "billing"):
            assert made.add(figures(period, by), LATE) == ""
    dues = [made.due(period) for period in range(4)]
    assert dues == [10 * RATE, 10 * RATE, 70 * RATE, 10 * RATE]
    assert after(*map(settled, range(4), dues), of=made) == [""] * 4
    assert made.balances() == {"north": 100 * RATE, "billing": -100 * RATE}


def test_a_stream_that_is_read_late_still_has_to_measure_the_periods_of_its_plan() -> None:
    """The stream of the next plan was there earlier."""
    made = moved(2 * PERIOD + 1)
    for side, by in ((Side.SELLER, "north"), (Side.BUYER, "billing")):
        assert made.add(figures(3, by), LATE) == ""
        assert [made.next_period(side, plan) for plan in (0, 1)] == [0, 4]
        assert made.add(figures(1, by), LATE) == ""
        assert [made.next_period(side, plan) for plan in (0, 1)] == [2, 4]


def test_mp1_a_plan_that_is_not_remembered_charges_nothing() -> None:
    made = moved(PERIOD)
    del made.switch.changes[0]
    assert [made.terms(period) is None for period in range(3)] == [True, False, False]


def test_results_are_anybodys_in_a_period_in_which_their_plan_was_left() -> None:
    made = moved(1)
    left = word(Word.PROPOSED, "north", 2, 0), word(Word.AGREED, "billing", 2, 0)
    assert after(*left, at_ms=2 * PERIOD + 5, of=made) == ["", ""]
    assert made.add(word(Word.SWITCHED, "billing", 2), 3 * PERIOD + 5) == ""
    assert [made.is_anybodys(period) for period in range(5)] == [False, False, True, True, False]


def test_a_new_version_leaves_the_active_plan() -> None:
    made = moved(1)
    made.renewed(plans(version=2, min_hold_ms=9), PERIOD)
    assert (made.switch.contract.min_hold_ms, made.switch.plan) == (9, 1)


def test_fx1_no_plan_is_proposed_while_the_contract_is_not_in_force() -> None:
    made = StreamLedger(plans(valid_from_ms=5, valid_to_ms=50), 0, "auditor")
    for at_ms in (4, 50):
        assert made.add(PROPOSED, at_ms) == "the contract is not in force"
    made.suspended(10, "north")
    assert made.add(PROPOSED, 11) == "the contract is not in force"
    made.resumed(12)
    made.noticed(13, "north", 40)
    assert made.add(PROPOSED, 14) == "the contract is not in force"


@pytest.mark.parametrize(
    ("by", "reason"), [("auditor", ""), ("south", "not by a party of the contract")]
)
def test_the_auditor_settles_too_and_nobody_else(by: str, reason: str) -> None:
    made = ledger()
    after(stream_metered(1), of=made)
    assert made.add(settled(1, FULL, by), LATE) == reason
