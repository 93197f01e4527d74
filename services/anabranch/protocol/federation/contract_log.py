"""The history of one contract, in one order: its texts, the parties' statements about it, and its
ledger.

Theory of operation. A contract has one log, which its two parties and the auditor write, and nobody
else reads. Texts, words and ledger entries stand in it together, since what an entry is worth
depends on what stands before it: a movement may begin under a version that both have signed by
then, and an end without a penalty needs the notice before it. Each record has one signature, of
whoever says it. Time is the log's own. So whoever reads the log from its beginning gets the same
contract, the same movements and the same sums. A contract of another kind has a log of the same
rules (``AgreementLog``), with another ledger (``content_log``).

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

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import ClassVar, Final, Generic, Protocol, TypeVar, cast

from anabranch.protocol.federation.contract_book import (
    Book,
    Booked,
    BookedContract,
    Change,
    ContractBook,
    ContractChange,
    ContractState,
    TextT,
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
from anabranch.protocol.federation.movements import Ended, Placed, Started, Withdrawn
from anabranch.protocol.federation.statements import Signature, Statement, Verify, is_signed

WORD_SKEW_MS: Final = 60_000
"""Maximum difference between a party's clock and the log's, in ms."""

VerifyAt = Callable[[Signature, bytes, int], bool]
"""Whether a key that counted for the participant at this time of the log made this signature of
these bytes.
"""

ContractStatement = Contract | ContractChange | LedgerEntry
"""Record of the log of a contract for load."""

STATEMENTS: Final = (
    Contract,
    ContractChange,
    Started,
    Withdrawn,
    Placed,
    Ended,
    Metered,
    AuditCommitted,
    Audited,
    Settled,
)
"""The same, for ``isinstance``: no other signed statement belongs there."""


class Entry(Statement, Protocol):
    """Statement of a party, or of the auditor, about a contract that both parties have signed."""

    @property
    def contract_id(self) -> str:
        """Return the contract's id."""

    @property
    def by(self) -> str:
        """Return the participant that makes the statement."""


EntryT = TypeVar("EntryT", bound=Entry)


