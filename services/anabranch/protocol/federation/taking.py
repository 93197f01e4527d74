"""The seller's half of an agent: ACCEPT_LOAD, and giving back what costs more than it is paid.

Theory of operation. The seller collects offers for a while, or up to a number, and answers the
best-paid first. All that it has promised counts as here, so two offers of one batch, or of two,
cannot be sold the same capacity. A promise lapses when its buyer offers the task again. A task that
came and costs more than it is paid is sold on if a partner takes it (``shedding`` does that). If
all partners got an offer and it is still here, the seller requests its buyer to take it back, again
and again, and after the drain time the seller ends the movement by itself.

Invariants: FA2 and FA3 of ``agent``.
"""

from __future__ import annotations

from anabranch.protocol.federation.contract_book import ContractState
from anabranch.protocol.federation.holdings import Holding, TaskEvent, TaskPlace, Term
from anabranch.protocol.federation.load_average import LoadAverage
from anabranch.protocol.federation.movements import Command, Ended, EndReason, movement_id
from anabranch.protocol.federation.offers import (
    OfferAnswer,
    ReturnRequest,
    TaskOffer,
    objection_to_offer,
)
from anabranch.protocol.federation.standing import Standing
from anabranch.protocol.federation.trading import accept, bound_of


class Taking:
    """Decisions of one agent about the load that it takes. Not thread-safe. After a crash promises
    are forgotten: the start of an unknown one is read as a task that came.
    """

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._offers: list[TaskOffer] = []
        self._until_ms = 0
        self._ended: dict[str, int] = {}
        """Time at which the end of a movement was last written, until the ledger has it."""

    def offered(self, offer: TaskOffer, now_ms: int) -> list[Command]:
        """Return a buyer's offer, whose signature was checked. It is answered with others that come
        within a while.
        """
        if not self._offers:
            self._until_ms = now_ms + self._standing.rules.collect_ms
        self._offers.append(offer)
        return (
            self._answer_all(now_ms) if len(self._offers) >= self._standing.rules.offers_max else []
        )

    def tick(self, now_ms: int, turned_down_ms: int) -> list[Command]:
        """Return the commands due. ``turned_down_ms`` is the time at which every possible taker had
        last got an offer.
        """
        commands = self._answer_all(now_ms) if self._offers and now_ms >= self._until_ms else []
        for holding in self._standing.holdings.at(
            TaskPlace.HERE, TaskPlace.RETURNING, TaskPlace.AWAY
        ):
            if holding.came is not None:
                commands += self._reviewed(holding, holding.came, now_ms, turned_down_ms)
        return commands

    def forget(self, movement: str) -> None:
        """Forget a movement whose end is in the ledger."""
        self._ended.pop(movement, None)

    # ---------------------------------------------------------------- ACCEPT_LOAD

    def _answer_all(self, now_ms: int) -> list[Command]:
        offers, self._offers = self._offers, []
        offers.sort(
            key=lambda offer: (
                -max((task.reserve_price for task in offer.tasks), default=0),
                offer.contract_id,
            )
        )
        return [command for offer in offers for command in self._answer(offer, now_ms)]

    def _answer(self, offer: TaskOffer, now_ms: int) -> list[Command]:
        """Answer one offer. The tasks that were taken of earlier offers count as promised (FA2)."""
        standing = self._standing
        partner = standing.partners.get(offer.contract_id)
        if partner is None or (partner.contract.buyer, partner.contract.seller) != (
            offer.buyer,
            standing.participant,
        ):
            standing.counters.disbelieved += 1
            return []
        contract = partner.contract
        objection = objection_to_offer(offer, partner.booked, partner.number, now_ms)
        if objection:
            return [
                OfferAnswer(
                    offer.contract_id,
                    offer.version,
                    standing.participant,
                    offer.number,
                    (),
                    objection,
                )
            ]
        partner.number = offer.number
        self._replace(offer, now_ms)
        new = [task for task in offer.tasks if task.name not in standing.holdings.tasks]
        rules = standing.rules
        taken = accept(
            new,
            standing.most(),
            standing.cost,
            bound_of(contract),
            rules.split,
            rules.margin_permille,
        )
        for task in taken:
            term = Term(
                movement_id(contract.contract_id, offer.number, task.name),
                contract.contract_id,
                task.price,
                contract.min_hold_ms,
            )
            promised = Holding(
                task.name, LoadAverage.of(task.units), TaskPlace.PROMISED, term, since_ms=now_ms
            )
            standing.holdings.tasks[task.name] = promised
        standing.counters.answers += 1
        standing.counters.taken += len(taken)
        why_not = "no task pays more than it would cost" if new else "promised, or here, already"
        reason = "" if taken else why_not
        return [
            OfferAnswer(
                contract.contract_id,
                contract.version,
                standing.participant,
                offer.number,
                taken,
                reason,
            )
        ]

    def _replace(self, offer: TaskOffer, now_ms: int) -> None:
        """Drop the promises of tasks that ``offer`` offers again. Their buyer has one offer at a
        time, and offers no task that is about to leave: it does not rely on an earlier promise,
        since the answer was late or lost.
        """
        holdings = self._standing.holdings
        for task in offer.tasks:
            known = holdings.tasks.get(task.name)
            if (
                known is not None
                and known.place is TaskPlace.PROMISED
                and known.came is not None
                and known.came.contract_id == offer.contract_id
            ):
                holdings.apply_event(known, TaskEvent.LAPSED, now_ms)

    # ---------------------------------------------------------------- return

    def _reviewed(
        self, holding: Holding, came: Term, now_ms: int, turned_down_ms: int
    ) -> list[Command]:
        if self._standing.state_of(came, now_ms) is ContractState.ENDED:
            return self._end(came, EndReason.CONTRACT_ENDS, now_ms)
        if holding.place is TaskPlace.AWAY:
            return []
        pays = self._standing.saves(holding) <= came.price * holding.load.units
        if holding.place is TaskPlace.RETURNING:
            return self._again(holding, came, pays, now_ms)
        if pays:
            holding.unpaid_ms = None
            return []
        if holding.unpaid_ms is None:
            holding.unpaid_ms = now_ms
        # Selling it on comes first: since it does not pay, and may move, everybody must have got an
        # offer.
        if turned_down_ms < max(holding.unpaid_ms, holding.hold_until_ms):
            return []
        self._standing.holdings.apply_event(holding, TaskEvent.UNWANTED, now_ms)
        self._standing.counters.returns += 1
        return [self._request(came)]

    def _again(self, holding: Holding, came: Term, pays: bool, now_ms: int) -> list[Command]:
        """Judge a task that its buyer was asked to take back: it pays again, or the request is
        repeated, or the wait is over (FA3).
        """
        if pays:
            self._standing.holdings.apply_event(holding, TaskEvent.KEPT, now_ms)
            holding.unpaid_ms = None
            return []
        if now_ms - holding.since_ms >= self._standing.of(came).contract.ending.drain_ms:
            return self._end(came, EndReason.RETURNED, now_ms)
        if now_ms - holding.request_ms < self._standing.rules.repeat_ms:
            return []
        holding.request_ms = now_ms
        return [self._request(came)]

    def _request(self, came: Term) -> ReturnRequest:
        return ReturnRequest(came.contract_id, came.movement_id, self._standing.participant)

    def _end(self, came: Term, why: EndReason, now_ms: int) -> list[Command]:
        """Return the commands that write the end, repeated until the ledger has it."""
        last_ms = self._ended.get(came.movement_id)
        if last_ms is not None and now_ms - last_ms < self._standing.rules.repeat_ms:
            return []
        self._ended[came.movement_id] = now_ms
        return [Ended(came.contract_id, came.movement_id, self._standing.participant, now_ms, why)]
