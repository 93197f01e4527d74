"""The history of one movement contract, in one order: its texts, what the two say of its plans, and
who owes whom how much.

Theory of operation. The log has the rules of all contracts (``contract_log``), and the ledger those
of a contract for a stream (``content_ledger``). What differs is that the terms of a period are
those of the plan that was active when it began, by the log's times: so what is due follows from the
log, and from nothing else. Under a plan whose stream a stage at the sender makes, only what the
sender's node has made counts, except in a period in which the plan was being left: by a switch that
both had agreed to, a cancellation, a suspension or a notice. Who has stopped then as it was agreed
is paid for the rest of the period, in which it sends the stream that the query reads.

Invariants:
    MP1  a period is charged under exactly one plan, or not at all.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.federation.content_ledger import ContentMetered, StreamLedger
from anabranch.protocol.federation.content_log import StreamLog
from anabranch.protocol.federation.contract_book import Book, Booked, Change, ContractChange
from anabranch.protocol.federation.contract_log import VerifyAt
from anabranch.protocol.federation.ledger import Settled
from anabranch.protocol.federation.plan_contracts import MovementContract, plan_defects
from anabranch.protocol.federation.plan_switching import PlanSwitch, PlanWord
from anabranch.protocol.federation.statements import Verify

PLAN_STATEMENTS: Final = (MovementContract, ContractChange, PlanWord, ContentMetered, Settled)
"""No other signed statement belongs in such a log."""

PlanEntry = PlanWord | ContentMetered | Settled


class PlanLedger(StreamLedger[MovementContract]):
    """After a crash: replay."""

    def __init__(self, contract: MovementContract, agreed_ms: int) -> None:
        super().__init__(contract, agreed_ms)
        self.switch = PlanSwitch(contract, agreed_ms)

    def renewed(self, contract: MovementContract, at_ms: int) -> None:
        """Take a further version that both have signed."""
        super().renewed(contract, at_ms)
        self.switch.contract = contract

    def plan(self, period: int) -> int | None:
        """Return the one that was active when the period began (MP1)."""
        return self.switch.plan_at(period * self.contract.settle_ms)

    def is_anybodys(self, period: int) -> bool:
        """Whether results count in a period whoever made them, since its plan was being left."""
        settle_ms = self.contract.settle_ms
        return self.switch.was_left(period * settle_ms, (period + 1) * settle_ms)


def _book(verify: Verify) -> Book[MovementContract]:
    return Book(verify, plan_defects)


class PlanLog(StreamLog[MovementContract, PlanEntry, PlanLedger]):
    """Log state of a movement contract."""

    def __init__(self, contract_id: str, verify: VerifyAt, auditor: str) -> None:
        """``auditor``: may settle, as the parties may."""
        super().__init__(contract_id, MovementContract, _book, verify, auditor)

    def _begun(self, text: MovementContract) -> PlanLedger:
        return PlanLedger(text, self.now_ms)

    def _counted_in(self, ledger: PlanLedger, entry: PlanEntry) -> str:
        if isinstance(entry, PlanWord):
            return ledger.switch.add(entry, self.now_ms, may_switch=self.is_in_force(self.now_ms))
        return ledger.add(entry, self.now_ms)

    def is_in_force(self, now_ms: int) -> bool:
        """Whether another plan than the plain one may be active."""
        booked = self.booked
        return booked is not None and booked.may_move(now_ms)

    def _counted(self, word: ContractChange, booked: Booked[MovementContract]) -> None:
        super()._counted(word, booked)
        if self.ledger is not None and word.change in {Change.SUSPENDED, Change.NOTICE}:
            self.ledger.switch.plain(self.now_ms, word.change.value, word.by)