class AgreementLog(ABC, Generic[TextT, EntryT]):
    """The log state of one contract's log, of whichever kind. Not thread-safe. After a crash:
    replay.
    """

    DISPUTED: ClassVar[str]
    """Name of what the two sides measure, for messages."""

    def __init__(
        self,
        contract_id: str,
        kind: type[TextT],
        book: Callable[[Verify], Book[TextT]],
        verify: VerifyAt,
    ) -> None:
        """``book``: makes an empty one, for texts of this ``kind``."""
        self.contract_id, self._kind = contract_id, kind
        self._verify_at = verify
        self._book = book(self._verify)
        self.now_ms = 0
        """The log's time of the last record; it never goes back."""
        self.ignored: Counter[str] = Counter()
        """Records that changed nothing, by the reason."""
        self._judged: dict[str, tuple[int, int]] = {}
        """Party -> breaches and disputes that there were when it suspended or resumed (FR4)."""

    @property
    def booked(self) -> Booked[TextT] | None:
        """The newest version that both signed, or else what is proposed; None: nothing is."""
        return next(iter(self._book), None)

    @property
    def proposal(self) -> Booked[TextT] | None:
        """The text that one of the two has signed and the other has not; None: there is none."""
        return self._book.proposal(self.contract_id)

    def reason_to_suspend(self, participant: str) -> str:
        """Why a party is to suspend the contract; empty: it is not, or has done so (FR4)."""
        booked = self.booked
        if booked is None or booked.contract.party(participant) is None:
            return ""
        if booked.state_at(self.now_ms) not in {ContractState.ACTIVE, ContractState.SUSPENDED}:
            return ""
        known_breaches, known_disputes = self._judged.get(participant, (0, 0))
        breaches, disputes = self._breaches(), self._disputes()
        if participant == booked.contract.buyer and len(breaches) > known_breaches:
            return f"{booked.contract.seller} owes a violation for {breaches[-1]}"
        if disputes - known_disputes >= DISPUTES_MAX:
            return f"{disputes - known_disputes} {self.DISPUTED} are in dispute"
        return ""

    def add(
        self, statement: TextT | ContractChange | EntryT, signature: Signature, appended_ms: int
    ) -> str:
        """Count a record, in the order of the log. Return why it changes nothing, or an empty text.

        ``appended_ms`` is the log's time of it.
        """
        self.now_ms = max(self.now_ms, appended_ms)
        reason = self._reason(statement, signature)
        if reason:
            self.ignored[reason] += 1
        return reason

    def _reason(self, statement: TextT | ContractChange | EntryT, signature: Signature) -> str:
        if statement.contract_id != self.contract_id:
            return "not of this contract"
        if isinstance(statement, self._kind):
            return self._signed(statement, signature)
        entry = cast("ContractChange | EntryT", statement)
        if not is_signed(entry, entry.by, signature, self._verify):
            return Verdict.UNSIGNED.value
        if isinstance(entry, ContractChange):
            return self._changed(entry, signature)
        if self._book.find(self.contract_id) is None:
            return Verdict.UNKNOWN.value
        # Whoever does not count at all must not be able to fill the list of reasons.
        reason = self._entered(cast("EntryT", entry))
        return "the sum is another" if reason.startswith("the sum is ") else reason

    def _signed(self, text: TextT, signature: Signature) -> str:
        before = self._book.find(self.contract_id)
        verdict = self._book.sign(text, signature, self.now_ms)
        if verdict is not Verdict.ACCEPTED:
            return str(verdict.value)
        after = self._book.find(self.contract_id)
        if after is not None and after is not before:
            self._agreed(after.contract)
        return ""

    def _changed(self, word: ContractChange, signature: Signature) -> str:
        if abs(word.at_ms - self.now_ms) > WORD_SKEW_MS:
            return Verdict.EXPIRED.value
        verdict = self._book.change(word, signature)
        if verdict is not Verdict.ACCEPTED:
            return str(verdict.value)
        booked = self._book.find(self.contract_id)
        if booked is not None and word.change is not Change.WITHDRAWN:
            self._counted(word, booked)
        return ""

    def _counted(self, word: ContractChange, booked: Booked[TextT]) -> None:
        """Note a change of a contract that both have signed."""
        del booked
        if word.change in {Change.SUSPENDED, Change.RESUMED}:
            self._judged[word.by] = len(self._breaches()), self._disputes()

    def _verify(self, signature: Signature, message: bytes) -> bool:
        return self._verify_at(signature, message, self.now_ms)

    @abstractmethod
    def _agreed(self, text: TextT) -> None:
        """Both have signed it just now."""

    @abstractmethod
    def _entered(self, entry: EntryT) -> str:
        """Add an entry to the ledger. Return why it does not count, or an empty text."""

    @abstractmethod
    def _breaches(self) -> list[str]:
        """Return the movements for which the seller owed a violation."""

    @abstractmethod
    def _disputes(self) -> int:
        """How often the two sides have measured different things."""


class ContractLog(AgreementLog[Contract, LedgerEntry]):
    """Log state of a contract for load."""

    DISPUTED: ClassVar[str] = "slots"

    def __init__(self, contract_id: str, verify: VerifyAt, auditor: str) -> None:
        """``auditor``: whose findings count."""
        super().__init__(contract_id, Contract, ContractBook, verify)
        self._auditor = auditor
        self.ledger: Ledger | None = None
        """Ledger of the contract; None until both have signed."""

    def _agreed(self, text: Contract) -> None:
        if self.ledger is None:
            self.ledger = Ledger(text, self._verify, self._auditor)
        else:
            self.ledger.renewed(text)

    def _entered(self, entry: LedgerEntry) -> str:
        assert self.ledger is not None, "both have signed"  # noqa: S101 - the caller has looked
        return self.ledger.add(entry, self.now_ms)

    def _counted(self, word: ContractChange, booked: BookedContract) -> None:
        super()._counted(word, booked)
        if word.change is Change.NOTICE and self.ledger is not None:
            self.ledger.noticed(self.now_ms)

    def _breaches(self) -> list[str]:
        return [] if self.ledger is None else self.ledger.breaches

    def _disputes(self) -> int:
        return 0 if self.ledger is None else len(self.ledger.disputes)
