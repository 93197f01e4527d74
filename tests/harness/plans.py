"""Movement contracts, and what the two say of their plans, as tests of the federation's rules need
them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from anabranch.protocol.federation.contract_log import StreamLog
from anabranch.protocol.federation.plan_switching import PlanSwitch, PlanWord, Word
from anabranch.protocol.federation.statements import Signature, Statement
from anabranch.protocol.federation.stream_contracts import (
    Payment,
    StreamContract,
    StreamTerms,
    Tier,
)
from anabranch.protocol.federation.stream_ledger import StreamMetered
from harness.markets import DAY_MS, signature, verify

PLAN_CONTRACT_ID: Final = "north-billing"
PLAIN = StreamTerms((), "north", "speeds", Payment.MESSAGE, (Tier(900_000, 10),), 2_000, 1_000)
SLOW = replace(PLAIN, at_sender=("slow",), pipeline="billing", stream="slow", delay_ms_max=3_000)
ALL = replace(
    SLOW, at_sender=("slow", "tolls"), stream="tolls", payment=Payment.SECOND, tiers=(Tier(1, 400),)
)
PLANS = StreamContract(
    contract_id=PLAN_CONTRACT_ID,
    version=1,
    sender="north",
    receiver="billing",
    pipeline="billing",
    bucket_ms=100,
    valid_from_ms=0,
    valid_to_ms=30 * DAY_MS,
    plans=(PLAIN, SLOW, ALL),
    settle_ms=10_000,
    notice_ms=60_000,
    proposal_ms=5_000,
    deadline_ms=20_000,
    min_hold_ms=0,
    gain_permille=50,
)
"""Billing has stages ``slow`` and ``tolls``, which reads it."""


def plans(**changes: Any) -> StreamContract:
    return replace(PLANS, **changes)


def word(kind: Word, by: str = "north", number: int = 1, plan: int = 1) -> PlanWord:
    return PlanWord(PLAN_CONTRACT_ID, by, kind, number, plan)


PROPOSED, AGREED = word(Word.PROPOSED), word(Word.AGREED, "billing")
SWITCHED = word(Word.SWITCHED, "billing")


def switched(*words: PlanWord, at_ms: int = 0, of: PlanSwitch | None = None) -> PlanSwitch:
    """Return a switch in which all of these statements counted."""
    made = of or PlanSwitch(PLANS, 0)
    assert [made.add(each, at_ms, may_switch=True) for each in words] == [""] * len(words)
    return made


def verify_at(given: Signature, message: bytes, at_ms: int) -> bool:
    return verify(given, message)


def plan_log(**changes: Any) -> StreamLog:
    """Return the log of a contract that both have signed at time 0."""
    made = StreamLog(PLAN_CONTRACT_ID, verify_at, "auditor")
    for party in ("north", "billing"):
        assert say(made, plans(**changes), party) == ""
    return made


def say(to: StreamLog, statement: Any, by: str = "", at_ms: int = 0) -> str:
    """Signed by ``by``, else by whoever says it."""
    given: Statement = statement
    return to.add(statement, signature(given, by or statement.by), at_ms)


def figures(period: int, by: str = "north", messages: int = 100, buckets: int = 100) -> Any:
    return StreamMetered(PLAN_CONTRACT_ID, by, period, messages, buckets)
