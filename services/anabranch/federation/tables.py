"""Tables of a federation as one participant sees it: contracts, movements, plan changes, balances.

Each command reads the federation's topics from their beginning to their end; nothing is cached.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any, Final

from anabranch.federation.log_reader import AnyLog, FederationReader
from anabranch.pipeline.model import Federation
from anabranch.pipeline.times import format_time
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import EventLog
from anabranch.protocol.federation.contract_log import AnyText, LoadLog
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.ledger import Ledger
from anabranch.protocol.federation.movements import Movement, MovementState
from anabranch.protocol.federation.oracle import tasks_of
from anabranch.protocol.federation.plan_switching import SwitchState
from anabranch.protocol.federation.stage_moves import node_of, task_of
from anabranch.protocol.federation.stream_contracts import is_worth_taking
from anabranch.protocol.federation.stream_ledger import StreamLedger

# A nano-unit is a thousandth of a micro-unit: prices are in micro-units a second and times in ms,
# so that amounts are whole nano-units.
NANO_PER_UNIT: Final = 1_000_000_000


def read_book(log: EventLog, federation: Federation) -> FederationReader:
    """Return a reader that has read the federation's topics to their end. The caller closes it.

    Raises:
        Unavailable: the broker does not answer.
    """
    topics = FederationTopics(federation.name)
    reader = FederationReader(log, topics, federation.auditor)
    try:
        reader.read_to_end()
    except BaseException:
        reader.close()
        raise
    return reader


def contracts_of(reader: FederationReader, now_ms: int) -> list[dict[str, Any]]:
    """Return one row per contract of any kind: its newest text, its state, missing signatures.

    In a contract for a stream the buyer is the receiver, which pays, and the seller the sender.
    """
    return [row for each in reader.every.values() if (row := _contract(each, now_ms)) is not None]


def _contract(of: AnyLog, now_ms: int) -> dict[str, Any] | None:
    booked, proposal = of.booked, of.proposal
    if booked is None:
        return None
    text = booked.contract
    waits_for = (
        []
        if proposal is None
        else [
            party
            for party in (proposal.contract.buyer, proposal.contract.seller)
            if party not in proposal.signed_by
        ]
    )
    return {
        "contract": of.contract_id,
        "for": _subject(text),
        "version": text.version,
        "state": booked.state_at(now_ms).value,
        "may_move": _has_tasks(text) and booked.may_move(now_ms),
        "buyer": text.buyer,
        "seller": text.seller,
        "price_lowest_micro": min(_prices(text)),
        "price_highest_micro": max(_prices(text)),
        "valid_from": format_time(text.valid_from_ms),
        "valid_to": format_time(text.valid_to_ms),
        "ends": None if booked.ends_ms is None else format_time(booked.ends_ms),
        "suspended_by": list(booked.suspended_by),
        "terms": asdict(text),
        "proposed_terms": None if proposal is None else asdict(proposal.contract),
        "proposed_version": None if proposal is None else proposal.contract.version,
        "waits_for_signature_of": waits_for,
        "suggestions": _suggestions(of.ledger, now_ms),
        "plans": _plans(of.ledger, now_ms),
    }


def _has_tasks(text: AnyText) -> bool:
    """Return whether stages may move under the contract."""
    return isinstance(text, Contract) or text.has_switches


def _subject(text: AnyText) -> str:
    """Return what the contract is about: a stream, the stages that may move, or load."""
    if isinstance(text, Contract):
        return "load"
    return ", ".join(tasks_of(text)) or f"{text.sender}.{text.plans[0].stream}"


def _prices(text: AnyText) -> list[int]:
    """Return the prices that the contract may come to, in micro-units."""
    if isinstance(text, Contract):
        return [text.floor, text.fixed_price]
    return [tier.price_micro for plan in text.plans for tier in plan.tiers]


def _plans(ledger: Ledger | StreamLedger | None, now_ms: int) -> dict[str, Any] | None:
    """Return the active plan and the one that is proposed or switched to; None: the contract has
    only one, or none, or is not signed by both sides yet.
    """
    if not isinstance(ledger, StreamLedger) or not ledger.contract.has_switches:
        return None
    switch = ledger.switch
    state = switch.state_at(now_ms)
    is_open = state in {SwitchState.PROPOSED, SwitchState.SWITCHING}
    return {
        "active": switch.plan,
        "at_sender": list(switch.contract.plans[switch.plan].at_sender),
        "since": format_time(switch.changes[-1].at_ms),
        "state": state.value,
        "proposed": switch.next_plan if is_open else None,
        "proposed_by": switch.by if is_open else None,
    }


def plan_changes_of(reader: FederationReader) -> list[dict[str, Any]]:
    """Return one row per period in which a plan with stages at the sender was active.

    Covers all movement contracts. The rows are in the order in which the periods began.
    """
    rows = []
    for name, log in sorted(reader.streams.items()):
        if log.ledger is None:
            continue
        switch = log.ledger.switch
        ends = [*switch.changes[1:], None]
        for change, end in zip(switch.changes, ends, strict=True):
            if not change.plan:  # plan 0 leaves all stages at the receiver
                continue
            text = switch.contract
            rows.append(
                {
                    "contract": name,
                    "plan": change.plan,
                    "tasks": [
                        task_of(text.pipeline, stage) for stage in text.plans[change.plan].at_sender
                    ],
                    "of": text.receiver,
                    "run_by": text.sender if end is None else text.receiver,
                    "moved_to": text.sender,
                    "from": format_time(change.at_ms),
                    "to": None if end is None else format_time(end.at_ms),
                    "ended_by": None if end is None else end.by,
                    "why": None if end is None else end.why,
                }
            )
    return sorted(rows, key=lambda row: (row["from"], row["contract"]))


def _suggestions(ledger: Ledger | StreamLedger | None, now_ms: int) -> list[dict[str, Any]]:
    """Return one row per offer of the stream elsewhere that its sender suggests and is still open.

    ``worth_taking`` judges the suggestion by the load of the last settled period; None: no period
    is settled yet.
    """
    if not isinstance(ledger, StreamLedger):
        return []
    text, usual = ledger.contract, ledger.last
    return [
        {
            "contract": each.terms.contract_id,
            "stream": f"{each.terms.sender}.{each.terms.plans[0].stream}",
            "open_until": format_time(each.open_until_ms),
            "worth_taking": None
            if usual is None
            else is_worth_taking(each, text, text.receiver, usual, now_ms),
            "terms": asdict(each.terms),
        }
        for each in ledger.suggestions
        if now_ms < each.open_until_ms
    ]


def movements_of(reader: FederationReader) -> list[dict[str, Any]]:
    """Return one row per movement that runs or has run, in the order in which they began.

    ``node`` is the node that the seller names for the task. It is another participant's where the
    seller has sold the task on.
    """
    rows = [
        _movement(each, movement)
        for each in _sorted(reader)
        if each.ledger is not None
        for movement in each.ledger.movements
        if movement.state is not MovementState.VOID
    ]
    return sorted(rows, key=lambda row: (row["from"], row["movement"]))


def _movement(of: LoadLog, movement: Movement) -> dict[str, Any]:
    assert of.ledger is not None, "the caller looked"  # noqa: S101 - the caller has looked
    text = of.ledger.movements.contract(movement.version)
    is_over = movement.state is MovementState.OVER
    return {
        "movement": movement.movement_id,
        "task": movement.task,
        "of": text.buyer,
        "run_by": text.buyer if is_over else text.seller,
        "moved_to": text.seller,
        "node": None if is_over else movement.node or node_of(text.seller),
        "contract": of.contract_id,
        "units": movement.units,
        "price_micro": movement.price,
        "from": format_time(movement.started_ms),
        "to": format_time(movement.ended_ms) if is_over else None,
        "ended_by": movement.ended_by or None,
        "why": None if movement.why is None else movement.why.value,
    }


def ledgers_of(reader: FederationReader) -> dict[str, Any]:
    """Return the balances in nano-units, by contract and in all, and the amounts not settled yet.

    ``disputes`` counts the times for which the two sides measured different loads, and
    ``postings_before`` the amounts older than those of ``postings``.
    """
    rows, balances = [], Counter[str]()
    for each in reader.every.values():
        ledger = each.ledger
        if ledger is None:
            continue
        balances.update(ledger.balances())
        rows.append(
            {
                "contract": each.contract_id,
                "balances_nano": ledger.balances(),
                "unsettled_nano": ledger.unsettled(),
                "settled_period": None if ledger.settled < 0 else ledger.settled,
                "disputes": len(ledger.disputes),
                "postings_before": ledger.postings_before,
                "postings": [
                    {
                        "payer": posting.payer,
                        "payee": posting.payee,
                        "amount_nano": posting.amount_nano,
                        "reason": posting.reason,
                    }
                    for posting in ledger.postings
                ],
            }
        )
    return {
        "contracts": rows,
        "balances_nano": dict(sorted(balances.items())),
        "sum_nano": sum(balances.values()),
        "ignored": dict(reader.ignored),
        "left_out": dict(sorted(reader.left_out.items())),
    }


def amount_in_words(nano: int) -> str:
    """Return an amount of nano-units in units, exactly, with as few decimals as that takes."""
    whole, rest = divmod(abs(nano), NANO_PER_UNIT)
    decimals = f"{rest:09}".rstrip("0")
    return f"{'-' if nano < 0 else ''}{whole:,}{f'.{decimals}' if decimals else ''}".replace(
        ",", " "
    )


def _sorted(reader: FederationReader) -> list[LoadLog]:
    """Return the contracts for load by their names."""
    return [reader.contracts[name] for name in sorted(reader.contracts)]
