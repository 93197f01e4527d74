"""State of contracts by their records: which participants may move load under which of them, at a
given time.

Theory of operation. The book is a log state over a log of signed records. It believes signatures
and nothing else: a record that is unsigned, out of its time, at odds with what both signed, or
written again changes nothing, and the answer says which of these it was. Time is an argument.
Replaying the log gives the same book, so it is lost with a process and made again. The table of
``contracts`` is the one that runs here. It is the same for contracts of all kinds (``Text``).

Invariants: FC1 to FC4 of ``contracts``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from anabranch.protocol.federation.contracts import Contract, Side
from anabranch.protocol.federation.statements import (
    Signature,
    Statement,
    Verify,
    is_signed,
    signed_bytes,
)

CONTRACTS_MAX: Final = 10_000
"""Maximum number of contracts in one book: bounds what foreign records can make a reader hold."""

PROPOSALS_MAX: Final = 1_000
"""Maximum number of texts that a party proposes under one id: bounds what it can make a reader
remember.
"""


class ContractState(StrEnum):
    """State of a contract, by the value that records and people use."""

    PROPOSED = "proposed"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    ENDING = "ending"
    ENDED = "ended"


class Change(StrEnum):
    """Event in the life of a contract."""

    SIGNED = "signed"
    WITHDRAWN = "withdrawn"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    NOTICE = "notice"
    EXPIRED = "expired"


TRANSITIONS: Final[dict[tuple[ContractState, Change], ContractState]] = {
    (ContractState.PROPOSED, Change.SIGNED): ContractState.ACTIVE,
    (ContractState.PROPOSED, Change.WITHDRAWN): ContractState.ENDED,
    (ContractState.ACTIVE, Change.SUSPENDED): ContractState.SUSPENDED,
    (ContractState.ACTIVE, Change.NOTICE): ContractState.ENDING,
    (ContractState.ACTIVE, Change.EXPIRED): ContractState.ENDED,
    (ContractState.SUSPENDED, Change.RESUMED): ContractState.ACTIVE,
    (ContractState.SUSPENDED, Change.NOTICE): ContractState.ENDING,
    (ContractState.SUSPENDED, Change.EXPIRED): ContractState.ENDED,
    (ContractState.ENDING, Change.EXPIRED): ContractState.ENDED,
}
"""State after a change; a pair that is missing is rejected."""


class Verdict(Enum):
    """Outcome of a record: accepted, or why it changes nothing."""

    ACCEPTED = "accepted"
    KNOWN = "known already"
    DEFECTIVE = "not a valid contract"
    UNSIGNED = "not signed by whom it must be"
    EXPIRED = "out of its time"
    CONTRADICTS = "says something else than what both signed"
    NOT_NEXT = "not the next version"
    UNKNOWN = "of no contract that is known"
    NOT_A_PARTY = "by nobody whose right it is"
    NOT_NOW = "not in the contract's present state"
    TOO_MANY = "more than a book holds"


@dataclass(frozen=True, slots=True)
class ContractChange:
    """Statement of a party about a contract: suspend, resume, give notice, withdraw. ``at_ms`` is
    the time at which it was made; ``number`` counts the party's statements.
    """

    SIGNED_AS: ClassVar[str] = "contract change"

    contract_id: str
    version: int
    by: str
    change: Change
    number: int
    at_ms: int


class Text(Statement, Protocol):
    """One version of a contract of any kind."""

    @property
    def contract_id(self) -> str:
        """Return the contract's id."""

    @property
    def version(self) -> int:
        """Return the version of the text; the first is 1."""

    @property
    def buyer(self) -> str:
        """Return the participant that pays."""

    @property
    def seller(self) -> str:
        """Return the participant that is paid."""

    @property
    def valid_from_ms(self) -> int:
        """Time at which the text begins to apply, in ms."""

    @property
    def valid_to_ms(self) -> int:
        """Time at which the text ends, in ms."""

    @property
    def ends_after_ms(self) -> int:
        """Return the time from a notice until nothing is owed any more, in ms."""

    def is_version_of(self, other: Text) -> bool:
        """Return whether the text has the terms that all versions of a contract share (FC2)."""

    def party(self, participant: str) -> Side | None:
        """Return the side of the contract that ``participant`` is on; None if neither."""


