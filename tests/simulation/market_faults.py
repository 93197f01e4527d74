"""The faults of a seed of a federation: drawn up front, most of them at participants, while a
stage is on its way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from simulation.faults import (
    EVERYTHING,
    LOG_LOST,
    MANAGER,
    PROCESS_KINDS,
    STORE_AWAY,
    WRITER_KINDS,
    Fault,
    some_twice,
)
from simulation.market import BUYER, SELLER, STRANGER, THIRD, MarketOptions
from simulation.options import ON_NEW, ON_THIRD

_CLOCK_MS: Final = 1_500
"""An agent's clock is wrong by so much, at most: a contract has dates."""
_ON_THE_WAY_MS: Final = 4_000
"""From the beginning, or the end, of a rush until the stage has moved."""
_FAST_MS: Final = (5_000, 300_000)
"""A clock that is set back was fast by so much from the beginning on."""
_SET_BACK_CHANCE: Final = 0.12
_CALM_CHANCE: Final = 0.12
_STORE_AWAY_CHANCE: Final = 0.4
_FORGED_CHANCE: Final = 0.2
_TWO_SALES_CHANCE: Final = 0.1
STRANGERS_KINDS: Final = ("forged", "forged answer")
"""A record that nobody should believe; an answer to the next offer that is not the seller's."""


def draw(options: MarketOptions, targets: Sequence[str]) -> list[Fault]:
    """Nothing, in some seeds; else a few faults, around the movements that the rushes make."""
    rng = random.Random(f"{options.seed}/market faults")
    if rng.random() < _CALM_CHANCE:
        return []
    found = _store_away(options)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        target = _target(options, targets, rng)
        found.append(_fault(options, target, rng))
    if rng.random() < 0.1:
        at_ms = _when(options, rng)
        found.append(Fault(at_ms, "broker away", EVERYTHING, 0, rng.randint(300, 5_000)))
    if rng.random() < _SET_BACK_CHANCE:
        found = _set_back(options, targets, rng) + (found if rng.random() < 0.6 else [])
    if rng.random() < _TWO_SALES_CHANCE:
        found += _two_sales(options, rng)
    if rng.random() < _FORGED_CHANCE:
        found.append(Fault(100, "forged answer", STRANGER, 0, 0))
    count = rng.choice((1, 2, 4)) if rng.random() < _FORGED_CHANCE else 0
    found += [
        Fault(_when(options, rng), "forged", STRANGER, rng.randrange(24), 0) for _ in range(count)
    ]
    found = sorted([*found, *_log_is_lost(options, targets)])
    return some_twice(options.seed, found)


def _log_is_lost(options: MarketOptions, targets: Sequence[str]) -> list[Fault]:
    """In one of five seeds an agent, the auditor or the manager loses the records of one boundary
    log of the owner for a while, mostly while the stage is on its way, or away.
    """
    rng = random.Random(f"{options.seed}/log lost")
    if rng.random() < 0.8:
        return []
    readers = ("agent/", "auditor/", MANAGER)
    target = rng.choice([each for each in targets if each.startswith(readers)])
    lasts_ms = rng.randint(1_000, 4_000)
    return [Fault(_when(options, rng), LOG_LOST, target, rng.randrange(24), lasts_ms)]


def _store_away(options: MarketOptions) -> list[Fault]:
    """Let the store of checkpoints be away, in some seeds that have one, when the stage leaves."""
    rng = random.Random(f"{options.seed}/store away")
    if not options.has_store or rng.random() >= _STORE_AWAY_CHANCE:
        return []
    at_ms = options.rush[0] * options.bucket_ms + rng.randint(0, 1_500)
    return [Fault(at_ms, STORE_AWAY, EVERYTHING, 0, rng.randint(1_000, 6_000))]


def _set_back(options: MarketOptions, targets: Sequence[str], rng: random.Random) -> list[Fault]:
    """Let a participant's clock run ahead, and set it back."""
    services = ("agent/", "agent/", "agent/", "contract_broker/", "auditor/")
    kind = rng.choice(services)
    target = rng.choice([each for each in targets if each.startswith(kind)] or ["agent/north"])
    return [
        Fault(0, "clock", target, rng.randint(*_FAST_MS), 0),
        Fault(_when(options, rng), "clock back", target, 0, 0),
    ]


def _two_sales(options: MarketOptions, rng: random.Random) -> list[Fault]:
    """While the seller's node is away, and the stage waits to leave, another agent of the buyer
    sells it once more to a seller that has forgotten what it has promised. Where it may be sold on,
    also of that sale.
    """
    buyer, seller = BUYER, SELLER
    new, begins = ON_NEW, options.rush[0]
    if options.is_resale and rng.random() < 0.5:
        buyer, seller = SELLER, THIRD
        new, begins = ON_THIRD, options.sellers_rush[0]
    at_ms = begins * options.bucket_ms
    again_ms = at_ms + rng.randint(900, 1_500)
    return [
        Fault(at_ms, "away", f"processing/{options.moved}{new}", 0, rng.randint(3_500, 5_000)),
        Fault(again_ms, "double", f"agent/{buyer}", 0, 0),
        Fault(again_ms + rng.randint(1_200, 2_800), "crash", f"agent/{seller}", 0, 0),
    ]


def _target(options: MarketOptions, targets: Sequence[str], rng: random.Random) -> str:
    agents = [each for each in targets if each.startswith("agent/")]
    nodes = [f"processing/{options.moved}{new}" for new in ("", *options.new_nodes)]
    brokers = [each for each in targets if each.startswith("contract_broker/")]
    auditors = [each for each in targets if each.startswith("auditor/")]
    others = [each for each in targets if each not in (*agents, *nodes, *brokers, *auditors)]
    groups = [agents, agents, agents, nodes, nodes, nodes, brokers, others]
    return rng.choice(rng.choice([*groups, auditors, auditors] if auditors else groups))


def _when(options: MarketOptions, rng: random.Random) -> int:
    edges = options.rush[:2] + (options.sellers_rush[:2] if options.is_resale else ())
    edge = rng.choice(edges) * options.bucket_ms
    if rng.random() < 0.2:
        return rng.randrange(options.heal_ms)
    return min(edge + rng.randint(0, _ON_THE_WAY_MS), options.heal_ms - 1)


def _fault(options: MarketOptions, target: str, rng: random.Random) -> Fault:
    kinds = [*PROCESS_KINDS, *WRITER_KINDS, "away", "away"]
    if target.startswith("delivery/"):
        kinds = ["crash", "zombie", "pause", "cut", "slow"]
    if target in [f"processing/{options.moved}{new}" for new in options.new_nodes]:
        kinds += ["power", "disk", "dead", "dead"]
    if target == f"processing/{options.moved}":
        kinds += ["power", "disk"]
    if target.startswith("auditor/"):
        kinds += ["disk"]
    kind = rng.choice(kinds)
    duration_ms = rng.choice((rng.randint(20, 400), rng.randint(200, 3_000), 6_000))
    value = rng.randint(-_CLOCK_MS, _CLOCK_MS) if kind == "clock" else rng.randrange(24)
    return Fault(_when(options, rng), kind, target, value, duration_ms)
