"""Which faults happen when: a pure function of the seed.

Kinds are dealt from a shuffled deck that is shuffled anew when it is empty, so each kind comes once
before any comes twice. Most faults have time to be seen and recovered from before the next one;
some are followed at once by another, which meets the recovery, and some have company: the next one
begins, elsewhere, before they are over.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """Kind of a fault."""

    KILL = "kill"
    """SIGKILL to a service and all below it."""
    KILL_TWICE = "kill-twice"
    """The same, and again while it starts."""
    TERMINATE = "terminate"
    """SIGTERM: an orderly end, which must not hang."""
    PAUSE = "pause"
    """SIGSTOP, SIGCONT."""
    CUT = "cut"
    """No byte passes between the service and Kafka."""
    CUT_TO = "cut-to"
    """Its requests do not reach Kafka."""
    CUT_FROM = "cut-from"
    """Kafka's answers do not reach it: all outcomes are unknown."""
    RESET = "reset"
    """Its connections are closed and new ones refused."""
    SLOW = "slow"
    """Everything passes late, both ways."""
    BROKER_STOP = "broker-stop"
    """Clean restart of the broker."""
    BROKER_KILL = "broker-kill"
    BROKER_PAUSE = "broker-pause"
    REDIS_KILL = "redis-kill"
    REDIS_EMPTY = "redis-empty"
    REDIS_PAUSE = "redis-pause"
    DISK = "disk"
    """A replica is killed and its directory deleted."""
    ZOMBIE = "zombie"
    """A service is paused, a second one of the same name replaces it, the first wakes."""
    MOVE = "move"
    """A replica of a node moves to the node of the pool, or back."""
    SPLIT = "split"
    """The shard of the first stage is split into its halves."""
    RUSH = "rush"
    """A source gets more reports than the first stage can process."""


BROKER: Final = "kafka/kafka"
REDIS: Final = "redis/redis"
_SERVERS: Final = frozenset({"kafka", "redis", "proxy"})
_OF_SERVER: Final = {
    Kind.BROKER_STOP: BROKER,
    Kind.BROKER_KILL: BROKER,
    Kind.BROKER_PAUSE: BROKER,
    Kind.REDIS_KILL: REDIS,
    Kind.REDIS_EMPTY: REDIS,
    Kind.REDIS_PAUSE: REDIS,
}

_LOSE_DISK: Final = frozenset({Kind.DISK, Kind.ZOMBIE})
"""A node needs a peer for them: what a second copy has made goes with its disk, when the first one
replaces it in its turn, and the blocks that it was made of may be deleted by then.
"""

ELASTIC: Final = frozenset({Kind.MOVE, Kind.SPLIT})
"""They need a pool and halves, so they happen only where a run is asked for them."""
NOT_ELASTIC: Final = frozenset({Kind.DISK, Kind.ZOMBIE})
"""They do not happen beside those: they take the disk of a node for that of the replicas which the
file gives it, wherever these have moved.
"""
_ONCE: Final = frozenset({Kind.SPLIT})
"""A run has one of them at most: a shard is split for good."""

OVERLOAD: Final = frozenset({Kind.RUSH})
"""They need a stage that leaves out rows, so they happen only where a run is asked for them: every
other fault is one.
"""

LENGTHS_S: Final[dict[Kind, tuple[int, ...]]] = {
    Kind.PAUSE: (
        2,
        12,
        35,
        65,
    ),  # beyond: heartbeats (10 s), the time-out of a record (30 s), that of a transaction (60 s)
    Kind.CUT: (3, 12, 35),
    Kind.CUT_TO: (3, 12, 35),
    Kind.CUT_FROM: (3, 12, 35),
    Kind.RESET: (2, 6, 12),
    Kind.SLOW: (8, 15),
    Kind.BROKER_PAUSE: (4, 12),
    Kind.REDIS_PAUSE: (4, 12),
    Kind.ZOMBIE: (15,),
    Kind.RUSH: (6, 10),
}
"""How long each lasts that does not undo itself."""

LONGEST_SHARE: Final = 0.25
"""Maximum share of the whole run that one fault may take."""
_DELAYS_MS: Final = (20, 100, 300)
_CALM_S: Final = (10.0, 16.0)
"""Until the next fault: more than a stage takes to be back, on a machine with cores to spare."""
_HASTY_S: Final = (1.0, 4.0)
_HASTY_SHARE: Final = 0.2
_COMPANY_SHARE: Final = 0.15
_RUSH_COMPANY_SHARE: Final = 0.4
_RUSH_HASTY_SHARE: Final = 0.3
"""Share of the rushes in whose corrections the next fault begins."""
_REST_SPREAD_S: Final = 2.0
"""A window of the run's statistics: faults fall anywhere in it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault as planned; ``at_ms`` counts from the beginning of the faults, ``for_ms`` 0:
    nothing is to be undone.
    """

    number: int
    at_ms: int
    kind: Kind
    target: str
    for_ms: int = 0
    delay_ms: int = 0
    """Delay of a slow link, in ms."""

    @property
    def end_ms(self) -> int:
        """When it is undone."""
        return self.at_ms + self.for_ms


