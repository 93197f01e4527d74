"""Contracts for one stream, and who signs them, as tests of the federation's rules need them."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

from anabranch.protocol.federation.stream_contracts import (
    Payment,
    StreamContract,
    StreamTerms,
    SuggestedContract,
    Tier,
)
from anabranch.protocol.federation.stream_ledger import StreamMetered
from harness.markets import DAY_MS

TOLLS = StreamContract(
    contract_id="north-billing",
    version=1,
    sender="north",
    receiver="billing",
    bucket_ms=100,
    valid_from_ms=0,
    valid_to_ms=30 * DAY_MS,
    plans=(
        StreamTerms(
            at_sender=(),
            pipeline="north",
            stream="tolls",
            payment=Payment.MESSAGE,
            tiers=(Tier(999_000, 50), Tier(900_000, 30)),
            delay_ms_max=3_000,
            rate_max=1_000,
        ),
    ),
    settle_ms=60_000,
    notice_ms=600_000,
)
"""Periods of a minute: 600 buckets."""

_OF_PLAN = {field.name for field in dataclasses.fields(StreamTerms)}


def content(of: StreamContract = TOLLS, **changes: Any) -> StreamContract:
    """Return the contract with other values; those that a plan has are its plan's."""
    plan = replace(of.plans[0], **{name: changes.pop(name) for name in changes.keys() & _OF_PLAN})
    return replace(of, **{"plans": (plan,), **changes})


CHEAPER = content(
    contract_id="south-billing",
    sender="south",
    pipeline="south",
    tiers=(Tier(999_000, 40), Tier(900_000, 30)),
)
SUGGESTED = SuggestedContract("north-billing", "north", "billing", CHEAPER, 10 * DAY_MS)


def stream_metered(
    period: int, by: str = "north", messages: int = 1_000, buckets: int = 600
) -> StreamMetered:
    return StreamMetered("north-billing", by, period, messages, buckets)
