"""The price of one movement, inside the bound of its contract.

Theory of operation. The buyer bids at most what keeping the task costs it, the seller asks at least
what taking it costs, both inside the bound. Where the bid reaches the ask there is a trade, at a
price between them. The seller settles the price, since it knows its own ask and the offer has the
bid. How the gain is split decides who has the money, not who runs what. At delta 0 there is one
price, and nothing to compare: a trade takes place if the buyer saves more and the seller spends
less than it. Everything is whole numbers, and comparisons multiply instead of dividing.

Invariants:
    FP1  a price is within the bound.
    FP2  both gain: the buyer saves more than it pays, and the seller is paid more than it spends.
        So the total cost falls with every trade.
    FP3  where a price exists for which FP1 and FP2 hold, bid and ask find one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

PERMILLE: Final = 1_000


class GainSplit(StrEnum):
    """Division of the gain of a trade between buyer and seller."""

    SELLER = "seller"
    """The price is the bid."""
    BUYER = "buyer"
    """The price is the ask."""
    HALVES = "halves"
    """The price is in the middle, rounded in favour of the buyer."""


class Bound(NamedTuple):
    """Lowest and highest price of a unit of load per second."""

    floor: int
    ceiling: int

    @property
    def is_fixed(self) -> bool:
        """Whether the bound allows one price only."""
        return self.floor == self.ceiling


def bid(bound: Bound, units: int, kept_micro: int) -> int | None:
    """Return the highest price at which handing over ``units`` is still a gain if keeping them
    costs ``kept_micro`` per second; None if there is no such price.
    """
    if bound.is_fixed:
        return bound.ceiling if kept_micro > bound.ceiling * units else None
    highest = min(bound.ceiling, (kept_micro - 1) // units)
    return highest if highest >= bound.floor else None


def ask(bound: Bound, units: int, taken_micro: int) -> int | None:
    """Return the lowest price at which taking ``units`` is a gain if they cost ``taken_micro`` per
    second; None if there is no such price.
    """
    if bound.is_fixed:
        return bound.ceiling if taken_micro < bound.ceiling * units else None
    lowest = max(bound.floor, taken_micro // units + 1)
    return lowest if lowest <= bound.ceiling else None


def settled(
    bound: Bound, highest: int, lowest: int, split: GainSplit = GainSplit.HALVES
) -> int | None:
    """Return the price of a trade between a bid and an ask; None if the bid does not reach the ask,
    or is no price of this contract (FP1).
    """
    if not bound.floor <= lowest <= highest <= bound.ceiling:
        return None
    if bound.is_fixed:
        return bound.ceiling
    return {
        GainSplit.SELLER: highest,
        GainSplit.BUYER: lowest,
        GainSplit.HALVES: (highest + lowest) // 2,
    }[split]


def gains_enough(highest: int, units: int, taken_micro: int, margin_permille: int) -> bool:
    """Return whether the bid is above the seller's cost by the margin, which keeps small gains from
    causing movements.
    """
    return highest * units * PERMILLE >= taken_micro * (PERMILLE + margin_permille)
