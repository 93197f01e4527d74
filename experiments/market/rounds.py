"""Static load, in rounds: fast enough for a thousand participants with ten contracts each.

Each round every participant, in random order, sheds once: it offers to one partner after the other,
until one takes something: the cheapest first, and of equals the one that was asked longest ago.
What it offers and what is taken is decided by ``protocol.federation.trading``, as in an agent.
There are no messages, and so no waits, losses or time here: these are in ``exchange``. A pair that
could not trade is not asked again until one of the two has changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.protocol.federation.costs import Cost, QueueCost, marginal
from anabranch.protocol.federation.offers import AcceptedTask, OfferedTask
from anabranch.protocol.federation.pricing import Bound, GainSplit
from anabranch.protocol.federation.trading import accept, choose
from experiments.market.graph import Edges

CAPACITY: Final = 10_000
"""Units of load that a participant can run."""

QUEUE: Final = QueueCost(CAPACITY, 10**9)

_LEVELS: Final = [QUEUE(units) for units in range(12 * CAPACITY)]


def queue_cost(units: int) -> int:
    """Return the cost of an M/M/1 queue, from a table."""
    return _LEVELS[units]


@dataclass(frozen=True, slots=True)
class Trade:
    """One task handed over."""

    buyer: int
    seller: int
    units: int
    price: int
    buyer_saves: int
    seller_spends: int


@dataclass(slots=True)
class Run:
    """Course of a run: one value for each round, the first for the beginning."""

    excess: list[int]
    unused: list[int]
    cost: list[int]
    moves: int = 0
    """Tasks that were handed over."""
    movements: int = 0
    """Number of movements, each of one or more tasks."""

    def rounds_to(self, part: float, of: list[int]) -> int:
        """After how many rounds this part of the improvement was there."""
        goal = of[0] - part * (of[0] - of[-1])
        return next(number for number, value in enumerate(of) if value <= goal)

    @property
    def rounds(self) -> int:
        """To the end of trading."""
        return len(self.excess) - 1


@dataclass(slots=True)
class Market:
    """Participants with their tasks (name -> units), contracts and one cost function."""

    tasks: list[dict[str, int]]
    edges: Edges
    bounds: Callable[[int, int], Bound]
    """Function that returns the bound of the contract from a buyer to a seller."""
    desired: int
    """The load above which a participant counts as overloaded."""
    cost: Cost = queue_cost
    split: GainSplit = GainSplit.HALVES
    margin_permille: int = 0
    seen: Callable[[Trade], None] | None = None
    levels: list[int] = field(init=False)
    income: list[int] = field(init=False)
    """Micro-units per second."""
    _expected: dict[tuple[int, int], tuple[int, int]] = field(init=False)
    """Expected price under each contract, and the number of trades when the seller was last
    asked.
    """
    _trades: int = field(init=False, default=0)
    _changes: list[int] = field(init=False)
    _failed: dict[tuple[int, int], tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.levels = [sum(tasks.values()) for tasks in self.tasks]
        self.income = [0] * len(self.tasks)
        self._changes = [0] * len(self.tasks)
        self._failed = {}
        pairs = [(buyer, seller) for buyer, sellers in enumerate(self.edges) for seller in sellers]
        self._expected = {pair: (sum(self.bounds(*pair)) // 2, 0) for pair in pairs}

    @property
    def excess(self) -> int:
        """Load above what is desired."""
        return sum(max(0, level - self.desired) for level in self.levels)

    @property
    def unused(self) -> int:
        """Room below what is desired."""
        return sum(max(0, self.desired - level) for level in self.levels)

    @property
    def total_cost(self) -> int:
        """Cost of all participants, in micro-units per second."""
        return total([self.cost] * len(self.levels), self.levels)

    def run(self, chance: random.Random, rounds_max: int = 5_000) -> Run:
        """To the end of trading."""
        found = Run([self.excess], [self.unused], [self.total_cost])
        order = list(range(len(self.tasks)))
        while found.rounds < rounds_max:
            chance.shuffle(order)
            moves = [moved for number in order if (moved := self._shed(number))]
            if not moves:
                break
            found.moves += sum(moves)
            found.movements += len(moves)
            found.excess.append(self.excess)
            found.unused.append(self.unused)
            found.cost.append(self.total_cost)
        return found

    def _shed(self, buyer: int) -> int:
        """OFFER_LOAD, to the first partner that takes something."""
        offered: dict[Bound, Sequence[OfferedTask]] = {}
        for _, seller in sorted(
            (self._expected[buyer, seller], seller) for seller in self.edges[buyer]
        ):
            pair = (self._changes[buyer], self._changes[seller])
            if self._failed.get((buyer, seller)) == pair:
                continue
            bound = self.bounds(buyer, seller)
            if bound not in offered:
                offered[bound] = choose(
                    self.tasks[buyer].items(), self.levels[buyer], self.cost, bound
                )
            taken = self._hand_over(buyer, seller, bound, offered[bound]) if offered[bound] else ()
            if taken:
                self._trades += 1
                self._expected[buyer, seller] = (taken[-1].price, self._trades)
                return len(taken)
            self._failed[buyer, seller] = pair
        return 0

    def _hand_over(
        self, buyer: int, seller: int, bound: Bound, offered: Sequence[OfferedTask]
    ) -> Sequence[AcceptedTask]:
        """ACCEPT_LOAD, and the movement."""
        taken = accept(
            offered, self.levels[seller], self.cost, bound, self.split, self.margin_permille
        )
        for task in taken:
            del self.tasks[buyer][task.name]
            self.tasks[seller][task.name] = task.units
            saves = marginal(self.cost, self.levels[buyer] - task.units, task.units)
            spends = marginal(self.cost, self.levels[seller], task.units)
            self.levels[buyer] -= task.units
            self.levels[seller] += task.units
            self.income[buyer] -= task.price * task.units
            self.income[seller] += task.price * task.units
            if self.seen is not None:
                self.seen(Trade(buyer, seller, task.units, task.price, saves, spends))
        if taken:
            self._changes[buyer] += 1
            self._changes[seller] += 1
        return taken


def exponential_tasks(
    participants: int, share: float, desired: int, sizes: Callable[[], int], chance: random.Random
) -> list[dict[str, int]]:
    """Tasks for each, its load drawn from an exponential distribution; together ``share`` of
    what all desire.
    """
    drawn = [chance.expovariate(1) for _ in range(participants)]
    scale = share * desired * participants / sum(drawn)
    found: list[dict[str, int]] = []
    for number, weight in enumerate(drawn):
        tasks: dict[str, int] = {}
        left = min(round(weight * scale), 10 * CAPACITY)
        while (size := sizes()) <= left or chance.random() * size < left:
            tasks[f"{number}.{len(tasks)}"] = size
            left -= size
        found.append(tasks)
    return found


def uniform_bounds(price: int, delta: int) -> Callable[[int, int], Bound]:
    """Return the same bounds for all contracts."""
    bound = Bound(price - delta, price)
    return lambda _buyer, _seller: bound


def varied_bounds(
    price: int, delta_ppm: int, spread_ppm: int, seed: int
) -> Callable[[int, int], Bound]:
    """Prices that differ from contract to contract by up to ``spread_ppm``; the range is a
    share of each.
    """
    bounds: dict[tuple[int, int], Bound] = {}

    def of(buyer: int, seller: int) -> Bound:
        if (buyer, seller) not in bounds:
            drawn = random.Random(f"{seed} {buyer} {seller}").randint(-spread_ppm, spread_ppm)
            ceiling = price * (1_000_000 + drawn) // 1_000_000
            bounds[buyer, seller] = Bound(ceiling - ceiling * delta_ppm // 1_000_000, ceiling)
        return bounds[buyer, seller]

    return of


def threshold(cost: Cost, price: int, step: int, most: int) -> int:
    """Return the desired load at a price: the highest level up to ``most`` whose last ``step``
    units cost at most ``price`` each.

    Levels are whole steps. Above it, capacity is worth buying at this price; below it, worth
    selling.
    """
    low, high = 0, most // step
    while low < high:
        middle = (low + high + 1) // 2
        if marginal(cost, (middle - 1) * step, step) <= price * step:
            low = middle
        else:
            high = middle - 1
    return low * step


def delta_for_hops(cost: Cost, price: int, step: int, hops: int, most: int) -> int:
    """Return the range below ``price`` with which overload travels ``hops`` contracts further than
    at a fixed price, for tasks of ``step`` units.

    It reaches down to what a task costs who is ``hops`` tasks below the desired load. With one hop
    less than the diameter of the graph of contracts, nobody stays overloaded while the average load
    is that many tasks below the desired one.
    """
    desired = threshold(cost, price, step, most)
    bottom = marginal(cost, max(desired - (hops + 1) * step, 0), step)
    return max(0, price - -(-bottom // step))


def total(costs: Sequence[Cost], levels: Sequence[int]) -> int:
    """Return the cost of the load of all participants together, in micro-units per second."""
    return sum(cost(level) for cost, level in zip(costs, levels, strict=True))


def desired_load(price: int, step: int) -> int:
    """Return the load that a participant with the queue's cost wants at ``price``."""
    return threshold(queue_cost, price, step, CAPACITY)


def price_at(share: float) -> int:
    """Return the marginal cost of a unit at utilisation ``share``: the limit for small tasks."""
    return round(10**9 / CAPACITY / (1 - share) ** 2)


def optimum(levels: Sequence[int], step: int) -> list[int]:
    """Return the levels of least total cost, whichever participants may trade, for tasks of
    ``step`` units.

    Costs are equal and convex, so the levels differ by one task at most.
    """
    number, rest = divmod(sum(levels) // step, len(levels))
    return [(number + (place < rest)) * step for place in range(len(levels))]
