"""Suggested contracts that an agent takes up by its owner's rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.protocol.federation.contract_book import Change, ContractChange
from anabranch.protocol.federation.contract_log import ContractLog, StreamLog
from anabranch.protocol.federation.statements import Signature
from anabranch.protocol.federation.stream_contracts import PeriodDelivery, StreamContract, Tier
from anabranch.protocol.federation.stream_ledger import StreamLedger
from anabranch.protocol.federation.suggestions import replaced, takes_up
from harness.contents import CHEAPER, SUGGESTED, TOLLS, content
from harness.markets import DAY_MS

NOW_MS = 200_000


class Logs:
    """Logs of contracts whose signatures all count."""

    def __init__(self) -> None:
        self.logs: dict[str, StreamLog] = {}
        self.at_ms = 0

    def say(self, by: str, *statements: Any) -> None:
        for each in statements:
            log = self.logs.setdefault(
                each.contract_id, ContractLog(each.contract_id, lambda *_: True, "")
            )
            assert log.add(each, Signature(by, "1", bytes(64)), self.at_ms) == ""

    def agree(self) -> None:
        """Let billing pay north: a minute came in time."""
        self.say("north", TOLLS)
        self.say("billing", TOLLS)
        self.ledger().last = PeriodDelivery(60_000, 1_000, 600, 600)
        self.at_ms = NOW_MS

    def ledger(self) -> StreamLedger:
        found = self.logs["north-billing"].ledger
        assert found is not None
        return found

    def suggest(self, terms: StreamContract) -> None:
        """Suggest ``terms``, which south has signed."""
        self.say("north", replace(SUGGESTED, terms=terms))
        self.say("south", terms)

    def told(
        self, senders: tuple[str, ...] = ("south",), now_ms: int = NOW_MS
    ) -> list[StreamContract | ContractChange]:
        return takes_up(self.logs, "billing", senders, now_ms)


@pytest.fixture
def logs() -> Logs:
    made = Logs()
    made.agree()
    made.suggest(CHEAPER)
    return made


def notice(of: StreamContract, by: str = "billing") -> ContractChange:
    return ContractChange(of.contract_id, of.version, by, Change.NOTICE, NOW_MS, NOW_MS)


def test_tu5_it_signs_and_then_gives_notice_and_then_nothing(logs: Logs) -> None:
    assert logs.told() == [CHEAPER]
    assert replaced(logs.logs, "billing", ["south"], NOW_MS) == {}
    logs.say("billing", CHEAPER)
    assert logs.told() == [notice(TOLLS)]
    logs.say("billing", notice(TOLLS))
    assert logs.told() == []
    assert replaced(logs.logs, "billing", ["south"], NOW_MS) == {"north-billing": "south-billing"}
    assert replaced(logs.logs, "billing", ["south"], NOW_MS + TOLLS.notice_ms) == {}


def test_tu5_a_later_version_of_the_new_contract_replaces_the_old_one_too(logs: Logs) -> None:
    logs.say("billing", CHEAPER)
    second = content(CHEAPER, version=2, tiers=(Tier(999_000, 41),))
    logs.say("south", second)
    logs.say("billing", second)
    assert logs.told() == [notice(TOLLS)]


@pytest.mark.parametrize("senders", [(), ("west",), ("north",)])
def test_tu1_only_senders_that_the_owner_named(logs: Logs, senders: tuple[str, ...]) -> None:
    assert logs.told(senders) == []
    logs.say("billing", CHEAPER)
    assert logs.told(senders) == []
    assert replaced(logs.logs, "billing", senders, NOW_MS) == {}


def test_tu1_nobody_but_the_receiver(logs: Logs) -> None:
    assert takes_up(logs.logs, "north", ["south"], NOW_MS) == []
    assert takes_up(logs.logs, "south", ["north", "south"], NOW_MS) == []


@pytest.mark.parametrize(
    ("proposed", "is_signed"),
    [
        ([], False),
        ([("south", content(CHEAPER, tiers=(Tier(999_000, 45),)))], False),
        ([("billing", CHEAPER)], False),
        ([("south", CHEAPER)], True),
    ],
)
def test_tu2_only_what_the_new_sender_has_signed_as_it_was_suggested(
    proposed: list[tuple[str, StreamContract]], is_signed: bool
) -> None:
    logs = Logs()
    logs.agree()
    logs.say("north", SUGGESTED)
    for by, text in proposed:
        logs.say(by, text)
    assert logs.told() == [CHEAPER] * is_signed


def test_tu3_nothing_is_taken_up_before_a_period_is_settled(logs: Logs) -> None:
    logs.ledger().last = None
    assert logs.told() == []


START_MS = NOW_MS + TOLLS.notice_ms
"""End of the old contract by a notice that is given now."""


@pytest.mark.parametrize(
    ("changes", "is_signed"),
    [
        # Of each message 10 of 50 are saved after the end, and 40 are paid twice before it: what
        # follows the notice of ten minutes must be longer than forty.
        ({"valid_to_ms": START_MS + 4 * TOLLS.notice_ms}, False),
        ({"valid_to_ms": START_MS + 4 * TOLLS.notice_ms + 1}, True),
        # One that begins at that end is paid for once.
        ({"valid_from_ms": START_MS, "valid_to_ms": START_MS + 1}, True),
        ({"valid_from_ms": START_MS + 1}, False),
        # North's contract would end then, so nothing is saved later.
        ({"valid_to_ms": 40 * DAY_MS}, True),
        ({"tiers": (Tier(999_000, 50),)}, False),
        ({"delay_ms_max": TOLLS.delay_ms_max + 1}, False),
    ],
)
def test_tu3_it_must_save_more_than_is_paid_twice(changes: dict[str, Any], is_signed: bool) -> None:
    logs = Logs()
    logs.agree()
    logs.suggest(content(CHEAPER, **changes))
    assert bool(logs.told()) is is_signed


def test_tu3_a_contract_that_ends_soon_is_not_replaced(logs: Logs) -> None:
    late_ms = SUGGESTED.open_until_ms - 1
    assert logs.told(now_ms=late_ms) == [CHEAPER]
    logs = Logs()
    logs.at_ms = NOW_MS
    short = content(valid_to_ms=NOW_MS + TOLLS.notice_ms)
    logs.say("north", short)
    logs.say("billing", short)
    logs.ledger().last = PeriodDelivery(60_000, 1_000, 600, 600)
    logs.suggest(CHEAPER)
    assert logs.told() == []


def test_tu4_the_one_that_saves_most(logs: Logs) -> None:
    cheapest = content(
        CHEAPER, contract_id="west-billing", sender="west", tiers=(Tier(999_000, 39),)
    )
    logs.say("north", replace(SUGGESTED, terms=cheapest))
    logs.say("west", cheapest)
    assert logs.told(("south", "west")) == [cheapest]
    assert logs.told(("south",)) == [CHEAPER]


@pytest.mark.parametrize("change", [Change.SUSPENDED, Change.NOTICE])
def test_tu4_nothing_in_place_of_a_contract_that_is_not_active(logs: Logs, change: Change) -> None:
    logs.say("north", ContractChange("north-billing", 1, "north", change, NOW_MS, NOW_MS))
    assert logs.told() == []


def test_tu5_no_notice_before_a_contract_that_begins_after_the_end(logs: Logs) -> None:
    late = content(CHEAPER, contract_id="late", valid_from_ms=START_MS + 1)
    logs.suggest(late)
    logs.say("billing", late)
    assert logs.told() == [CHEAPER]


def test_tu5_no_notice_for_a_contract_that_ends_itself(logs: Logs) -> None:
    logs.say("billing", CHEAPER)
    logs.say("south", notice(CHEAPER, "south"))
    assert logs.told() == []
