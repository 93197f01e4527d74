"""Intervals of the hash by which the rows of a keyed stage are divided among its shards.

Theory of operation. A row's key has a hash of ``HASH_BITS`` bits (``codec.shard_rows`` computes it
from the values of the key's columns alone). A shard takes the rows whose hash begins with its
*bits*: the shard without bits takes all rows, ``0`` and ``1`` take half of them each, ``00`` and
``01`` the halves of ``0``. An interval is only ever halved. So a split concerns one shard, and
every other keeps its rows, its state and its name. The bits are the shard's name, as it has no
other property: which rows a shard takes can be read from its name.

A stage begins with a power of two of shards, all of the same number of bits.

Invariants:
    IV1 a hash is in exactly one half of an interval that contains it, and in neither half of
        another.
    IV2 a hash is in two intervals only if one contains the other.
    IV3 each hash is in exactly one of the intervals with which a stage begins (``divided``);
        halving one of them preserves that.
    IV4 the names of shards are no names that a pipeline file can have, the name of the stage and
        the bits follow from each, and different intervals have different names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.protocol.limits import SHARDS_MAX

HASH_BITS: Final = 32
"""Number of bits of a hash. Its value is from 0 to 2 to the power of this, exclusive."""

KEY_HASH: Final = "row digest"
"""Name of the hash. Each epoch of a shard states it (BL16 of ``protocol.log.boundary_log``). A
change of the hash must change the name: a shard that continued would get keys without their state.
"""

BITS_MAX: Final = SHARDS_MAX - 1
"""Maximum number of bits of an interval: the longest that a stage of ``SHARDS_MAX`` shards can have
if always the same shard is halved.
"""

_DOT: Final = "."
"""Separator of the stage's name and the bits. No name in a pipeline file has one (IV4)."""


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Hashes that begin with the same bits. Disjoint intervals are sorted by their hashes."""

    bits: str = ""
    """Leading bits as ``0`` and ``1``, the highest one first; at most ``BITS_MAX``."""

    def __post_init__(self) -> None:
        """Check the bits, and raise ValueError if they are none or too many."""
        if len(self.bits) > BITS_MAX or self.bits.strip("01"):
            raise ValueError(f"an interval has at most {BITS_MAX} bits 0 or 1, not {self.bits!r}")

    @property
    def prefix(self) -> int:
        """Value of the bits as a number; 0 without bits."""
        return int(self.bits or "0", 2)

    @property
    def shift(self) -> int:
        """Number of low bits of a hash that do not matter."""
        return HASH_BITS - len(self.bits)

    @property
    def begins(self) -> int:
        """Least hash of the interval."""
        return self.prefix << self.shift

    @property
    def ends(self) -> int:
        """First hash after the interval."""
        return (self.prefix + 1) << self.shift

    def halves(self) -> tuple[Interval, Interval]:
        """Return the lower and the upper half (IV1)."""
        return Interval(self.bits + "0"), Interval(self.bits + "1")

    def has(self, value: int) -> bool:
        """Return whether ``value``, a hash without sign, is in the interval."""
        return value >> self.shift == self.prefix

    def contains(self, other: Interval) -> bool:
        """Return whether every hash of ``other`` is in this interval."""
        return other.bits.startswith(self.bits)

    def name(self, stage: str) -> str:
        """Return the name of the shard of ``stage`` that takes this interval (IV4)."""
        return f"{stage}{_DOT}{self.bits}" if self.bits else stage


def interval_of(shard: str) -> Interval:
    """Return the interval of the shard named ``shard`` (IV4)."""
    return Interval(shard.partition(_DOT)[2])


def stage_of(shard: str) -> str:
    """Return the stage of the shard named ``shard`` (IV4)."""
    return shard.partition(_DOT)[0]


def divided(count: int) -> list[Interval]:
    """Return ``count`` intervals of the same length that divide all rows, in order (IV3).
    ``count``: a power of two, at most ``SHARDS_MAX``.
    """
    found = [Interval()]
    while len(found) < count:
        found = [half for each in found for half in each.halves()]
    return found


def is_power_of_two(count: int) -> bool:
    """Return whether a stage can begin with ``count`` shards; ``count`` is at least 1."""
    return count & (count - 1) == 0
