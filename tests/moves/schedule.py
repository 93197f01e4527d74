"""Schedule of kills, drawn from a seed: which process dies in which movement, and when. No input or
output.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar


class Party(StrEnum):
    """Process that can be killed, as the table names it."""

    BUYERS_NODE = "buyer's node"
    SELLERS_NODE = "seller's node"
    BUYERS_AGENT = "buyer's agent"
    SELLERS_AGENT = "seller's agent"
    BUYERS_BROKER = "buyer's contract broker"
    SELLERS_BROKER = "seller's contract broker"
    KAFKA = "Kafka"


class Moment(StrEnum):
    """State of a movement from which the wait for the kill begins."""

    LOAD = "load changes"
    ORDERED = "move ordered"
    BEGUN = "new node begins"
    RECORDED = "in the ledger"


class Kill(NamedTuple):
    """In movement ``number``, which counts from 1: ``delay_ms`` after ``moment``."""

    number: int
    party: Party
    moment: Moment
    delay_ms: int


DELAY_MS_MAX: Final = 3_000
LOAD_DELAY_MS_MAX: Final = 10_000
"""After the load has changed: so long it takes about until the stage is sold or recalled."""

T = TypeVar("T")


def draw(seed: int, moves: int, parties: Sequence[Party] = tuple(Party)) -> list[Kill]:
    """One kill for each movement. Parties and moments each come from a shuffled deck of their own,
    so none is rare in a long run.
    """
    choice = random.Random(seed)
    whom, when = _Deck(choice, parties), _Deck(choice, tuple(Moment))
    kills = []
    for number in range(1, moves + 1):
        party, moment = whom.next(), when.next()
        longest_ms = LOAD_DELAY_MS_MAX if moment is Moment.LOAD else DELAY_MS_MAX
        kills.append(Kill(number, party, moment, choice.randrange(longest_ms)))
    return kills


class _Deck(Generic[T]):
    def __init__(self, choice: random.Random, cards: Sequence[T]) -> None:
        self._choice, self._cards = choice, cards
        self._left: list[T] = []

    def next(self) -> T:
        if not self._left:
            self._left = list(self._cards)
            self._choice.shuffle(self._left)
        return self._left.pop()
