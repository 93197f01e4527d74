"""Exchanges of agents as tests need them: a few participants in one graph of contracts, all
with the same cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from anabranch.protocol.federation.agent import Agent
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.costs import QueueCost
from anabranch.protocol.federation.standing import AgentRules
from experiments.market.exchange import Exchange, Faults, Task
from experiments.market.rounds import price_at
from harness.markets import CONTRACT

COST = QueueCost(1_000, 10**9)
PRICE = price_at(0.7) * 10
RULES = AgentRules(jitter_ms=300)
MINUTE = 60_000


def contracts(
    edges: list[set[int]], tasks: tuple[str, ...], delta: int, **changes: Any
) -> list[Contract]:
    found = []
    for buyer, sellers in enumerate(edges):
        for seller in sellers:
            text = replace(
                CONTRACT,
                contract_id=f"c{buyer}-{seller}",
                buyer=f"p{buyer}",
                seller=f"p{seller}",
                fixed_price=PRICE,
                delta=delta,
                tasks=tasks,
            )
            found.append(replace(text, **changes))
    return found


def exchange(
    loads: list[list[int]],
    edges: list[set[int]],
    delta: int = PRICE // 3,
    units: Callable[[str, int], Callable[[int], int]] = lambda _name, size: lambda _now: size,
    faults: Faults | None = None,
    **changes: Any,
) -> Exchange:
    tasks = []
    for number, sizes in enumerate(loads):
        for place, size in enumerate(sizes):
            name = f"p{number}.t{place}"
            tasks.append(Task(name, f"p{number}", units(name, size)))
    texts = contracts(
        edges, tuple(changes.pop("tasks", sorted(task.name for task in tasks))), delta, **changes
    )
    return Exchange(lambda name: Agent(name, COST, RULES), tasks, texts, faults, tick_ms=200)


def rush(name: str, size: int) -> Callable[[int], int]:
    """Tasks of p0 have twice their load from the second minute to the tenth."""
    return lambda now: (
        size * 2 if name.startswith("p0") and 2 * MINUTE <= now < 10 * MINUTE else size
    )