TextT = TypeVar("TextT", bound=Text)


@dataclass(frozen=True)
class Booked(Generic[TextT]):
    """Contract with its state."""

    contract: TextT
    signed_by: tuple[str, ...]
    state: ContractState
    suspended_by: tuple[str, ...] = ()
    """Parties that have suspended the contract. It is active again when each of them has resumed
    it.
    """
    ends_ms: int | None = None
    """Set by a notice: nothing moves from the notice on, and at this time what has moved must
    be home.
    """

    def state_at(self, now_ms: int) -> ContractState:
        """Return the state at a time: a contract whose time or notice has run out is over."""
        end_ms = (
            self.contract.valid_to_ms
            if self.ends_ms is None
            else min(self.ends_ms, self.contract.valid_to_ms)
        )
        return (
            TRANSITIONS.get((self.state, Change.EXPIRED), self.state)
            if now_ms >= end_ms
            else self.state
        )

    def may_move(self, now_ms: int) -> bool:
        """Return whether load may move under the contract now (FC1)."""
        return (
            self.contract.valid_from_ms <= now_ms and self.state_at(now_ms) is ContractState.ACTIVE
        )


BookedContract = Booked[Contract]
"""Contract for load, as the book has it: its text, signatures and state."""


class Book(Generic[TextT]):
    """Log state of contracts. Not thread-safe. A replay of the log restores it after a crash."""

    def __init__(self, verify: Verify, defects_of: Callable[[TextT], Iterator[str]]) -> None:
        """Start without contracts. ``defects_of``: function that yields the defects of a text."""
        self._verify, self._defects_of = verify, defects_of
        self._contracts: dict[str, Booked[TextT]] = {}
        self._proposals: dict[str, Booked[TextT]] = {}
        self._newest: dict[tuple[str, str], int] = {}
        self._offered: dict[tuple[str, str], set[bytes]] = {}
        """(contract, party) -> digests of the texts that it has proposed."""

    def __iter__(self) -> Iterator[Booked[TextT]]:
        """Yield the newest signed version of each contract, then the texts that are proposed for
        the first time.
        """
        yield from self._contracts.values()
        yield from (
            booked for name, booked in self._proposals.items() if name not in self._contracts
        )

    def find(self, contract_id: str) -> Booked[TextT] | None:
        """Return the newest version that both signed."""
        return self._contracts.get(contract_id)

    def proposal(self, contract_id: str) -> Booked[TextT] | None:
        """Return the text that one party has signed and the other has not yet."""
        return self._proposals.get(contract_id)

    def sign(self, contract: TextT, signature: Signature, now_ms: int) -> Verdict:
        """Record a party's signature of a text. It counts once the other party has signed the same
        (FC2, FC3).
        """
        if next(self._defects_of(contract), None) is not None:
            return Verdict.DEFECTIVE
        if contract.party(signature.participant) is None:
            return Verdict.NOT_A_PARTY
        if not is_signed(contract, signature.participant, signature, self._verify):
            return Verdict.UNSIGNED
        if now_ms >= contract.valid_to_ms:
            return Verdict.EXPIRED
        rejection = self._out_of_order(contract)
        if rejection is not None:
            return rejection
        return self._proposed(contract, signature.participant)

    def _out_of_order(self, contract: TextT) -> Verdict | None:
        """Return whether the text does not continue the versions so far (FC2, FC3)."""
        there = self._contracts.get(contract.contract_id)
        if there is None:
            if (
                len(self._contracts) + len(self._proposals) >= CONTRACTS_MAX
                and contract.contract_id not in self._proposals
            ):
                return Verdict.TOO_MANY
            return None if contract.version == 1 else Verdict.NOT_NEXT
        if there.contract.version == contract.version:
            return (
                Verdict.KNOWN
                if signed_bytes(there.contract) == signed_bytes(contract)
                else Verdict.CONTRADICTS
            )
        if not contract.is_version_of(there.contract):
            return Verdict.CONTRADICTS
        if contract.version != there.contract.version + 1:
            return Verdict.NOT_NEXT
        return (
            Verdict.NOT_NOW if there.state in {ContractState.ENDING, ContractState.ENDED} else None
        )

    def _proposed(self, contract: TextT, by: str) -> Verdict:
        proposal = self._proposals.get(contract.contract_id)
        if proposal is None or (proposal.contract != contract and by in proposal.signed_by):
            # Whoever proposed may propose another text while the other has not signed. A text that
            # was withdrawn, or given up for another, must not come back when somebody writes it
            # again.
            offered = self._offered.setdefault((contract.contract_id, by), set())
            digest = hashlib.sha256(signed_bytes(contract)).digest()
            if digest in offered:
                return Verdict.KNOWN
            if len(offered) >= PROPOSALS_MAX:
                return Verdict.TOO_MANY
            offered.add(digest)
            self._proposals[contract.contract_id] = Booked(contract, (by,), ContractState.PROPOSED)
            return Verdict.ACCEPTED
        if proposal.contract != contract:
            return Verdict.CONTRADICTS
        if by in proposal.signed_by:
            return Verdict.KNOWN
        before = self._contracts.get(contract.contract_id)
        state = TRANSITIONS[proposal.state, Change.SIGNED] if before is None else before.state
        suspended_by = () if before is None else before.suspended_by
        del self._proposals[contract.contract_id]
        self._contracts[contract.contract_id] = Booked(
            contract, (*proposal.signed_by, by), state, suspended_by
        )
        return Verdict.ACCEPTED

    def change(self, word: ContractChange, signature: Signature) -> Verdict:
        """Apply a party's change of a contract (FC4). ``number`` must grow, so that an old change
        that is written again has no effect (FC3).
        """
        withdraws = word.change is Change.WITHDRAWN
        booked = (self._proposals if withdraws else self._contracts).get(word.contract_id)
        if booked is None:
            return Verdict.UNKNOWN
        if booked.contract.party(word.by) is None or word.change in {Change.SIGNED, Change.EXPIRED}:
            return Verdict.NOT_A_PARTY
        if not is_signed(word, word.by, signature, self._verify):
            return Verdict.UNSIGNED
        if word.number <= self._newest.get((word.contract_id, word.by), 0):
            return Verdict.KNOWN
        # Used up, whatever comes of it: a word that was out of place must not count later, when
        # somebody writes it again.
        self._newest[word.contract_id, word.by] = word.number
        if word.version != booked.contract.version:
            return Verdict.NOT_NEXT
        changed = _changed(booked, word)
        if changed is None:
            return Verdict.NOT_NOW
        if withdraws:
            del self._proposals[word.contract_id]
        else:
            self._contracts[word.contract_id] = changed
        return Verdict.ACCEPTED


def _changed(booked: Booked[TextT], word: ContractChange) -> Booked[TextT] | None:
    """Return the contract after the change; None if its state does not allow the change."""
    state = booked.state_at(word.at_ms)
    if word.change is Change.SUSPENDED and state is ContractState.SUSPENDED:
        return (
            replace(booked, suspended_by=(*booked.suspended_by, word.by))
            if word.by not in booked.suspended_by
            else None
        )
    after = TRANSITIONS.get((state, word.change))
    if after is None or (word.change is Change.WITHDRAWN and word.by not in booked.signed_by):
        return None
    if word.change is Change.RESUMED:
        if word.by not in booked.suspended_by:
            return None
        left = tuple(name for name in booked.suspended_by if name != word.by)
        return replace(booked, state=state if left else after, suspended_by=left)
    if word.change is Change.SUSPENDED:
        return replace(booked, state=after, suspended_by=(word.by,))
    if word.change is Change.NOTICE:
        return replace(booked, state=after, ends_ms=word.at_ms + booked.contract.ends_after_ms)
    return replace(booked, state=after)
