"""The history of one content contract, in one order: its texts, the parties' statements about it,
and its ledger.

Theory of operation. A content contract is signed, changed and settled in a log of its own, by the
rules of all contracts (``contract_log``); what differs is what is metered, and what is due
(``content_ledger``). A log has contracts of one kind: that of the first text that counted in it. A
text of the other kind changes nothing in it.

Invariants: FR1 to FR4 of ``contract_log``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, TypeVar

from anabranch.protocol.federation.content_contracts import (
    ContentContract,
    SuggestedContract,
    content_defects,
)
from anabranch.protocol.federation.content_ledger import (
    ContentEntry,
    ContentLedger,
    ContentMetered,
    StreamLedger,
    StreamTextT,
)
from anabranch.protocol.federation.contract_book import Book, Booked, Change, ContractChange
from anabranch.protocol.federation.contract_log import AgreementLog, EntryT, VerifyAt
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


LedgerT = TypeVar("LedgerT", bound=StreamLedger[Any])


def _book(verify: Verify) -> Book[ContentContract]:
    return Book(verify, content_defects)


class StreamLog(AgreementLog[StreamTextT, EntryT], Generic[StreamTextT, EntryT, LedgerT]):
    """Log state of a contract under which streams are paid for."""

    DISPUTED: ClassVar[str] = "periods"

    def __init__(
        self,
        contract_id: str,
        kind: type[StreamTextT],
        book: Callable[[Verify], Book[StreamTextT]],
        verify: VerifyAt,
        auditor: str,
    ) -> None:
        """``auditor``: may settle, as the parties may."""
        super().__init__(contract_id, kind, book, verify)
        self._auditor = auditor
        self.ledger: LedgerT | None = None
        """Ledger of the contract; None until both have signed."""

    @abstractmethod
    def _begun(self, text: StreamTextT) -> LedgerT:
        """Return the ledger of a contract that both have signed just now."""

    def _agreed(self, text: StreamTextT) -> None:
        if self.ledger is None:
            self.ledger = self._begun(text)
        else:
            self.ledger.renewed(text, self.now_ms)

    def _entered(self, entry: EntryT) -> str:
        assert self.ledger is not None, "both have signed"  # noqa: S101 - the caller has looked
        if isinstance(entry, Settled) and entry.by not in {
            self.ledger.contract.receiver,
            self.ledger.contract.sender,
            self._auditor,
        }:
            return "not by a party of the contract"
        return self._counted_in(self.ledger, entry)

    @abstractmethod
    def _counted_in(self, ledger: LedgerT, entry: EntryT) -> str:
        """Add an entry to the ledger. Return why it does not count, or an empty text."""

    def _counted(self, word: ContractChange, booked: Booked[StreamTextT]) -> None:
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


class ContentLog(StreamLog[ContentContract, ContentEntry, ContentLedger]):
    """Log state of a contract for one stream."""

    def __init__(self, contract_id: str, verify: VerifyAt, auditor: str) -> None:
        """``auditor``: as of all."""
        super().__init__(contract_id, ContentContract, _book, verify, auditor)

    def _begun(self, text: ContentContract) -> ContentLedger:
        return ContentLedger(text, self.now_ms)

    def _counted_in(self, ledger: ContentLedger, entry: ContentEntry) -> str:
        return ledger.add(entry, self.now_ms)
