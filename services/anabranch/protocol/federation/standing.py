"""State of a participant's agent: its policy, its cost, its contracts, its tasks.

Theory of operation. Two sums of load are kept apart. The *sure* load is here and stays unless this
agent sells it. Bids are based on it, so that no bid counts load that may leave by itself. The
*most* that there may be includes all load that was promised or may come home. Asks are based on it,
so that nothing is promised twice. Both sums are on the safe side; the load on its way is the
difference.

Invariants:
    FY1  a bid counts no load that may leave by itself, an ask counts all that may come.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from anabranch.protocol.federation.contract_book import BookedContract, ContractState
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.costs import Cost, marginal
from anabranch.protocol.federation.holdings import Holding, Holdings, TaskPlace, Term
from anabranch.protocol.federation.pricing import GainSplit


@dataclass(frozen=True, slots=True)
class AgentRules:
    """Policy of an agent. ``collect_ms`` is below ``offer_every_ms``: a buyer should have the
    answer before it offers again.
    """

    offer_every_ms: int = 2_000
    jitter_ms: int = 500
    collect_ms: int = 200
    offers_max: int = 32
    ttl_ms: int = 1_000
    rest_ms: int = 5_000
    """Pause after an agreed offer, in ms, until the averages have followed."""
    weight_ppm: int = 300_000
    """Weight of a measurement in the average, in parts per million."""
    margin_permille: int = 0
    """Margin by which a bid must exceed a seller's cost, per mille."""
    recall_permille: int = 50
    """Margin by which running a task at home must be cheaper for a buyer, per mille."""
    repeat_ms: int = 2_000
    """Interval between two requests for the same thing, in ms."""
    silences_max: int = 3
    backoff_ms: int = 60_000
    split: GainSplit = GainSplit.HALVES


@dataclass(slots=True)
class Partner:
    """Contract with the agent's memory of it."""

    booked: BookedContract
    number: int = 0
    """Number of the last own offer, or of the last received one."""
    silences: int = 0
    avoided_until_ms: int = 0
    price: int | None = None
    """Price of the last movement; None before the first."""

    @property
    def contract(self) -> Contract:
        """The newest version."""
        return self.booked.contract

    @property
    def expected_price(self) -> int:
        """Price that the partner is likely to accept: the last one, or the middle of the bound."""
        return (
            self.price
            if self.price is not None
            else (self.contract.floor + self.contract.fixed_price) // 2
        )


@dataclass(slots=True)
class Counters:
    """Counters of an agent since its start, shown in ``status`` to tell why nothing moves."""

    offers: int = 0
    """Number of offers that it made."""
    answers: int = 0
    """Number of answers that it gave to others' offers."""
    taken: int = 0
    """Number of tasks that it accepted in these answers."""
    silences: int = 0
    """Number of its offers that were not answered in time."""
    disbelieved: int = 0
    """Number of offers, answers and requests of others that it ignored as not valid."""
    returns: int = 0
    """Number of requests to a buyer to take a task back."""
    recalls: int = 0
    """Number of tasks that it took back from a seller because they cost less here."""


@dataclass(slots=True)
class Standing:
    """State that the parts of one agent share. Not thread-safe."""

    participant: str
    cost: Cost
    rules: AgentRules
    holdings: Holdings = field(default_factory=Holdings)
    partners: dict[str, Partner] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)

    def sure(self) -> int:
        """Return the units of load that are here and stay unless they are sold (FY1)."""
        traded = self.holdings.at(TaskPlace.HERE, TaskPlace.OFFERED)
        besides = self.holdings.besides.values()
        return sum(holding.load.units for holding in traded) + sum(besides)

    def most(self) -> int:
        """Return the units of load that are here, promised, or may come home (FY1)."""
        return self.holdings.level()

    def saves(self, holding: Holding) -> int:
        """Return what would be saved if a task that runs here ran elsewhere, in micro-units per
        second.
        """
        others = self.sure() - (
            holding.load.units if holding.place in {TaskPlace.HERE, TaskPlace.OFFERED} else 0
        )
        return marginal(self.cost, others, holding.load.units)

    def adds(self, holding: Holding) -> int:
        """Return the cost that a task elsewhere would have here, in micro-units per second."""
        return marginal(self.cost, self.most(), holding.load.units)

    def bought(self) -> Iterator[tuple[str, Partner]]:
        """Return the contracts under which this participant hands load over."""
        return (
            (name, partner)
            for name, partner in self.partners.items()
            if partner.contract.buyer == self.participant
        )

    def of(self, term: Term) -> Partner:
        """Return the contract under which a task moved."""
        return self.partners[term.contract_id]

    def state_of(self, term: Term, now_ms: int) -> ContractState:
        """Return the state of the term's contract."""
        return self.of(term).booked.state_at(now_ms)

    def jitter(self, now_ms: int) -> int:
        """Return the jitter of the next turn, in ms: agents that started together must not act at
        the same time. It depends on the participant and ``now_ms`` only.
        """
        spread = self.rules.jitter_ms
        return zlib.crc32(f"{self.participant} {now_ms}".encode()) % spread if spread else 0
