"""The history of one contract, in one order: its texts, the parties' statements about it, and its
ledger.

Theory of operation. A contract has one log, which its two parties and the auditor write, and no
other participant reads. Texts, words and ledger entries are in one log, since the effect of an
entry depends on the records before it: a movement may begin under a version that both have signed
by then, and an end without a penalty needs the notice before it. Each record has one signature,
that of its author. Time is the log's own. So every reader that begins at the log's beginning gets
the same contract, the same movements and the same sums.

The kind of the text that both have signed first decides what is metered and what is due: load
(``ledger``) or streams (``stream_ledger``). From then on no text of the other kind is a version of
it, and no entry of the other kind counts.

A party says in a word when it says so, and a notice runs from then: a word whose time is not about
the log's is none.

Invariants:
    FR1  a record without the signature of its author changes nothing.
    FR2  replaying the log gives the same state; a record that is written again changes nothing.
    FR3  no author can date a word back, or ahead, by more than ``WORD_SKEW_MS``.
    FR4  what a party has suspended a contract for, or resumed it after, is no reason to suspend it
        again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar, cast

from anabranch.protocol.federation.contract_book import (
    Book,
    Booked,
    Change,
    ContractChange,
    ContractState,
    TextT,
    Verdict,
)
from anabranch.protocol.federation.contracts import Contract, defects
from anabranch.protocol.federation.ledger import DISPUTES_MAX, Ledger, LedgerEntry, PeriodLedger
from anabranch.protocol.federation.statements import Signature, is_signed
from anabranch.protocol.federation.stream_contracts import StreamContract, stream_defects
from anabranch.protocol.federation.stream_ledger import StreamEntry, StreamLedger

WORD_SKEW_MS: Final = 60_000
"""Maximum difference between a party's clock and the log's, in ms."""

VerifyAt = Callable[[Signature, bytes, int], bool]
"""Whether a key that counted for the participant at this time of the log made this signature of
these bytes.
"""

AnyText = Contract | StreamContract
"""Text of a contract of any kind."""

ContractStatement = AnyText | ContractChange | LedgerEntry | StreamEntry
"""Statement that a contract's log can have."""

STATEMENTS: Final = (
    Contract,
    StreamContract,
    ContractChange,
    *Ledger.ENTRIES,
    *StreamLedger.ENTRIES,
)
"""Classes of these statements, for ``isinstance``: no other signed statement belongs there."""

LedgerT = TypeVar("LedgerT", bound=PeriodLedger[Any])


def _defects(text: AnyText) -> Iterator[str]:
    """Yield the defects of a contract's text, for load or for streams."""
    return defects(text) if isinstance(text, Contract) else stream_defects(text)


class ContractLog(Generic[TextT, LedgerT]):
    """Log state of one contract's log. Not thread-safe. After a crash: replay."""

    def __init__(self, contract_id: str, verify: VerifyAt, auditor: str) -> None:
        """Begin without a text. Findings of ``auditor`` count, and it may settle."""
        self.contract_id = contract_id
        self._verify_at, self._auditor = verify, auditor
        self._book: Book[Any] = Book(self._verify, _defects)
        self.ledger: LedgerT | None = None
        """Ledger of the contract; None until both have signed."""
        self.now_ms = 0
        """The log's time of the last record; it never goes back."""
        self.ignored: Counter[str] = Counter()
        """Records that changed nothing, by the reason."""
        self._judged: dict[str, tuple[int, int]] = {}
        """Number of breaches and disputes, by party, at the time at which it suspended or resumed
        (FR4).
        """

    @property
    def booked(self) -> Booked[TextT] | None:
        """Newest version that both have signed, else the proposal; None: there is neither."""
        return next(iter(self._book), None)

    @property
    def proposal(self) -> Booked[TextT] | None:
        """Text that one of the two has signed and the other has not; None: there is none."""
        return self._book.proposal(self.contract_id)

    def reason_to_suspend(self, participant: str) -> str:
        """Return why a party is to suspend the contract; empty: it is not, or has done so (FR4)."""
        booked, ledger = self.booked, self.ledger
        if booked is None or ledger is None or booked.contract.party(participant) is None:
            return ""
        if booked.state_at(self.now_ms) not in {ContractState.ACTIVE, ContractState.SUSPENDED}:
            return ""
        known_breaches, known_disputes = self._judged.get(participant, (0, 0))
        if participant == booked.contract.buyer and len(ledger.breaches) > known_breaches:
            return f"{booked.contract.seller} owes a violation for {ledger.breaches[-1]}"
        disputes = len(ledger.disputes) - known_disputes
        return f"{disputes} {ledger.DISPUTED} are in dispute" if disputes >= DISPUTES_MAX else ""

    def add(self, statement: ContractStatement, signature: Signature, appended_ms: int) -> str:
        """Count a record, in the order of the log. Return why it changes nothing, or an empty text.

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
        if isinstance(statement, (Contract, StreamContract)):
            return self._signed(statement, signature)
        if not is_signed(statement, statement.by, signature, self._verify):
            return Verdict.UNSIGNED.value
        if isinstance(statement, ContractChange):
            return self._changed(statement, signature)
        if self.ledger is None:
            return Verdict.UNKNOWN.value
        if not isinstance(statement, self.ledger.ENTRIES):
            return "of another kind of contract"
        # Whoever does not count at all must not be able to fill the list of reasons.
        reason = self.ledger.add(statement, self.now_ms)
        return "the sum is another" if reason.startswith("the sum is ") else reason

    def _signed(self, text: AnyText, signature: Signature) -> str:
        before = self._book.find(self.contract_id)
        verdict = self._book.sign(text, signature, self.now_ms)
        if verdict is not Verdict.ACCEPTED:
            return str(verdict.value)
        after = self._book.find(self.contract_id)
        if after is before:
            return ""
        if self.ledger is not None:
            self.ledger.renewed(text, self.now_ms)
        elif isinstance(text, Contract):
            self.ledger = cast("LedgerT", Ledger(text, self._verify, self._auditor))
        else:
            self.ledger = cast("LedgerT", StreamLedger(text, self.now_ms, self._auditor))
        return ""

    def _changed(self, word: ContractChange, signature: Signature) -> str:
        if abs(word.at_ms - self.now_ms) > WORD_SKEW_MS:
            return Verdict.EXPIRED.value
        verdict = self._book.change(word, signature)
        if verdict is not Verdict.ACCEPTED:
            return str(verdict.value)
        booked, ledger = self._book.find(self.contract_id), self.ledger
        if booked is None or ledger is None or word.change is Change.WITHDRAWN:
            return ""
        if word.change is Change.NOTICE and booked.ends_ms is not None:
            ledger.noticed(self.now_ms, word.by, booked.ends_ms)
            return ""
        self._judged[word.by] = len(ledger.breaches), len(ledger.disputes)
        if word.change is Change.SUSPENDED:
            ledger.suspended(self.now_ms, word.by)
        elif not booked.suspended_by:
            ledger.resumed(self.now_ms)
        return ""

    def _verify(self, signature: Signature, message: bytes) -> bool:
        return self._verify_at(signature, message, self.now_ms)


LoadLog = ContractLog[Contract, Ledger]
"""Log of a contract for load, or of one without signatures yet."""

StreamLog = ContractLog[StreamContract, StreamLedger]
"""Log of a contract for streams."""
