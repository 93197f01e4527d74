"""Tests of which side pays for a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.content_contracts import (
    RATE_MAX,
    TIERS_MAX,
    Delivered,
    Payment,
    SuggestedContract,
    Tier,
    availability_ppm,
    content_defects,
    content_due_nano,
    is_worth_taking,
    micro_per_s,
)
from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.statements import signed_bytes
from harness.contents import CHEAPER, SUGGESTED, TOLLS
from harness.markets import DAY_MS

MINUTE = Delivered(0, 60_000, 1_000, 600, 600)


def test_a_good_one_has_no_defects_and_can_be_signed() -> None:
    assert list(content_defects(TOLLS)) == []
    assert signed_bytes(TOLLS) != signed_bytes(CHEAPER) != signed_bytes(SUGGESTED)


def test_the_receiver_pays() -> None:
    assert (TOLLS.buyer, TOLLS.seller) == ("billing", "north")
    sides = [TOLLS.party(name) for name in ("billing", "north", "south")]
    assert sides == [Side.BUYER, Side.SELLER, None]
    assert TOLLS.ends_after_ms == TOLLS.notice_ms


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"contract_id": "X"}, "contract name"),
        ({"receiver": "north"}, "same participant"),
        ({"pipeline": "X"}, "pipeline name"),
        ({"version": 0}, "version: 0"),
        ({"stream": "south.tolls"}, "not a stream of north"),
        ({"stream": "north.a.b"}, "stream name"),
        ({"valid_to_ms": 0}, "not a time"),
        ({"delay_ms_max": 0}, "delay_ms_max"),
        ({"bucket_ms": 0}, "bucket_ms"),
        ({"settle_ms": 0}, "settle_ms"),
        ({"settle_ms": 150}, "150 is no multiple of the bucket, 100"),
        ({"notice_ms": -1}, "notice_ms"),
        ({"rate_max": 0}, "rate_max"),
        ({"rate_max": RATE_MAX + 1}, "rate_max"),
        ({"tiers": ()}, "tiers: 0"),
        ({"tiers": tuple(Tier(900_000 - n, 5) for n in range(TIERS_MAX + 1))}, "tiers: 17"),
        ({"tiers": (Tier(1_000_001, 5),)}, "tiers: 5 from 1000001"),
        ({"tiers": (Tier(0, 0),)}, "tiers: 0 from 0"),
        ({"tiers": (Tier(900_000, 5), Tier(950_000, 4))}, "from the highest"),
        ({"tiers": (Tier(900_000, 4), Tier(800_000, 5))}, "none costs more"),
    ],
)
def test_each_defect_is_named(changes: dict[str, Any], text: str) -> None:
    found = list(content_defects(replace(TOLLS, **changes)))
    assert len(found) == 1
    assert text in found[0]


@pytest.mark.parametrize(("in_time", "price"), [(600, 50), (599, 30), (540, 30), (539, 0), (0, 0)])
def test_fq1_fq2_the_tier_that_was_reached_gives_the_price_of_what_came(
    in_time: int, price: int
) -> None:
    delivered = replace(MINUTE, buckets_in_time=in_time)
    assert content_due_nano(TOLLS, delivered) == price * 1_000 * 1_000
    assert content_due_nano(replace(TOLLS, payment=Payment.SECOND), delivered) == price * 60_000


@given(st.integers(0, 600), st.integers(0, 600), st.sampled_from(Payment))
def test_fq1_less_never_costs_more(one: int, other: int, payment: Payment) -> None:
    text = replace(TOLLS, payment=payment)
    few, many = sorted((one, other))
    dues = [content_due_nano(text, Delivered(0, 60_000, n, n, 600)) for n in (few, many)]
    assert dues[0] <= dues[1]


def test_of_no_time_nothing_is_available() -> None:
    assert availability_ppm(Delivered(0, 0, 0, 0, 0)) == 0


@pytest.mark.parametrize(("from_ms", "to_ms"), [(-1, 5), (5, 30 * DAY_MS + 1), (7, 5)])
def test_fq2_nothing_is_due_out_of_time(from_ms: int, to_ms: int) -> None:
    assert content_due_nano(TOLLS, Delivered(from_ms, to_ms, 10, 1, 1)) == 0


@pytest.mark.parametrize(("messages", "paid"), [(59_999, 59_999), (60_001, 60_000)])
def test_fq4_what_goes_beyond_the_rate_is_not_due(messages: int, paid: int) -> None:
    delivered = replace(MINUTE, messages=messages)
    assert content_due_nano(TOLLS, delivered) == 50 * paid * 1_000


@pytest.mark.parametrize(
    ("changes", "is_one"),
    [
        ({"tiers": (Tier(0, 1),), "rate_max": 5, "notice_ms": 1, "valid_to_ms": 9}, True),
        ({"receiver": "south"}, False),
        ({"sender": "south"}, False),
        ({"stream": "north.other"}, False),
        ({"pipeline": "other"}, False),
        ({"bucket_ms": 200}, False),
        ({"settle_ms": 600}, False),
        ({"delay_ms_max": 1}, False),
    ],
)
def test_fq5_versions_have_the_same_stream_and_periods(
    changes: dict[str, Any], is_one: bool
) -> None:
    assert replace(TOLLS, version=2, **changes).is_version_of(TOLLS) is is_one


def test_fq3_a_cheaper_stream_elsewhere_is_worth_taking() -> None:
    assert is_worth_taking(SUGGESTED, TOLLS, "billing", MINUTE, 10 * DAY_MS - 1)
    by_time = replace(CHEAPER, payment=Payment.SECOND, tiers=(Tier(999_000, 833),))
    assert is_worth_taking(replace(SUGGESTED, terms=by_time), TOLLS, "billing", MINUTE, 0)
    dear = replace(by_time, tiers=(Tier(999_000, 834),))
    assert not is_worth_taking(replace(SUGGESTED, terms=dear), TOLLS, "billing", MINUTE, 0)


@pytest.mark.parametrize(
    "suggested",
    [
        replace(SUGGESTED, receiver="south"),
        replace(SUGGESTED, contract_id="other"),
        replace(SUGGESTED, open_until_ms=0),
        replace(SUGGESTED, terms=replace(CHEAPER, receiver="north")),
        replace(SUGGESTED, terms=replace(CHEAPER, tiers=())),
        replace(SUGGESTED, terms=replace(CHEAPER, stream="south.volumes")),
        replace(SUGGESTED, terms=replace(CHEAPER, delay_ms_max=3_001)),
        replace(SUGGESTED, terms=replace(CHEAPER, tiers=(Tier(998_000, 1),))),
        replace(SUGGESTED, terms=replace(CHEAPER, tiers=TOLLS.tiers)),
    ],
)
def test_fq3_what_is_not_meant_late_other_worse_or_no_cheaper_is_ignored(
    suggested: SuggestedContract,
) -> None:
    assert not is_worth_taking(suggested, TOLLS, "billing", MINUTE, 0)


def test_what_a_second_costs_if_all_comes_in_time() -> None:
    assert micro_per_s(TOLLS, 7) == 350
    assert micro_per_s(TOLLS, 5_000) == 50 * TOLLS.rate_max
    assert micro_per_s(replace(TOLLS, payment=Payment.SECOND), 7) == 50


def test_a_contract_for_a_stream_has_one_plan() -> None:
    assert [TOLLS.content(plan) for plan in range(TOLLS.plan_count)] == [TOLLS]
