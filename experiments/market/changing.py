"""Load that changes, under agents with messages and ledgers: what the market saves, and how
often it moves tasks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Final

from anabranch.protocol.federation.agent import Agent
from anabranch.protocol.federation.contracts import (
    AuditClauses,
    Contract,
    EndClauses,
    LoadUnit,
    MoveClauses,
    PenaltyClauses,
    QualityClauses,
)
from anabranch.protocol.federation.standing import AgentRules
from anabranch.protocol.stage.owners_checkpoint import Transfer
from experiments.market.exchange import Exchange, Faults, Task
from experiments.market.graph import random_graph
from experiments.market.rounds import CAPACITY, price_at, queue_cost

PARTICIPANTS: Final = 10
TASKS: Final = 20
"""Number of tasks of each participant, each of 2 to 3 % of its capacity."""

HOUR_MS: Final = 3_600_000
RUSH_MS: Final = 5 * 60_000
LOOK_MS: Final = 5_000
PRICE: Final = price_at(0.7)


@dataclass(frozen=True)
class Changing:
    """An hour, with these contracts."""

    delta: int
    """Per cent of the price."""
    min_hold_s: int
    seed: int = 1


@dataclass(frozen=True)
class Hour:
    """Outcome of an hour."""

    cost: float
    """Total cost, as a multiple of the cost without a market."""
    overload: float
    """Mean load above what is desired, in per cent of that without a market."""
    moves: float
    """For each task."""
    moves_max: int
    """Maximum number of moves of one task."""
    messages: float
    """For each participant and minute."""


def contract(buyer: int, seller: int, tasks: tuple[str, ...], changing: Changing) -> Contract:
    """Return a contract of the experiment."""
    return Contract(
        contract_id=f"c{buyer}-{seller}",
        version=1,
        buyer=f"p{buyer}",
        seller=f"p{seller}",
        valid_from_ms=0,
        valid_to_ms=100 * HOUR_MS,
        fixed_price=PRICE,
        delta=PRICE * changing.delta // 100,
        unit=LoadUnit("core", 100),
        tasks=tasks,
        min_hold_ms=changing.min_hold_s * 1_000,
        moving=MoveClauses(Transfer.CHECKPOINT, 30_000),
        quality=QualityClauses(3_000),
        ending=EndClauses(0, 60_000),
        penalty=PenaltyClauses(0, 0),
        audit=AuditClauses(10_000, 50_000, 10_000, 600_000),
    )


def rushes(chance: random.Random) -> list[tuple[int, int]]:
    """When load of a participant is doubled: about two rushes in an hour."""
    found, now_ms = [], 0
    while (now_ms := now_ms + round(chance.expovariate(1 / (HOUR_MS / 3)))) < HOUR_MS:
        found.append((now_ms, now_ms + RUSH_MS))
        now_ms += RUSH_MS
    return found


def loads(size: int, when: list[tuple[int, int]], seed: str) -> Callable[[int], int]:
    """Return the load of a task over time: doubled in a rush, and a tenth up and down every five
    seconds.
    """
    chance = random.Random(seed)
    noise = [chance.randint(90, 110) for _ in range(101)]

    def units(now_ms: int) -> int:
        factor = 2 if any(begin <= now_ms < end for begin, end in when) else 1
        return size * factor * noise[now_ms // 5_000 % len(noise)] // 100

    return units


def hour(changing: Changing) -> Hour:
    """One hour of changing load."""
    chance = random.Random(changing.seed)
    tasks = []
    for number in range(PARTICIPANTS):
        when = rushes(chance)
        for place in range(TASKS):
            size = CAPACITY * chance.randint(20, 30) // 1_000
            tasks.append(
                Task(
                    f"p{number}.t{place}",
                    f"p{number}",
                    loads(size, when, f"{changing.seed} {number} {place}"),
                )
            )
    names = tuple(sorted(task.name for task in tasks))
    edges = random_graph(PARTICIPANTS, 4, chance)
    texts = [
        contract(buyer, seller, names, changing)
        for buyer, sellers in enumerate(edges)
        for seller in sorted(sellers)
    ]
    made = Exchange(
        lambda name: Agent(name, queue_cost, AgentRules()),
        tasks,
        texts,
        Faults(seed=changing.seed),
        tick_ms=500,
    )
    with_market = []
    without = []
    excess = []
    excess_without = []
    desired = CAPACITY * 7 // 10
    for now_ms in range(LOOK_MS, HOUR_MS + 1, LOOK_MS):
        made.run(now_ms)
        here = [made.level(name) for name in made.agents]
        alone = [
            sum(task.units(made.now_ms) for task in tasks if task.owner == name)
            for name in made.agents
        ]
        with_market.append(sum(map(queue_cost, here)))
        without.append(sum(map(queue_cost, alone)))
        excess.append(sum(max(0, level - desired) for level in here))
        excess_without.append(sum(max(0, level - desired) for level in alone))
    times = [sum(name == task.name for _, name in made.starts) for task in tasks]
    return Hour(
        cost=sum(with_market) / sum(without),
        overload=100 * mean(excess) / mean(excess_without),
        moves=mean(times),
        moves_max=max(times),
        messages=made.messages / PARTICIPANTS / 60,
    )
