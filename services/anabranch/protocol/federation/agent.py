"""A participant's agent: it sheds load that costs more to keep, and takes load that pays more than
it costs.

Theory of operation. The agent is a machine without input or output. Its shell passes it
measurements, messages of others, entries of the ledgers and the time; it answers with commands for
the shell. Each participant has one, with its own private cost function; no central instance
decides for them. Its halves are ``shedding`` and ``taking``; ``holdings`` has the table of the
states of a task, and ``pricing`` the bounds of prices.

The ledger alone decides which participant runs a task (``movements``), so any message may be lost,
and every wait ends. If an answer is lost, the offer lapses, and the seller's promise is withdrawn.
If no start is reported, the movement is withdrawn after the deadline. A recall that does not get
ready is dropped, and tried again. If a task is not taken back, its seller ends the movement after
the drain time. If a task that was sold on is gone, its movement is ended again and again, until its
ledger says so.

Invariants:
    FA1  one offer is out at a time, and a task is in at most one.
    FA2  nothing is promised that would cost more than it is paid, with all that is here and all
        that was promised counted.
    FA3  every wait ends: of an offer, of a promise, of a start, of a recall, of a return.
    FA4  a task that has moved stays for the minimum hold, so movements are bounded in any time.
    FA5  a contract whose seller does not answer, time and again, is left alone for a while.
    FA6  a movement that ends towards the buyer of a task ends towards its next seller, too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from anabranch.protocol.federation.contract_book import BookedContract, ContractState
from anabranch.protocol.federation.costs import Cost
from anabranch.protocol.federation.holdings import Holding, Holdings, TaskEvent, TaskPlace, Term
from anabranch.protocol.federation.load_average import LoadAverage
from anabranch.protocol.federation.movements import (
    Claim,
    Command,
    Ended,
    EndReason,
    MovementEntry,
    Started,
    Withdrawn,
    offer_number,
)
from anabranch.protocol.federation.offers import OfferAnswer, ReturnRequest, TaskOffer
from anabranch.protocol.federation.shedding import Shedding, SheddingPhase
from anabranch.protocol.federation.standing import AgentRules, Counters, Partner, Standing
from anabranch.protocol.federation.taking import Taking


class Agent:
    """The machine. Not thread-safe. ``now_ms`` is the shell's clock, which never goes back.

    After a crash the shell makes a new one: contracts, own tasks, then the entries that count of
    the ledgers in which it is the seller, and after them those of the ledgers in which it is the
    buyer, since what was sold on had come before.
    """

    def __init__(self, participant: str, cost: Cost, rules: AgentRules) -> None:
        self._standing = Standing(participant, cost, rules)
        self._shedding = Shedding(self._standing)
        self._taking = Taking(self._standing)
        self._orphans: dict[str, tuple[Ended | Withdrawn, int]] = {}
        """Own movements whose task is gone (FA6): their end, and when it was last written."""

    @property
    def participant(self) -> str:
        """Return the participant that the agent acts for."""
        return self._standing.participant

    @property
    def holdings(self) -> Holdings:
        """The tasks that it knows."""
        return self._standing.holdings

    @property
    def counters(self) -> Counters:
        """Return the counts of what the agent has done."""
        return self._standing.counters

    @property
    def phase(self) -> SheddingPhase:
        """Return the phase of load shedding."""
        return self._shedding.phase

    # ---------------------------------------------------------------- what it knows

    def knows(self, booked: BookedContract) -> None:
        """Take a contract of this participant, or its new state."""
        partner = self._standing.partners.get(booked.contract.contract_id)
        if partner is None:
            self._standing.partners[booked.contract.contract_id] = Partner(booked)
        else:
            partner.booked = booked

    def leaves_alone(self, booked: BookedContract) -> None:
        """Take a contract under which nothing may move now: what moved under it before stays, until
        it is recalled, or the contract ends. One that the agent does not know stays unknown.
        """
        if booked.contract.contract_id in self._standing.partners:
            is_active = booked.state is ContractState.ACTIVE
            state = ContractState.SUSPENDED if is_active else booked.state
            self.knows(replace(booked, state=state))

    def owns(self, task: str, units: int) -> None:
        """Take a task of this participant, which runs here."""
        self.holdings.tasks[task] = Holding(task, LoadAverage.of(units), TaskPlace.HERE)

    def reserves(self, task: str) -> bool:
        """Stop trading a task of this participant until it ``owns`` it again. Return whether that
        is so by now: a task that is on offer, or not here, is traded until it is back.
        """
        holding = self.holdings.tasks.get(task)
        if holding is not None and holding.place is TaskPlace.HERE:
            del self.holdings.tasks[task]
        return task not in self.holdings.tasks

    def runs_besides(self, task: str, units: int) -> None:
        """Take the load of a task that is not traded and runs here; 0 if it does not run here."""
        self.holdings.besides.pop(task, None)
        if units:
            self.holdings.besides[task] = units

    def costs_besides(self, tasks: Collection[str]) -> tuple[Cost, int]:
        """Return the cost function, and the load that is here or promised without these tasks."""
        besides = self.holdings.besides
        return self._standing.cost, self._standing.most() - sum(
            besides.get(task, 0) for task in tasks
        )

    def measured(self, task: str, units: int) -> None:
        """Take the load of a task, wherever it runs: a buyer measures it by its input. Unknown
        tasks are ignored.
        """
        holding = self.holdings.tasks.get(task)
        if holding is not None:
            holding.load = holding.load.measured(units, self._standing.rules.weight_ppm)

    # ---------------------------------------------------------------- time, and what others say

    def tick(self, now_ms: int) -> list[Command]:
        """Time has passed. Called often; it decides by itself what is due."""
        commands = self._lapse(now_ms) + self._end_orphans(now_ms)
        commands += self._taking.tick(now_ms, self._shedding.turned_down_ms)
        return commands + self._shedding.tick(now_ms)

    def offered(self, offer: TaskOffer, now_ms: int) -> list[Command]:
        """See ``taking``."""
        return self._taking.offered(offer, now_ms)

    def answered(self, answer: OfferAnswer, now_ms: int) -> list[Command]:
        """See ``shedding``."""
        return self._shedding.answered(answer, now_ms)

    def return_requested(self, request: ReturnRequest, now_ms: int) -> list[Command]:
        """Receive a seller's request to take a task back (``shedding``)."""
        return self._shedding.return_requested(request, now_ms)

    def room(self, now_ms: int) -> None:
        """See ``shedding``."""
        self._shedding.room(now_ms)

    # ---------------------------------------------------------------- what shell and ledgers say

    def ready(self, movement: str, now_ms: int) -> list[Command]:
        """Return the commands after the shell has prepared the task of an own movement, at the
        seller or here: the ledger records it.
        """
        holding = self.holdings.by_movement(movement)
        if holding is None or holding.went is None or holding.went.movement_id != movement:
            return []
        if holding.place is TaskPlace.LEAVING:
            return [Claim(movement, holding.name, self._shedding.agreed[movement])]
        why = self._why(holding.went.contract_id, now_ms)
        return [self._ended(holding.went, why, now_ms)]

    def failed(self, movement: str, why: EndReason, now_ms: int) -> list[Command]:
        """Handle the failure of the node that runs the task of an own movement: the shell runs the
        task here again when the ledger says so.
        """
        holding = self.holdings.by_movement(movement)
        if (
            holding is None
            or holding.went is None
            or holding.place not in {TaskPlace.AWAY, TaskPlace.COMING}
        ):
            return []
        return [self._ended(holding.went, why, now_ms)]

    def recorded(self, entry: MovementEntry, now_ms: int) -> list[Command]:
        """Return an entry of a ledger that counts, in the order of that ledger."""
        self._number(entry)
        if isinstance(entry, Started):
            self._relearn(entry, now_ms)
        holding = self.holdings.by_movement(entry.movement_id)
        self._shedding.agreed.pop(entry.movement_id, None)
        self._taking.forget(entry.movement_id)
        self._orphans.pop(entry.movement_id, None)
        if holding is None:
            return self._unknown(entry, now_ms)
        is_own = holding.went is not None and holding.went.movement_id == entry.movement_id
        event = _event(entry, is_own)
        commands: list[Command] = []
        if event is TaskEvent.GONE and holding.went is not None:  # FA6
            on = holding.went
            commands += self._orphaned(
                self._withdrawn(on, now_ms)
                if holding.place is TaskPlace.LEAVING
                else self._ended(on, holding.failed or self._why(on.contract_id, now_ms), now_ms)
            )
        self.holdings.apply_event(holding, event, now_ms)
        return commands

    def _number(self, entry: MovementEntry) -> None:
        """Remember the number of the offer that a movement comes from. No further message follows
        an offer whose movement is over: after a crash a repeated one must be recognised as old
        (FO1), else its promise would never lapse (FA3).
        """
        partner = self._standing.partners.get(entry.contract_id)
        if partner is not None and (
            partner.contract.seller == self.participant or isinstance(entry, Started)
        ):
            number = offer_number(entry.movement_id, entry.contract_id)
            partner.number = max(partner.number, number)

    def _relearn(self, entry: Started, now_ms: int) -> None:
        """Take a movement from its ledger entry when this agent does not know it: after a crash the
        agreement, or the promise, is lost, and the entry has both.
        """
        partner = self._standing.partners.get(entry.contract_id)
        if partner is None or self.holdings.by_movement(entry.movement_id) is not None:
            return
        accepted = next(task for task in entry.answer.tasks if task.name == entry.task)
        term = Term(
            entry.movement_id, entry.contract_id, accepted.price, partner.contract.min_hold_ms
        )
        holding = self.holdings.tasks.get(entry.task)
        if partner.contract.seller == self.participant and holding is None:
            self.holdings.tasks[entry.task] = Holding(
                entry.task,
                LoadAverage.of(accepted.units),
                TaskPlace.PROMISED,
                term,
                since_ms=now_ms,
            )
        elif (
            partner.contract.buyer == self.participant
            and holding is not None
            and holding.place is TaskPlace.HERE
        ):
            holding.went = term
            self.holdings.apply_event(holding, TaskEvent.OFFERED, now_ms)
            self.holdings.apply_event(holding, TaskEvent.ACCEPTED, now_ms)

    def _unknown(self, entry: MovementEntry, now_ms: int) -> list[Command]:
        """Return the commands for an own movement that has started and whose task went home
        meanwhile: it ends at once (FA6).
        """
        partner = self._standing.partners.get(entry.contract_id)
        if (
            isinstance(entry, Started)
            and partner is not None
            and partner.contract.buyer == self.participant
        ):
            name = entry.movement_id
            why = self._why(entry.contract_id, now_ms)
            return self._orphaned(Ended(entry.contract_id, name, self.participant, now_ms, why))
        return []

    def _orphaned(self, entry: Ended | Withdrawn) -> list[Command]:
        self._orphans[entry.movement_id] = entry, entry.at_ms
        return [entry]

    # ---------------------------------------------------------------- waits

    def _lapse(self, now_ms: int) -> list[Command]:
        """Withdraw promises and starts whose deadline is over, and drop recalls that did not get
        ready (FA3).
        """
        commands: list[Command] = []
        for holding in self.holdings.at(TaskPlace.PROMISED, TaskPlace.LEAVING, TaskPlace.COMING):
            term = holding.came if holding.place is TaskPlace.PROMISED else holding.went
            if term is None or now_ms - holding.since_ms < self._deadline_ms(term):
                continue
            if holding.place is TaskPlace.COMING:
                self.holdings.apply_event(holding, TaskEvent.KEPT, now_ms)
            else:
                holding.since_ms = now_ms
                commands.append(self._withdrawn(term, now_ms))
        return commands

    def _end_orphans(self, now_ms: int) -> list[Command]:
        """End again the movements of tasks that were sold on and whose own movement is over (FA6):
        an entry may be lost.
        """
        repeat_ms = self._standing.rules.repeat_ms
        due = [
            replace(entry, at_ms=now_ms)
            for entry, written_ms in self._orphans.values()
            if now_ms - written_ms >= repeat_ms
        ]
        return [command for entry in due for command in self._orphaned(entry)]

    def _why(self, contract_id: str, now_ms: int) -> EndReason:
        """Return the reason for which this agent takes back a task whose seller has not failed.

        A side that ends a movement before its minimum hold owes a violation, unless the contract
        ends: else a seller could take a task, give notice, and be paid for that.
        """
        state = self._standing.partners[contract_id].booked.state_at(now_ms)
        is_ending = state in {ContractState.ENDING, ContractState.ENDED}
        return EndReason.CONTRACT_ENDS if is_ending else EndReason.RECALLED

    def _deadline_ms(self, term: Term) -> int:
        return self._standing.of(term).contract.moving.deadline_ms + self._standing.rules.ttl_ms

    def _ended(self, term: Term, why: EndReason, now_ms: int) -> Ended:
        return Ended(term.contract_id, term.movement_id, self.participant, now_ms, why)

    def _withdrawn(self, term: Term, now_ms: int) -> Withdrawn:
        return Withdrawn(term.contract_id, term.movement_id, self.participant, now_ms)


def _event(entry: MovementEntry, is_own: bool) -> TaskEvent:
    if isinstance(entry, Started):
        return TaskEvent.LEFT if is_own else TaskEvent.TAKEN
    if isinstance(entry, Withdrawn):
        return TaskEvent.STAYED if is_own else TaskEvent.LAPSED
    return TaskEvent.BACK if is_own else TaskEvent.GONE
