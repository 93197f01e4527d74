"""Contracts, signatures and agents as tests of the federation's rules need them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from anabranch.protocol.federation.agent import Agent
from anabranch.protocol.federation.contract_book import BookedContract, ContractState
from anabranch.protocol.federation.contracts import (
    AuditClauses,
    Contract,
    EndClauses,
    LoadUnit,
    MoveClauses,
    PenaltyClauses,
    QualityClauses,
)
from anabranch.protocol.federation.costs import CornerCost, Cost
from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.movements import Started, movement_id
from anabranch.protocol.federation.offers import AcceptedTask, OfferAnswer, OfferedTask, TaskOffer
from anabranch.protocol.federation.shedding import SheddingPhase
from anabranch.protocol.federation.standing import AgentRules
from anabranch.protocol.federation.statements import Signature, Statement, signed_bytes
from anabranch.protocol.stage.owners_checkpoint import Transfer

DAY_MS = 24 * 3_600_000

CONTRACT = Contract(
    contract_id="north-south",
    version=1,
    buyer="north",
    seller="south",
    valid_from_ms=0,
    valid_to_ms=30 * DAY_MS,
    fixed_price=1_000,
    delta=200,
    unit=LoadUnit("core", 10_000),
    tasks=("north.a", "north.b", "north.c"),
    min_hold_ms=10_000,
    moving=MoveClauses(Transfer.CHECKPOINT, 30_000),
    quality=QualityClauses(3_000),
    ending=EndClauses(DAY_MS, 60_000),
    penalty=PenaltyClauses(5_000_000, 2_000),
    audit=AuditClauses(1_000, 50_000, 10_000, 60_000),
)

RULES = AgentRules(jitter_ms=0)


def contract(**changes: Any) -> Contract:
    return replace(CONTRACT, **changes)


def booked(
    text: Contract = CONTRACT, state: ContractState = ContractState.ACTIVE, **changes: Any
) -> BookedContract:
    return BookedContract(text, (text.buyer, text.seller), state, **changes)


def signature(statement: Statement, participant: str) -> Signature:
    """Return a stand-in for an Ed25519 signature: whoever knows the name can make it, for these
    bytes alone.
    """
    return Signature(
        participant, "1", hashlib.sha512(participant.encode() + signed_bytes(statement)).digest()
    )


def verify(given: Signature, message: bytes) -> bool:
    return given.value == hashlib.sha512(given.participant.encode() + message).digest()


def stepped(*slopes: int, step: int = 10) -> CornerCost:
    """Each next ``step`` units cost this much per unit."""
    return CornerCost(tuple((number * step, slope) for number, slope in enumerate(slopes)))


def agent(
    name: str, cost: Cost, *contracts: BookedContract, rules: AgentRules = RULES, **tasks: int
) -> Agent:
    """With its contracts and own tasks; ``a=10`` is task ``north.a``."""
    made = Agent(name, cost, rules)
    for each in contracts:
        made.knows(each)
    for task, units in tasks.items():
        made.owns(f"north.{task}", units)
    return made


def offer(number: int = 1, *tasks: OfferedTask, **changes: Any) -> TaskOffer:
    made = TaskOffer(
        "north-south", 1, "north", number, 1_000, tasks or (OfferedTask("north.a", 10, 950),)
    )
    return replace(made, **changes)


def answer(number: int = 1, *tasks: AcceptedTask, **changes: Any) -> OfferAnswer:
    made = OfferAnswer(
        "north-south", 1, "south", number, tasks or (AcceptedTask("north.a", 10, 900),)
    )
    return replace(made, **changes)


def started(given: OfferAnswer, task: str = "north.a", at_ms: int = 0, **changes: Any) -> Started:
    """Return the buyer's entry on this answer, with the seller's signature."""
    name = movement_id(given.contract_id, given.number, task)
    return replace(
        Started(
            given.contract_id, name, "north", at_ms, task, given, signature(given, given.seller)
        ),
        **changes,
    )


def place(of: Agent, task: str = "north.a") -> TaskPlace:
    """Return where a task is now."""
    return of.holdings.tasks[task].place


def phase(of: Agent) -> SheddingPhase:
    """Return the phase of the agent's shedding now."""
    return of.phase
