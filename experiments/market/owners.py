"""Three owners over four minutes: the load of each without and with contracts, and what they owe
one another at the end.

North has a rush, and may sell to south; south has one of its own meanwhile, and may sell to west.
The agents, ledgers and messages are those of ``exchange``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from anabranch.protocol.federation.agent import Agent
from anabranch.protocol.federation.contracts import AuditClauses, Contract
from anabranch.protocol.federation.standing import AgentRules
from experiments.market.changing import Changing, contract
from experiments.market.exchange import Exchange, Faults, Task
from experiments.market.rounds import CAPACITY, queue_cost

OWNERS: Final = ("north", "south", "west")
TASKS: Final = 20
SIZES: Final = {"north": CAPACITY // 50, "south": CAPACITY // 50, "west": CAPACITY // 100}
"""Load of each task while there is no rush."""
RUSHES: Final = {
    "north": (30_000, 180_000, 24),
    "south": (90_000, 150_000, 18),
    "west": (0, 0, 10),
}
"""First and last moment of a rush, in ms, and by how many tenths it multiplies the load."""
LASTS_MS: Final = 240_000
SHOWN_EVERY_MS: Final = 20_000
LOOK_MS: Final = 1_000
AUDIT: Final = AuditClauses(
    meter_ms=1_000, tolerance_ppm=50_000, sample_ppm=10_000, settle_ms=10_000
)
WAITING_ROW_NANO: Final = 10**12
"""Cost of a row that waits for one second, to its owner (``rounds.QUEUE``), in nano-units."""


@dataclass(frozen=True)
class Owner:
    """Worth of the contracts to one owner, in rows that wait for a second."""

    settled: float
    """Payments to the owner, less those by it."""
    waiting_alone: float
    waiting: float

    @property
    def gain(self) -> float:
        """Gain of the owner by the contracts: payments and waiting saved."""
        return self.settled + self.waiting_alone - self.waiting


@dataclass(frozen=True)
class Story:
    """Outcome of a run."""

    loads: list[tuple[int, dict[str, tuple[float, float]]]]
    """(seconds, owner -> load without and with contracts, in per cent of its capacity)."""
    owners: dict[str, Owner]


def story(delta: int) -> Story:
    """Run the four minutes. ``delta``: range of prices, in per cent of the fixed price."""
    tasks = [
        Task(f"{owner}.t{number}", owner, _load(owner))
        for owner in OWNERS
        for number in range(TASKS)
    ]
    names = tuple(sorted(task.name for task in tasks))
    made = Exchange(
        lambda name: Agent(name, queue_cost, AgentRules()),
        tasks,
        [_contract("north", "south", names, delta), _contract("south", "west", names, delta)],
        Faults(),
    )
    loads = []
    alone_micro, micro = dict.fromkeys(OWNERS, 0), dict.fromkeys(OWNERS, 0)
    for now_ms in range(LOOK_MS, LASTS_MS + 1, LOOK_MS):
        made.run(now_ms)
        alone = {name: TASKS * _load(name)(made.now_ms) for name in OWNERS}
        here = {name: made.level(name) for name in OWNERS}
        for name in OWNERS:
            alone_micro[name] += queue_cost(alone[name]) * LOOK_MS // 1_000
            micro[name] += queue_cost(here[name]) * LOOK_MS // 1_000
        if now_ms % SHOWN_EVERY_MS == 0:
            loads.append(
                (
                    now_ms // 1_000,
                    {
                        name: (100 * alone[name] / CAPACITY, 100 * here[name] / CAPACITY)
                        for name in OWNERS
                    },
                )
            )
    settled = dict.fromkeys(OWNERS, 0)
    for ledger in made.ledgers.values():
        for name, nano in ledger.balances().items():
            settled[name] += nano
    owners = {
        name: Owner(
            settled[name] / WAITING_ROW_NANO,
            1_000 * alone_micro[name] / WAITING_ROW_NANO,
            1_000 * micro[name] / WAITING_ROW_NANO,
        )
        for name in OWNERS
    }
    return Story(loads, owners)


def _load(owner: str) -> Callable[[int], int]:
    """Return the load of a task of ``owner`` at a time."""
    begins_ms, ends_ms, tenths = RUSHES[owner]
    size = SIZES[owner]
    return lambda now_ms: size * tenths // 10 if begins_ms <= now_ms < ends_ms else size


def _contract(buyer: str, seller: str, tasks: tuple[str, ...], delta: int) -> Contract:
    text = contract(0, 1, tasks, Changing(delta, min_hold_s=10))
    return replace(text, contract_id=f"{buyer}-{seller}", buyer=buyer, seller=seller, audit=AUDIT)