def draw(
    seed: int,
    seconds: float,
    targets: Sequence[str],
    kinds: Sequence[Kind],
    rest_s: float | None = None,
) -> tuple[Fault, ...]:
    """Draw the faults of a run of ``seconds``: all are undone when it ends. ``targets``:
    SERVICE/NAME of all processes. A kind without a target, such as a lost disk without a peer, does
    not happen. ``rest_s``: minimum time between two faults; None: they may overlap now and then.

    ``targets``: SERVICE/NAME of all that run. A kind without a target, such as a lost disk where
    there is no peer, does not happen. ``rest_s``: none follows another sooner; None: now and then
    one meets another.
    """
    choice = random.Random(seed)
    end_ms = int(seconds * 1_000)
    possible = [kind for kind in kinds if targets_of(kind, targets)]
    deck: list[Kind] = []
    faults: list[Fault] = []
    at_ms = int(choice.uniform(0, 2_000))
    elsewhere = ""
    while possible:
        if not deck:
            deck = _deck(choice, possible)
        kind = deck.pop()
        if kind in _ONCE:
            possible.remove(kind)
        others = [each for each in targets_of(kind, targets) if each != elsewhere]
        if not others:  # there is one broker: its next fault waits for the end of this one
            at_ms = max(each.end_ms for each in faults) + int(choice.uniform(*_HASTY_S) * 1_000)
        target = _target(choice, others or [elsewhere])
        lengths = [
            s * 1_000 for s in LENGTHS_S.get(kind, (0,)) if s <= seconds * LONGEST_SHARE
        ] or [int(seconds * 1_000 * LONGEST_SHARE)]
        fault = Fault(
            len(faults),
            at_ms,
            kind,
            target,
            choice.choice(lengths),
            choice.choice(_DELAYS_MS) if kind is Kind.SLOW else 0,
        )
        if fault.end_ms > end_ms:
            break
        faults.append(fault)
        chance = choice.random()
        company, hasty = _COMPANY_SHARE, _HASTY_SHARE
        if kind in OVERLOAD:
            company, hasty = _RUSH_COMPANY_SHARE, _RUSH_HASTY_SHARE
        elsewhere = ""
        if rest_s is not None:
            at_ms = fault.end_ms + int(choice.uniform(rest_s, rest_s + _REST_SPREAD_S) * 1_000)
        elif chance < company and fault.for_ms:
            at_ms, elsewhere = fault.at_ms + fault.for_ms // 2, target
        else:
            low, high = _HASTY_S if chance < company + hasty else _CALM_S
            at_ms = max(each.end_ms for each in faults) + int(choice.uniform(low, high) * 1_000)
    return tuple(faults)


def _deck(choice: random.Random, possible: Sequence[Kind]) -> list[Kind]:
    """Return each kind once, shuffled; before each a rush, if there may be any."""
    deck = list(possible)
    choice.shuffle(deck)
    others = [kind for kind in deck if kind not in OVERLOAD]
    if not others or len(others) == len(deck):
        return deck
    return [each for kind in others for each in (kind, Kind.RUSH)]  # dealt from the end


def targets_of(kind: Kind, targets: Sequence[str]) -> list[str]:
    """Return the targets that ``kind`` can happen to."""
    if kind in _OF_SERVER:
        return [each for each in targets if each == _OF_SERVER[kind]]
    services = [each for each in targets if service_of(each) not in _SERVERS]
    if kind in ELASTIC:
        return [each for each in services if _is_first_node(each)]
    if kind in OVERLOAD:
        return [each for each in services if service_of(each) == "ingestion"]
    return [
        each
        for each in services
        if kind not in _LOSE_DISK
        or has_peer(each, targets)
        or (kind is Kind.ZOMBIE and service_of(each) != "processing")
    ]


def service_of(target: str) -> str:
    """Return ``processing`` of ``processing/north.0``."""
    return target.partition("/")[0]


def has_peer(target: str, targets: Sequence[str]) -> bool:
    """Whether another node runs the same: chaos gives each stage as many replicas as any other."""
    participant = target.rpartition(".")[0]
    return service_of(target) == "processing" and any(
        each != target and each.rpartition(".")[0] == participant for each in targets
    )


def kinds_of(*, is_elastic: bool, is_overload: bool = False) -> tuple[Kind, ...]:
    """Return the kinds of faults of a run without a choice of its own."""
    without = (NOT_ELASTIC if is_elastic else ELASTIC) | (set() if is_overload else OVERLOAD)
    return tuple(kind for kind in Kind if kind not in without)


def _is_first_node(target: str) -> bool:
    """Whether it is a node with replica 0 of each stage, whose peers stay where they are."""
    return service_of(target) == "processing" and target.endswith(".0")


def _target(choice: random.Random, possible: Sequence[str]) -> str:
    """Every service as often as any other, however many processes it has."""
    service = choice.choice(sorted({service_of(each) for each in possible}))
    return choice.choice([each for each in possible if service_of(each) == service])
