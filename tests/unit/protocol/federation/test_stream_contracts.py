"""Tests of who pays for a stream, what for, and which plans there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.statements import signed_bytes
from anabranch.protocol.federation.stream_contracts import (
    PLANS_MAX,
    RATE_MAX,
    STAGES_MAX,
    TIERS_MAX,
    Payment,
    PeriodDelivery,
    SuggestedContract,
    Tier,
    is_worth_taking,
    stream_defects,
)
from harness.contents import CHEAPER, SUGGESTED, TOLLS, content
from harness.markets import CONTRACT, DAY_MS
from harness.plans import ALL, PLAIN, PLANS, SLOW, plans

MINUTE = PeriodDelivery(60_000, 1_000, 600, 600)
PLAN = TOLLS.plans[0]


def test_a_good_one_has_no_defects_and_can_be_signed() -> None:
    assert [list(stream_defects(each)) for each in (TOLLS, CHEAPER, PLANS)] == [[], [], []]
    assert signed_bytes(TOLLS) != signed_bytes(CHEAPER) != signed_bytes(SUGGESTED)


@pytest.mark.parametrize("text", [TOLLS, PLANS])
def test_the_receiver_pays(text: Any) -> None:
    assert (text.buyer, text.seller) == ("billing", "north")
    sides = [text.party(name) for name in ("billing", "north", "south")]
    assert sides == [Side.BUYER, Side.SELLER, None]
    assert text.ends_after_ms == text.notice_ms


def test_one_plan_is_a_content_contract_and_several_are_a_movement_contract() -> None:
    assert (TOLLS.has_switches, TOLLS.query, TOLLS.delay_ms_max) == (False, (), 3_000)
    assert (PLANS.has_switches, PLANS.query, PLANS.delay_ms_max) == (True, ("slow", "tolls"), 3_000)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"contract_id": "X"}, "contract name"),
        ({"receiver": "north"}, "same participant"),
        ({"version": 0}, "version: 0"),
        ({"valid_to_ms": 0}, "not a time"),
        ({"bucket_ms": 0}, "bucket_ms"),
        ({"settle_ms": 0}, "settle_ms"),
        ({"settle_ms": 150}, "150 is no multiple of the bucket, 100"),
        ({"notice_ms": -1}, "notice_ms"),
        ({"plans": ()}, "plans: 0, not between 1 and 8"),
        ({"plans": (PLAN,) * (PLANS_MAX + 1)}, "plans: 9, not between 1"),
        ({"stream": "a.b"}, "plan 0: stream name"),
        ({"plans": (replace(PLAN, pipeline="X"),)}, "plan 0: pipeline name"),
        ({"delay_ms_max": 0}, "plan 0: delay_ms_max"),
        ({"rate_max": 0}, "plan 0: rate_max"),
        ({"rate_max": RATE_MAX + 1}, "rate_max"),
        ({"tiers": ()}, "tiers: 0"),
        ({"tiers": tuple(Tier(900_000 - n, 5) for n in range(TIERS_MAX + 1))}, "tiers: 17"),
        ({"tiers": (Tier(1_000_001, 5),)}, "tiers: 5 from 1000001"),
        ({"tiers": (Tier(0, 0),)}, "tiers: 0 from 0"),
        ({"tiers": (Tier(900_000, 5), Tier(950_000, 4))}, "from the highest"),
        ({"tiers": (Tier(900_000, 4), Tier(800_000, 5))}, "none costs more"),
        ({"at_sender": ("tolls",)}, "the only one has a stage at the sender"),
        *(
            ({name: 1}, f"{name}: 1, and there is no other plan")
            for name in ("proposal_ms", "deadline_ms", "min_hold_ms", "gain_permille")
        ),
    ],
)
def test_each_defect_is_named(changes: dict[str, Any], text: str) -> None:
    found = list(stream_defects(content(**changes)))
    assert len(found) == 1
    assert text in found[0]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"plans": (SLOW, ALL)}, "the first is the plain one"),
        ({"plans": (PLAIN, PLAIN)}, "two have the same stages"),
        ({"plans": (PLAIN, SLOW, replace(SLOW, tiers=(Tier(0, 1),)))}, "two have the same stages"),
        ({"plans": (PLAIN, replace(SLOW, stream="tolls"))}, "plan 1: billing.tolls is paid"),
        ({"plans": (PLAIN, replace(SLOW, pipeline="north"))}, "plan 1: north.slow is paid"),
        ({"plans": (replace(PLAIN, pipeline="billing"), SLOW)}, "is not a stream of north's"),
        ({"plans": (PLAIN, replace(ALL, at_sender=("tolls", "slow")))}, "plan 1: at_sender: not"),
        (
            {"plans": (PLAIN, replace(ALL, at_sender=("tolls",) * (STAGES_MAX + 1)))},
            "plan 1: at_sender: 17 stages",
        ),
        ({"plans": (PLAIN, replace(SLOW, at_sender=("S low", "slow")))}, "S low"),
        ({"plans": (PLAIN, replace(SLOW, tiers=()))}, "plan 1: tiers: 0"),
        ({"pipeline": "no good"}, "pipeline"),
        ({"proposal_ms": 0}, "proposal_ms: 0, not above 0"),
        ({"deadline_ms": -1}, "deadline_ms: -1, not above 0"),
        ({"min_hold_ms": -1}, "min_hold_ms: -1, not a length"),
        ({"gain_permille": 10_001}, "gain_permille: 10001"),
    ],
)
def test_mc1_mc2_what_no_movement_contract_is(changes: dict[str, Any], text: str) -> None:
    assert any(text in each for each in list(stream_defects(plans(**changes))))


@pytest.mark.parametrize(("in_time", "price"), [(600, 50), (599, 30), (540, 30), (539, 0), (0, 0)])
def test_fq1_fq2_the_tier_that_was_reached_gives_the_price_of_what_came(
    in_time: int, price: int
) -> None:
    delivered = replace(MINUTE, buckets_in_time=in_time)
    assert PLAN.due_nano(delivered) == price * 1_000 * 1_000
    assert replace(PLAN, payment=Payment.SECOND).due_nano(delivered) == price * 60_000


@given(st.integers(0, 600), st.integers(0, 600), st.sampled_from(Payment))
def test_fq1_less_never_costs_more(one: int, other: int, payment: Payment) -> None:
    plan = replace(PLAN, payment=payment)
    few, many = (plan.due_nano(PeriodDelivery(60_000, n, n, 600)) for n in sorted((one, other)))
    assert few <= many


def test_of_no_time_nothing_is_available() -> None:
    assert PeriodDelivery(0, 0, 0, 0).availability_ppm == 0


@pytest.mark.parametrize(("messages", "paid"), [(59_999, 59_999), (60_001, 60_000)])
def test_fq4_what_goes_beyond_the_rate_is_not_due(messages: int, paid: int) -> None:
    assert PLAN.due_nano(replace(MINUTE, messages=messages)) == 50 * paid * 1_000


@pytest.mark.parametrize(
    ("changes", "is_one"),
    [
        ({"tiers": (Tier(0, 1),), "rate_max": 5, "notice_ms": 1, "valid_to_ms": 9}, True),
        ({"receiver": "south"}, False),
        ({"sender": "south"}, False),
        ({"stream": "other"}, False),
        ({"plans": (replace(PLAN, pipeline="other"),)}, False),
        ({"bucket_ms": 200}, False),
        ({"settle_ms": 600}, False),
        ({"delay_ms_max": 1}, False),
    ],
)
def test_fq5_versions_have_the_same_stream_and_periods(
    changes: dict[str, Any], is_one: bool
) -> None:
    assert content(version=2, **changes).is_version_of(TOLLS) is is_one


@pytest.mark.parametrize(
    ("changes", "is_one"),
    [
        ({"version": 2, "plans": (replace(PLAIN, tiers=(Tier(0, 1),)), SLOW, ALL)}, True),
        ({"gain_permille": 1, "min_hold_ms": 9, "valid_to_ms": 99}, True),
        ({"plans": (PLAIN, SLOW)}, False),
        ({"plans": (replace(PLAIN, delay_ms_max=1), SLOW, ALL)}, False),
        ({"plans": (replace(PLAIN, stream="other"), SLOW, ALL)}, False),
        ({"pipeline": "other"}, False),
    ],
)
def test_fq5_versions_have_the_same_plans(changes: dict[str, Any], is_one: bool) -> None:
    assert plans(**changes).is_version_of(PLANS) is is_one


def test_fq5_a_contract_for_load_is_no_version_of_one_for_streams() -> None:
    assert not TOLLS.is_version_of(CONTRACT)


def test_fq3_a_cheaper_stream_elsewhere_is_worth_taking() -> None:
    assert is_worth_taking(SUGGESTED, TOLLS, "billing", MINUTE, 10 * DAY_MS - 1)
    by_time = content(CHEAPER, payment=Payment.SECOND, tiers=(Tier(999_000, 833),))
    assert is_worth_taking(replace(SUGGESTED, terms=by_time), TOLLS, "billing", MINUTE, 0)
    dear = content(by_time, tiers=(Tier(999_000, 834),))
    assert not is_worth_taking(replace(SUGGESTED, terms=dear), TOLLS, "billing", MINUTE, 0)


@pytest.mark.parametrize(
    "suggested",
    [
        replace(SUGGESTED, receiver="south"),
        replace(SUGGESTED, contract_id="other"),
        replace(SUGGESTED, open_until_ms=0),
        replace(SUGGESTED, terms=replace(CHEAPER, receiver="north")),
        replace(SUGGESTED, terms=content(CHEAPER, tiers=())),
        replace(SUGGESTED, terms=content(CHEAPER, stream="volumes")),
        replace(SUGGESTED, terms=content(CHEAPER, delay_ms_max=3_001)),
        replace(SUGGESTED, terms=content(CHEAPER, tiers=(Tier(998_000, 1),))),
        replace(SUGGESTED, terms=content(CHEAPER, tiers=PLAN.tiers)),
    ],
)
def test_fq3_what_is_not_meant_late_other_worse_or_no_cheaper_is_ignored(
    suggested: SuggestedContract,
) -> None:
    assert not is_worth_taking(suggested, TOLLS, "billing", MINUTE, 0)


def test_what_a_second_costs_if_all_comes_in_time() -> None:
    assert PLAN.micro_per_s(7) == 350
    assert PLAN.micro_per_s(5_000) == 50 * PLAN.rate_max
    assert replace(PLAN, payment=Payment.SECOND).micro_per_s(7) == 50
