"""Contracts for streams, and who signs them, as tests of the federation's rules need them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.protocol.federation.content_contracts import (
    ContentContract,
    Payment,
    SuggestedContract,
    Tier,
)
from anabranch.protocol.federation.content_ledger import ContentMetered
from harness.markets import DAY_MS

TOLLS = ContentContract(
    contract_id="north-billing",
    version=1,
    sender="north",
    receiver="billing",
    stream="north.tolls",
    pipeline="north",
    bucket_ms=100,
    valid_from_ms=0,
    valid_to_ms=30 * DAY_MS,
    payment=Payment.MESSAGE,
    tiers=(Tier(999_000, 50), Tier(900_000, 30)),
    delay_ms_max=3_000,
    rate_max=1_000,
    settle_ms=60_000,
    notice_ms=600_000,
)
"""Periods of a minute: 600 buckets."""

CHEAPER = replace(
    TOLLS,
    contract_id="south-billing",
    sender="south",
    stream="south.tolls",
    pipeline="south",
    tiers=(Tier(999_000, 40), Tier(900_000, 30)),
)
SUGGESTED = SuggestedContract("north-billing", "north", "billing", CHEAPER, 10 * DAY_MS)


def content(**changes: Any) -> ContentContract:
    return replace(TOLLS, **changes)


def content_metered(
    period: int, by: str = "north", messages: int = 1_000, buckets: int = 600
) -> ContentMetered:
    return ContentMetered("north-billing", by, period, messages, buckets)
