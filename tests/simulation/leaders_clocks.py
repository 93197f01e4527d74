"""Clocks of the leaders of input partitions, where event time is the arrival: a new leader has
another clock, and dates what arrives by it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

    from simulation.options import Options

KIND: Final = "another leader"
"""Fault: from now on the clock of the partition's leader is wrong by its value, in ms."""
STAYS_WRONG_MS: Final = 300
"""A clock that is further behind or in front is right with healing: as long as partitions are
further apart than a stage waits, its results stay tentative.
"""
_FAR_MS: Final = 3_600_000
_FAR_BEHIND_MS: Final = -900_000
"""Largest error behind with which a timestamp is still one."""
_NEAR_MS: Final = (-2_000, -300, 0, 0, 300, 2_000)


def target(source: str, partition: int) -> str:
    """Return the target of a fault of the partition's leader."""
    return f"in.{source}[{partition}]"


def place(of: str) -> tuple[str, int]:
    """Return the topic and the partition of a fault's target."""
    found = re.fullmatch(r"(.+)\[(\d+)\]", of)
    assert found is not None
    return found[1], int(found[2])


def displacement_ms(options: Options, rng: random.Random) -> int:
    """Draw by how much a leader's clock is wrong: far in front only where a limit bounds it."""
    far_ms = [_FAR_BEHIND_MS] if options.max_ahead_ms is None else [_FAR_BEHIND_MS, _FAR_MS]
    return rng.choice([*_NEAR_MS, *far_ms])


def is_beyond(displaced_ms: int) -> bool:
    """Whether a record with such a displacement arrives beyond every limit."""
    return displaced_ms >= _FAR_MS
