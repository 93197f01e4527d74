"""The history of one contract, in one order: its texts, the parties' statements about it, and its
ledger.

Theory of operation. A contract has one log, which its two parties and the auditor write, and nobody
else reads. Texts, words and ledger entries stand in it together, since what an entry is worth
depends on what stands before it: a movement may begin under a version that both have signed by
then, and an end without a penalty needs the notice before it. Each record has one signature, of
whoever says it. Time is the log's own. So whoever reads the log from its beginning gets the same
contract, the same movements and the same sums.

A party says in a word when it says so, and a notice runs from then: a word whose time is not about
the log's is none.

Invariants:
    FR1  a record without the signature of its author changes nothing.
    FR2  replaying the log gives the same state; a record that is written again changes nothing.
    FR3  nobody can date a word back, or ahead, by more than ``WORD_SKEW_MS``.
    FR4  what a party has suspended a contract for, or resumed it after, is no reason to suspend it
        again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from anabranch.protocol.federation.contract_book import (
    BookedContract,
    Change,
    ContractBook,
    ContractChange,
    ContractState,
    Verdict,
)
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.ledger import (
    DISPUTES_MAX,
    AuditCommitted,
    Audited,
    Ledger,
    LedgerEntry,
    Metered,
    Settled,
)
from anabranch.protocol.federation.movements import Ended, Started, Withdrawn
from anabranch.protocol.federation.statements import Signature, is_signed

WORD_SKEW_MS: Final = 60_000
"""By so much may the clock of a party and the log's differ."""

VerifyAt = Callable[[Signature, bytes, int], bool]
"""Whether a key that counted for the participant at this time of the log made this signature of
these bytes.
"""

ContractStatement = Contract | ContractChange | LedgerEntry
"""What may stand in a contract's log."""

STATEMENTS: Final = (
    Contract,
    ContractChange,
    Started,
    Withdrawn,
    Ended,
    Metered,
    AuditCommitted,
    Audited,
    Settled,
)
"""The same, for ``isinstance``: no other signed statement belongs there."""


class ContractLog:
    """The log state of one contract's log. Not thread-safe. After a crash: replay."""

    def __init__(self, contract_id: str, verify: VerifyAt, auditor: str) -> None:
        """``auditor``: whose findings count."""
        self.contract_id, self._auditor = contract_id, auditor
        self._verify_at = verify
        self._book = ContractBook(self._verify)
        self.ledger: Ledger | None = None
        """From the moment on at which both have signed."""
        self.now_ms = 0
        """The log's time of the last record; it never goes back."""
        self.ignored: Counter[str] = Counter()
        """Records that changed nothing, by the reason."""
        self._judged: dict[str, tuple[int, int]] = {}
        """Party -> breaches and disputes that there were when it suspended or resumed (FR4)."""

    @property
    def booked(self) -> BookedContract | None:
        """The newest version that both signed, or else what is proposed; None: nothing is."""
        return next(iter(self._book), None)

    @property
    def proposal(self) -> BookedContract | None:
        """The text that one of the two has signed and the other has not; None: there is none."""
        return self._book.proposal(self.contract_id)

    def reason_to_suspend(self, participant: str) -> str:
        """Why a party is to suspend the contract; empty: it is not, or has done so (FR4)."""
        booked, ledger = self.booked, self.ledger
        if booked is None or ledger is None or booked.contract.party(participant) is None:
            return ""
        if booked.state_at(self.now_ms) not in {ContractState.ACTIVE, ContractState.SUSPENDED}:
            return ""
        breaches, disputes = self._judged.get(participant, (0, 0))
        if participant == booked.contract.buyer and len(ledger.breaches) > breaches:
            return f"{booked.contract.seller} owes a violation for {ledger.breaches[-1]}"
        if len(ledger.disputes) - disputes >= DISPUTES_MAX:
            return f"{len(ledger.disputes) - disputes} slots are in dispute"
        return ""

    def add(self, statement: ContractStatement, signature: Signature, appended_ms: int) -> str:
        """Counts a record, in the order of the log; answers why it changes nothing, or nothing.

        ``appended_ms`` is the log's time of it.
        """
        self.now_ms = max(self.now_ms, appended_ms)
        reason = self._reason(statement, signature)
        if reason:
            self.ignored[reason] += 1
        return reason

    def _reason(self, statement: ContractStatement, signature: Signature) -> str:
        if statement.contract_id != self.contract_id:
            return "not of this contract"
        if isinstance(statement, Contract):
            return self._signed(statement, signature)
        if not is_signed(statement, statement.by, signature, self._verify):
            return Verdict.UNSIGNED.value
        if isinstance(statement, ContractChange):
            return self._changed(statement, signature)
        if self.ledger is None:
            return Verdict.UNKNOWN.value
        # Whoever does not count at all must not be able to fill the list of reasons.
        reason = self.ledger.add(statement, self.now_ms)
        return "the sum is another" if reason.startswith("the sum is ") else reason

    def _signed(self, text: Contract, signature: Signature) -> str:
        before = self._book.find(self.contract_id)
        verdict = self._book.sign(text, signature, self.now_ms)
        if verdict is not Verdict.ACCEPTED:
            return str(verdict.value)
        after = self._book.find(self.contract_id)
        if after is not None and self.ledger is None:
            self.ledger = Ledger(after.contract, self._verify, self._auditor)
        elif after is not None and self.ledger is not None and after is not before:
            self.ledger.renewed(after.contract)
        return ""

    def _changed(self, word: ContractChange, signature: Signature) -> str:
        if abs(word.at_ms - self.now_ms) > WORD_SKEW_MS:
            return Verdict.EXPIRED.value
        verdict = self._book.change(word, signature)
        if verdict is not Verdict.ACCEPTED:
            return str(verdict.value)
        if word.change is Change.NOTICE and self.ledger is not None:
            self.ledger.noticed(self.now_ms)
        if word.change in {Change.SUSPENDED, Change.RESUMED} and self.ledger is not None:
            self._judged[word.by] = len(self.ledger.breaches), len(self.ledger.disputes)
        return ""

    def _verify(self, signature: Signature, message: bytes) -> bool:
        return self._verify_at(signature, message, self.now_ms)
