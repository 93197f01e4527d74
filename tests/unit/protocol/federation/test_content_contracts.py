"""Who pays for a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.content_contracts import (
    TIERS_MAX,
    ContentContract,
    Delivered,
    Payment,
    SuggestedContract,
    Tier,
    availability_ppm,
    content_defects,
    content_due_nano,
    is_worth_taking,
)
from anabranch.protocol.federation.statements import signed_bytes

TOLLS = ContentContract(
    "north-billing",
    1,
    "north",
    "billing",
    "north.tolls",
    0,
    1_000_000,
    Payment.MESSAGE,
    (Tier(999_000, 50), Tier(900_000, 30)),
    3_000,
)
CHEAPER = replace(
    TOLLS,
    contract_id="south-billing",
    sender="south",
    stream="south.tolls",
    tiers=(Tier(999_000, 40), Tier(900_000, 30)),
)
SUGGESTED = SuggestedContract("north", "billing", "north-billing", CHEAPER, 500)
MINUTE = Delivered(0, 60_000, 1_000, 1_000)


def test_a_good_one_has_no_defects_and_can_be_signed() -> None:
    assert list(content_defects(TOLLS)) == []
    assert signed_bytes(TOLLS) != signed_bytes(CHEAPER) != signed_bytes(SUGGESTED)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"contract_id": "X"}, "contract name"),
        ({"receiver": "north"}, "same participant"),
        ({"version": 0}, "version: 0"),
        ({"stream": "south.tolls"}, "not a stream of north"),
        ({"valid_to_ms": 0}, "not a time"),
        ({"delay_ms_max": 0}, "delay_ms_max"),
        ({"options": ("b", "a")}, "options"),
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


@pytest.mark.parametrize(
    ("in_time", "price"), [(1_000, 50), (999, 50), (998, 30), (900, 30), (899, 0), (0, 0)]
)
def test_fq1_fq2_the_tier_that_was_reached_gives_the_price_of_what_came(
    in_time: int, price: int
) -> None:
    delivered = replace(MINUTE, in_time=in_time)
    assert content_due_nano(TOLLS, delivered) == price * in_time * 1_000
    assert content_due_nano(replace(TOLLS, payment=Payment.SECOND), delivered) == price * 60_000


@given(st.integers(0, 2_000), st.integers(0, 2_000), st.integers(1, 1_000))
def test_fq1_less_never_costs_more(one: int, other: int, expected: int) -> None:
    few, many = sorted((one, other))
    dues = [content_due_nano(TOLLS, Delivered(0, 1, came, expected)) for came in (few, many)]
    assert dues[0] <= dues[1]


def test_of_nothing_expected_all_came() -> None:
    assert (
        availability_ppm(Delivered(0, 1, 0, 0))
        == availability_ppm(Delivered(0, 1, 7, 5))
        == 1_000_000
    )


@pytest.mark.parametrize(("from_ms", "to_ms"), [(-1, 5), (5, 1_000_001), (7, 5)])
def test_fq2_nothing_is_due_out_of_time(from_ms: int, to_ms: int) -> None:
    assert content_due_nano(TOLLS, Delivered(from_ms, to_ms, 10, 10)) == 0


def test_fq3_a_cheaper_stream_elsewhere_is_worth_taking() -> None:
    assert is_worth_taking(SUGGESTED, TOLLS, "billing", MINUTE, 499)
    by_time = replace(CHEAPER, payment=Payment.SECOND, tiers=(Tier(999_000, 833),))
    assert is_worth_taking(replace(SUGGESTED, terms=by_time), TOLLS, "billing", MINUTE, 0)
    dear = replace(by_time, tiers=(Tier(999_000, 834),))
    assert not is_worth_taking(replace(SUGGESTED, terms=dear), TOLLS, "billing", MINUTE, 0)


@pytest.mark.parametrize(
    "suggested",
    [
        replace(SUGGESTED, receiver="south"),
        replace(SUGGESTED, instead_of="other"),
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
