"""Choice of the tasks to offer, and of those to take of an offer: OFFER_LOAD and ACCEPT_LOAD of the
Bounded-Price Mechanism.

Theory of operation. A buyer offers a maximal set: it adds tasks as long as each costs more to keep,
on top of what would remain, than it costs to hand over at the lowest price. A seller goes through
offers, the best-paid first, and takes each task that costs it less than it is paid, on top of what
it has and has promised. Both decide by themselves, from what they know of themselves, and both
gain: see ``pricing``.

Invariants:
    FT1  a buyer bids for no task more than the task costs it on top of what would remain.
    FT2  a seller takes no task for less than the task costs it on top of all that it has, has
        promised, and takes before it.
    FT3  at delta 0 a task moves exactly if keeping it costs more, and taking it less, than the one
        price.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.costs import Cost, marginal
from anabranch.protocol.federation.offers import OFFERED_TASKS_MAX, AcceptedTask, OfferedTask
from anabranch.protocol.federation.pricing import Bound, GainSplit, ask, bid, gains_enough, settled


def bound_of(contract: Contract) -> Bound:
    """Return the bound of the prices that a contract allows."""
    return Bound(contract.floor, contract.fixed_price)


def choose(
    tasks: Iterable[tuple[str, int]], level: int, cost: Cost, bound: Bound
) -> tuple[OfferedTask, ...]:
    """Return the tasks to offer under a contract, each with its reserve price (FT1).

    Args:
        tasks: Name and units of each task that may move.
        level: Load of all tasks that are here, these included, or have been promised.
        cost: Cost function of the buyer.
        bound: Price bound of the contract.
    """
    names: dict[int, list[str]] = {}
    for name, units in tasks:
        names.setdefault(units, []).append(name)
    saved = {units: Fraction(marginal(cost, level - units, units), units) for units in names}
    chosen: list[OfferedTask] = []
    for units in sorted(names, key=lambda units: (-saved[units], units)):
        # On top of less load the next task of this size is worth less: if one is too cheap to sell,
        # so are all others.
        left = sorted(names[units], reverse=True)
        while left and len(chosen) < OFFERED_TASKS_MAX:
            reserve = bid(bound, units, marginal(cost, level - units, units))
            if reserve is None:
                break
            chosen.append(OfferedTask(left.pop(), units, reserve))
            level -= units
    return tuple(chosen)


def accept(
    tasks: Sequence[OfferedTask],
    level: int,
    cost: Cost,
    bound: Bound,
    split: GainSplit,
    margin_permille: int,
) -> tuple[AcceptedTask, ...]:
    """Return the tasks of an offer that are taken, each with its price (FT2).

    Args:
        tasks: Tasks in the order of the offer.
        level: Load of all tasks that are here or have been promised.
        cost: Cost function of the seller.
        bound: Price bound of the contract.
        split: Rule that divides the gain.
        margin_permille: Minimum excess of the reserve price over the cost of the task, in per
            mille.
    """
    taken: list[AcceptedTask] = []
    for task in tasks:
        costs = marginal(cost, level, task.units)
        lowest = ask(bound, task.units, costs)
        if lowest is None or not gains_enough(
            task.reserve_price, task.units, costs, margin_permille
        ):
            continue
        price = settled(bound, task.reserve_price, lowest, split)
        if price is not None:
            taken.append(AcceptedTask(task.name, task.units, price))
            level += task.units
    return tuple(taken)
