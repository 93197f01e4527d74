"""Measurements of markets with static load: residues, rounds and costs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import mean
from typing import Final

from experiments.market.graph import diameter, random_graph
from experiments.market.rounds import (
    CAPACITY,
    Market,
    Run,
    desired_load,
    exponential_tasks,
    optimum,
    price_at,
    queue_cost,
    uniform_bounds,
    varied_bounds,
)

PRICE: Final = price_at(0.7)
UNIT: Final = CAPACITY // 100
"""A task of one per cent of the capacity."""

DESIRED: Final = desired_load(PRICE, UNIT)
CONTRACTS: Final = (1, 3, 5, 10, 20)
DELTAS: Final = (0, 6, 17)
"""Per cent of the price: a fixed price, one hop further, three hops further."""

UNDER, OVER = 0.75, 1.25
"""The load of all together as a share of what all desire."""


@dataclass(frozen=True)
class Setting:
    """One point of a figure."""

    participants: int
    contracts: int
    delta: int
    """Per cent of the price."""
    share: float
    spread: int = 0
    """Per cent by which prices differ at most."""
    uneven: bool = False
    """Tasks of 0.5 to 1.5 % of the capacity; otherwise of 1 %."""
    margin_permille: int = 0


@dataclass(frozen=True)
class Outcome:
    """Outcome of one setting and seed."""

    run: Run
    diameter: int
    share: float
    best_cost: int
    """Cost of the central optimum."""

    @property
    def course(self) -> list[int]:
        """Overload, or unused room in an overloaded system, after each round."""
        return self.run.excess if self.share < 1 else self.run.unused

    @property
    def residue(self) -> float:
        """Share of the excess cost that remains, in per cent."""
        return 100 * self.course[-1] / self.course[0]

    @property
    def rounds(self) -> int:
        """To 95 % of the improvement."""
        return self.run.rounds_to(0.95, self.course)


def run(setting: Setting, seed: int) -> Outcome:
    """One market, to the end of trading."""
    chance = random.Random(seed)
    edges = random_graph(setting.participants, setting.contracts, chance)
    sizes: Callable[[], int] = (
        (lambda: 50 + 10 * chance.randrange(11)) if setting.uneven else (lambda: UNIT)
    )
    tasks = exponential_tasks(setting.participants, setting.share, DESIRED, sizes, chance)
    bounds = uniform_bounds(PRICE, PRICE * setting.delta // 100)
    if setting.spread:
        bounds = varied_bounds(PRICE, 10_000 * setting.delta, 10_000 * setting.spread, seed)
    market = Market(tasks, edges, bounds, DESIRED, margin_permille=setting.margin_permille)
    best = sum(map(queue_cost, optimum(market.levels, UNIT // 10 if setting.uneven else UNIT)))
    return Outcome(market.run(chance), diameter(edges), setting.share, best)


def averaged(outcomes: Iterable[Outcome], of: Callable[[Outcome], float]) -> float:
    """Return the mean over seeds."""
    return mean(of(each) for each in outcomes)


def percent(value: float) -> str:
    """Two figures, and 0 only where nothing is left."""
    return (
        "0"
        if value == 0
        else "<0.1"
        if value < 0.05
        else f"{value:.1f}"
        if value < 10
        else f"{value:.0f}"
    )
