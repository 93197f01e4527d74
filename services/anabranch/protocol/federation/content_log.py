"""The history of one content contract, in one order: its texts, the parties' statements about it,
and its ledger.

Theory of operation. A content contract is signed, changed and settled in a log of its own, by the
rules of all contracts (``contract_log``); what differs is what is metered, and what is due
(``content_ledger``). A log has contracts of one kind: that of the first text that counted in it. A
text of the other kind changes nothing in it.

Invariants: FR1 to FR4 of ``contract_log``.
"""

from __future__ import annotations

from typing import ClassVar, Final

from anabranch.protocol.federation.content_contracts import (
    ContentContract,
    SuggestedContract,
    content_defects,
)
from anabranch.protocol.federation.content_ledger import (
    ContentEntry,
    ContentLedger,
    ContentMetered,
)
from anabranch.protocol.federation.contract_book import Book, Booked, Change, ContractChange
from anabranch.protocol.federation.contract_log import AgreementLog, VerifyAt
from anabranch.protocol.federation.ledger import Settled
from anabranch.protocol.federation.statements import Verify

CONTENT_STATEMENTS: Final = (
    ContentContract,
    ContractChange,
    ContentMetered,
    SuggestedContract,
    Settled,
)
"""No other signed statement belongs in such a log."""

ContentStatement = ContentContract | ContractChange | ContentEntry
"""The same."""


def _book(verify: Verify) -> Book[ContentContract]:
    return Book(verify, content_defects)


class ContentLog(AgreementLog[ContentContract, ContentEntry]):
    """Of a contract for a stream."""

    DISPUTED: ClassVar[str] = "periods"

    def __init__(self, contract_id: str, verify: VerifyAt, auditor: str) -> None:
        """``auditor``: may settle, as the parties may."""
        super().__init__(contract_id, ContentContract, _book, verify)
        self._auditor = auditor
        self.ledger: ContentLedger | None = None
        """From the moment on at which both have signed."""

    def _agreed(self, text: ContentContract) -> None:
        if self.ledger is None:
            self.ledger = ContentLedger(text, self.now_ms)
        else:
            self.ledger.renewed(text, self.now_ms)

    def _entered(self, entry: ContentEntry) -> str:
        assert self.ledger is not None, "both have signed"  # noqa: S101 - the caller has looked
        if isinstance(entry, Settled) and entry.by not in {
            self.ledger.contract.receiver,
            self.ledger.contract.sender,
            self._auditor,
        }:
            return "not by a party of the contract"
        return self.ledger.add(entry, self.now_ms)

    def _counted(self, word: ContractChange, booked: Booked[ContentContract]) -> None:
        super()._counted(word, booked)
        assert self.ledger is not None, "both have signed"  # noqa: S101 - the caller has looked
        if word.change is Change.SUSPENDED:
            self.ledger.suspended(self.now_ms)
        elif word.change is Change.RESUMED and not booked.suspended_by:
            self.ledger.resumed(self.now_ms)
        elif word.change is Change.NOTICE and booked.ends_ms is not None:
            # A word may be dated back a little; what has been delivered by now has been.
            self.ledger.ends(max(booked.ends_ms, self.now_ms))

    def _breaches(self) -> list[str]:
        return []

    def _disputes(self) -> int:
        return 0 if self.ledger is None else len(self.ledger.disputes)
