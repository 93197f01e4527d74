"""Suggested contracts: which of them a receiver's agent takes up for its owner.

Theory of operation. The sender of a stream suggests terms under which its receiver can have the
stream elsewhere (``stream_contracts``). The owner of the receiving side names the senders whose
streams serve it as well; that is the whole rule. The agent takes up what one of them has signed
already, so one signature makes it a contract, and then it gives the old sender notice. Until the
notice has run out the receiver pays both. So the agent compares what the new contract saves after
that with what is paid twice before.

The agent's statements follow from the logs of the contracts alone. A statement that was lost is
repeated, and an agent that dies between signature and notice gives the notice after its restart.

Invariants:
    TU1 an agent takes up terms of a sender that its owner has named, and no others.
    TU2 it signs a text only if the new sender has signed the same, as it was suggested.
    TU3 it signs only what saves more after the old contract's end than is paid twice until then,
        by what came in the last settled period.
    TU4 of several suggestions it signs the one that saves most, and none for a contract that is
        not active, or has been replaced.
    TU5 it gives notice of a contract only once a suggested one is signed by both that begins before
        the old one ends: the stream is paid for at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from anabranch.protocol.federation.contract_book import Change, ContractChange, ContractState
from anabranch.protocol.federation.contract_log import StreamLog
from anabranch.protocol.federation.stream_contracts import (
    PeriodDelivery,
    StreamContract,
    SuggestedContract,
    is_worth_taking,
)


def takes_up(
    logs: Mapping[str, StreamLog], participant: str, senders: Collection[str], now_ms: int
) -> list[StreamContract | ContractChange]:
    """Return what the agent of ``participant`` must state now: texts to sign, and notices.

    Args:
        logs: Logs of the contracts for streams, by contract.
        participant: Receiver whose agent asks.
        senders: Participants whose streams serve it as well (TU1).
        now_ms: Time, in ms.
    """
    found = []
    for log in logs.values():
        word = _word(log, logs, participant, senders, now_ms)
        if word is not None:
            found.append(word)
    return found


def replaced(
    logs: Mapping[str, StreamLog], participant: str, senders: Collection[str], now_ms: int
) -> dict[str, str]:
    """Return the contract that has taken each one's place, by contract, while the old one lasts.

    The owner must bind to the new sender's stream before the old contract ends.
    """
    return {
        name: each.terms.contract_id
        for name, log in logs.items()
        if log.booked is not None and log.booked.state_at(now_ms) is not ContractState.ENDED
        for each in _allowed(log, participant, senders)
        if _is_in_force(logs, each.terms, now_ms)
    }


def _word(
    log: StreamLog,
    logs: Mapping[str, StreamLog],
    participant: str,
    senders: Collection[str],
    now_ms: int,
) -> StreamContract | ContractChange | None:
    """Return what is to be stated about one contract."""
    booked, ledger = log.booked, log.ledger
    if booked is None or ledger is None or booked.state_at(now_ms) is not ContractState.ACTIVE:
        return None
    current, offered = booked.contract, list(_allowed(log, participant, senders))
    end_ms = min(now_ms + current.notice_ms, current.valid_to_ms)
    offered = [each for each in offered if each.terms.valid_from_ms <= end_ms]
    if any(_is_in_force(logs, each.terms, now_ms) for each in offered):
        return ContractChange(
            current.contract_id, current.version, participant, Change.NOTICE, now_ms, now_ms
        )
    usual = ledger.last
    if usual is None:
        return None
    savings = {
        each.terms: _saved(current, each.terms, usual, now_ms, end_ms)
        for each in offered
        if _waits_for(logs, each.terms, participant)
        and is_worth_taking(each, current, participant, usual, now_ms)
    }
    best = max(savings, key=lambda terms: (savings[terms], terms.contract_id), default=None)
    return best if best is not None and savings[best] > 0 else None


def _allowed(
    log: StreamLog, participant: str, senders: Collection[str]
) -> Iterator[SuggestedContract]:
    """Yield the suggestions in a contract's log that the owner's rule allows (TU1)."""
    ledger = log.ledger
    if ledger is None or ledger.contract.receiver != participant:
        return
    for each in ledger.suggestions:
        if each.receiver == participant and each.terms.sender in senders:
            yield each


def _is_in_force(logs: Mapping[str, StreamLog], terms: StreamContract, now_ms: int) -> bool:
    """Return whether both sides have signed ``terms``, and the contract has not ended (TU5)."""
    log = logs.get(terms.contract_id)
    booked = None if log is None or log.ledger is None else log.booked
    return (
        booked is not None
        and booked.contract.is_version_of(terms)
        and booked.state_at(now_ms) is ContractState.ACTIVE
    )


def _waits_for(logs: Mapping[str, StreamLog], terms: StreamContract, participant: str) -> bool:
    """Return whether ``terms`` lack the signature of ``participant`` alone (TU2)."""
    log = logs.get(terms.contract_id)
    proposal = None if log is None else log.proposal
    return (
        proposal is not None
        and proposal.contract == terms
        and proposal.signed_by == (terms.sender,)
        and terms.receiver == participant
    )


def _saved(
    current: StreamContract, terms: StreamContract, usual: PeriodDelivery, now_ms: int, end_ms: int
) -> int:
    """Return what ``terms`` save after ``end_ms``, the current contract's end by a notice, less
    what is paid twice before (TU3). The unit is the nano-unit, times the milliseconds of the last
    settled period.
    """
    old, new = current.plans[0].due_nano(usual), terms.plans[0].due_nano(usual)
    after_ms = min(current.valid_to_ms, terms.valid_to_ms) - end_ms
    return (old - new) * after_ms - new * (end_ms - max(now_ms, terms.valid_from_ms))
