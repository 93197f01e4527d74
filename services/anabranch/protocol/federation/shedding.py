"""The buyer's half of an agent: OFFER_LOAD, and taking back what would cost less at home.

Theory of operation. Now and then the buyer offers what it may, to one seller at a time: the
cheapest first, and of equals the one with the oldest offer. If that one takes nothing, or does not
answer, the buyer offers to the next one; if no partner is left, it rests. After a success it rests,
too, until the loads that it sees have followed. A task that is away comes home when it would cost
less here than it is paid for there.

The phases; what is not in the table is a bug of this process:
    idle     --offers-->                    waiting    one offer is out
    waiting  --agreed-->                    resting
    waiting  --turned down, others left-->  waiting
    waiting  --turned down, no partner left-->  resting
    resting  --rested-->                    idle       the time is over, or a seller has room

Invariants: FA1, FA3 and FA5 of ``agent``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from anabranch.protocol.federation.contract_book import ContractState
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.holdings import Holding, TaskEvent, TaskPlace, Term
from anabranch.protocol.federation.movements import BringHome, Command, Prepare, movement_id
from anabranch.protocol.federation.offers import (
    OfferAnswer,
    ReturnRequest,
    TaskOffer,
    accepted_tasks,
)
from anabranch.protocol.federation.pricing import PERMILLE
from anabranch.protocol.federation.standing import Standing
from anabranch.protocol.federation.trading import bound_of, choose


class SheddingPhase(Enum):
    """Phase of shedding, between two offers or within one."""

    IDLE = "idle"
    WAITING = "waiting"
    RESTING = "resting"


class SheddingEvent(Enum):
    """Event that changes the phase."""

    OFFERS = "offers"
    AGREED = "agreed"
    NEXT = "turned down, others left"
    NOBODY = "turned down, nobody left"
    RESTED = "rested"


PHASES: Final[dict[tuple[SheddingPhase, SheddingEvent], SheddingPhase]] = {
    (SheddingPhase.IDLE, SheddingEvent.OFFERS): SheddingPhase.WAITING,
    (SheddingPhase.WAITING, SheddingEvent.AGREED): SheddingPhase.RESTING,
    (SheddingPhase.WAITING, SheddingEvent.NEXT): SheddingPhase.WAITING,
    (SheddingPhase.WAITING, SheddingEvent.NOBODY): SheddingPhase.RESTING,
    (SheddingPhase.RESTING, SheddingEvent.RESTED): SheddingPhase.IDLE,
}


@dataclass(frozen=True, slots=True)
class _Outstanding:
    """Offer that waits for its answer."""

    offer: TaskOffer
    until_ms: int
    """Time at which it lapses, in ms."""
    left: list[str]
    """Contracts to be tried after this one."""


class Shedding:
    """Decisions of one agent about the load that it offers. Not thread-safe. After a crash nothing
    is offered, and sellers' promises lapse.
    """

    def __init__(self, standing: Standing) -> None:
        self.phase = SheddingPhase.IDLE
        self.turned_down_ms = -1
        """Last time at which all sellers had got an offer, and load was left that the buyer
        would rather not have.
        """
        self.agreed: dict[str, OfferAnswer] = {}
        """Movement -> the answer that it rests on, until a ledger has it."""
        self._standing = standing
        self._outstanding: _Outstanding | None = None
        self._next_ms = 0

    def tick(self, now_ms: int) -> list[Command]:
        """Return the commands due at ``now_ms``."""
        commands = self._recalls(now_ms)
        if self._outstanding is not None and now_ms >= self._outstanding.until_ms:
            commands += self._unanswered(self._outstanding, now_ms)
        if self.phase is SheddingPhase.RESTING and now_ms >= self._next_ms:
            self.phase = PHASES[self.phase, SheddingEvent.RESTED]
        if self.phase is SheddingPhase.IDLE and now_ms >= self._next_ms:
            commands += self._offer(self._sellers(now_ms), SheddingEvent.OFFERS, now_ms)
        return commands

    def room(self, now_ms: int) -> None:
        """Note that a seller has room: the next try need not wait."""
        if self.phase is SheddingPhase.RESTING:
            self._next_ms = now_ms

    def _sellers(self, now_ms: int) -> list[str]:
        """Return the contracts under which load may leave now: the cheapest first, and of equals
        the one with the oldest offer.
        """
        usable = [
            (p.expected_price, p.number, name)
            for name, p in self._standing.bought()
            if now_ms >= p.avoided_until_ms
        ]
        return [name for *_, name in sorted(usable)]

    def _offer(self, sellers: list[str], turn: SheddingEvent, now_ms: int) -> list[Command]:
        """Return the offer to the first of ``sellers`` under whose contract a task is worth moving
        (FA1).
        """
        standing = self._standing
        for position, name in enumerate(sellers):
            partner = standing.partners[name]
            if not partner.booked.may_move(now_ms):
                continue
            tasks = choose(
                self._movable(partner.contract, now_ms),
                standing.sure(),
                standing.cost,
                bound_of(partner.contract),
            )
            if not tasks:
                continue
            partner.number = max(
                partner.number + 1, now_ms
            )  # also after a restart above what the seller has seen
            offer = TaskOffer(
                name,
                partner.contract.version,
                standing.participant,
                partner.number,
                standing.rules.ttl_ms,
                tasks,
            )
            for task in tasks:
                standing.holdings.apply_event(
                    standing.holdings.tasks[task.name], TaskEvent.OFFERED, now_ms
                )
            self._outstanding = _Outstanding(
                offer, now_ms + standing.rules.ttl_ms, sellers[position + 1 :]
            )
            self.phase = PHASES[self.phase, turn]
            standing.counters.offers += 1
            return [offer]
        if self.phase is SheddingPhase.WAITING:
            self.phase = PHASES[self.phase, SheddingEvent.NOBODY]
        self.turned_down_ms = now_ms
        self._next_ms = now_ms + standing.rules.offer_every_ms + standing.jitter(now_ms)
        return []

    def _movable(self, contract: Contract, now_ms: int) -> list[tuple[str, int]]:
        named = set(contract.tasks)
        return [
            (holding.name, holding.load.units)
            for holding in self._standing.holdings.at(TaskPlace.HERE)
            if holding.name in named
            and now_ms >= holding.hold_until_ms
            and not self._is_of(holding, contract.seller)
        ]

    def _is_of(self, holding: Holding, participant: str) -> bool:
        """Return whether a task came from this participant: it is returned to it, not sold."""
        return (
            holding.came is not None
            and self._standing.of(holding.came).contract.buyer == participant
        )

    def answered(self, answer: OfferAnswer, now_ms: int) -> list[Command]:
        """Return a seller's answer, whose signature was checked."""
        outstanding, standing = self._outstanding, self._standing
        if outstanding is None or answer.contract_id != outstanding.offer.contract_id:
            return []
        partner = standing.partners[answer.contract_id]
        contract = partner.contract
        accepted = accepted_tasks(answer, outstanding.offer, contract)
        if accepted is None:
            return []
        if len(accepted) < len(answer.tasks):
            standing.counters.disbelieved += 1
        partner.silences = 0
        commands: list[Command] = []
        for task in accepted:
            holding = standing.holdings.tasks.get(task.name)
            # It may have gone home, or have become cheap to keep, since it was offered.
            if (
                holding is None
                or holding.place is not TaskPlace.OFFERED
                or standing.saves(holding) <= task.price * task.units
            ):
                continue
            name = movement_id(contract.contract_id, answer.number, task.name)
            holding.went = Term(name, contract.contract_id, task.price, contract.min_hold_ms)
            self.agreed[name] = answer
            standing.holdings.apply_event(holding, TaskEvent.ACCEPTED, now_ms)
            partner.price = task.price
            commands.append(Prepare(name, contract.contract_id, task.name, contract.seller))
        self._unreserve(outstanding, now_ms)
        if not commands:
            return self._offer(outstanding.left, SheddingEvent.NEXT, now_ms)
        self.phase = PHASES[self.phase, SheddingEvent.AGREED]
        self._next_ms = now_ms + standing.rules.rest_ms + standing.jitter(now_ms)
        return commands

    def _unanswered(self, outstanding: _Outstanding, now_ms: int) -> list[Command]:
        """Give up an offer that was not answered in time (FA3), and avoid a partner that did not
        answer several (FA5).
        """
        partner, rules = (
            self._standing.partners[outstanding.offer.contract_id],
            self._standing.rules,
        )
        partner.silences += 1
        self._standing.counters.silences += 1
        if partner.silences >= rules.silences_max:
            partner.silences, partner.avoided_until_ms = 0, now_ms + rules.backoff_ms
        self._unreserve(outstanding, now_ms)
        return self._offer(outstanding.left, SheddingEvent.NEXT, now_ms)

    def _unreserve(self, outstanding: _Outstanding, now_ms: int) -> None:
        for task in outstanding.offer.tasks:
            holding = self._standing.holdings.tasks.get(task.name)
            if holding is not None and holding.place is TaskPlace.OFFERED:
                self._standing.holdings.apply_event(holding, TaskEvent.REJECTED, now_ms)
        self._outstanding = None

    # ---------------------------------------------------------------- recall

    def _recalls(self, now_ms: int) -> list[Command]:
        """Recall tasks that would cost less here, and all whose contract is about to end."""
        away = [
            (holding, holding.went)
            for holding in self._standing.holdings.at(TaskPlace.AWAY)
            if holding.went is not None
        ]
        commands: list[Command] = []
        for holding, went in away:
            is_ending = self._standing.state_of(went, now_ms) in {
                ContractState.ENDING,
                ContractState.ENDED,
            }
            if is_ending or (
                now_ms >= holding.hold_until_ms and self._is_cheaper_here(holding, went)
            ):
                commands += self._recall(holding, went, now_ms)
        return commands

    def _is_cheaper_here(self, holding: Holding, went: Term) -> bool:
        margin = PERMILLE + self._standing.rules.recall_permille
        return self._standing.adds(holding) * margin < went.price * holding.load.units * PERMILLE

    def _recall(self, holding: Holding, went: Term, now_ms: int) -> list[Command]:
        self._standing.holdings.apply_event(holding, TaskEvent.RECALLED, now_ms)
        self._standing.counters.recalls += 1
        return [BringHome(went.movement_id, holding.name)]

    def return_requested(self, request: ReturnRequest, now_ms: int) -> list[Command]:
        """Return the commands for a seller's request to take a task back; its signature was
        checked.
        """
        holding = self._standing.holdings.by_movement(request.movement_id)
        went = holding.went if holding is not None else None
        if holding is None or went is None or holding.place is not TaskPlace.AWAY:
            return []
        if (went.movement_id, went.contract_id) != (request.movement_id, request.contract_id):
            return []
        if self._standing.of(went).contract.seller != request.seller:
            self._standing.counters.disbelieved += 1
            return []
        return self._recall(holding, went, now_ms)
