"""The history of one contract for streams, in one order: its texts, the parties' statements about
it and about its plans, and its ledger.

Theory of operation. Such a contract is signed, changed and settled in a log of its own, by the
rules of all contracts (``contract_log``); what differs is what is metered, and what is due
(``stream_ledger``). A log has contracts of one kind: that of the first text that counted in it. A
text of the other kind changes nothing in it.

Invariants: FR1 to FR4 of ``contract_log``.
"""

from __future__ import annotations

from typing import ClassVar, Final

from anabranch.protocol.federation.contract_book import Book, Booked, Change, ContractChange
from anabranch.protocol.federation.contract_log import AgreementLog, VerifyAt
from anabranch.protocol.federation.ledger import Settled
from anabranch.protocol.federation.plan_switching import PlanWord
from anabranch.protocol.federation.statements import Verify
from anabranch.protocol.federation.stream_contracts import (
    StreamContract,
    SuggestedContract,
    stream_defects,
)
from anabranch.protocol.federation.stream_ledger import ContentMetered, StreamEntry, StreamLedger

STREAM_STATEMENTS: Final = (
    StreamContract,
    ContractChange,
    PlanWord,
    ContentMetered,
    SuggestedContract,
    Settled,
)
"""No other signed statement belongs in such a log."""

StreamStatement = StreamContract | ContractChange | StreamEntry
"""The same."""


def _book(verify: Verify) -> Book[StreamContract]:
    return Book(verify, stream_defects)


class StreamLog(AgreementLog[StreamContract, StreamEntry]):
    """Log state of a contract under which streams are paid for."""

    DISPUTED: ClassVar[str] = "periods"

    def __init__(self, contract_id: str, verify: VerifyAt, auditor: str) -> None:
        """``auditor``: may settle, as the parties may."""
        super().__init__(contract_id, StreamContract, _book, verify)
        self._auditor = auditor
        self.ledger: StreamLedger | None = None
        """Ledger of the contract; None until both have signed."""

    def is_in_force(self, now_ms: int) -> bool:
        """Return whether another plan than the plain one may be active."""
        booked = self.booked
        return booked is not None and booked.may_move(now_ms)

    def _agreed(self, text: StreamContract) -> None:
        if self.ledger is None:
            self.ledger = StreamLedger(text, self.now_ms)
        else:
            self.ledger.renewed(text, self.now_ms)

    def _entered(self, entry: StreamEntry) -> str:
        assert self.ledger is not None, "both have signed"  # noqa: S101 - the caller has looked
        if isinstance(entry, Settled) and entry.by not in {
            self.ledger.contract.receiver,
            self.ledger.contract.sender,
            self._auditor,
        }:
            return "not by a party of the contract"
        return self.ledger.add(entry, self.now_ms, may_switch=self.is_in_force(self.now_ms))

    def _counted(self, word: ContractChange, booked: Booked[StreamContract]) -> None:
        super()._counted(word, booked)
        assert self.ledger is not None, "both have signed"  # noqa: S101 - the caller has looked
        if word.change is Change.SUSPENDED:
            self.ledger.suspended(self.now_ms, word.by)
        elif word.change is Change.RESUMED and not booked.suspended_by:
            self.ledger.resumed(self.now_ms)
        elif word.change is Change.NOTICE and booked.ends_ms is not None:
            self.ledger.noticed(self.now_ms, word.by, booked.ends_ms)

    def _breaches(self) -> list[str]:
        return []

    def _disputes(self) -> int:
        return 0 if self.ledger is None else len(self.ledger.disputes)
