"""The move of a replica away from its node, as the node tells the replica that it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OwnMove:
    """Access to the move of one replica. The replica's thread calls it."""

    goes_to: Callable[[], str] = lambda: ""
    """Node that has the replica's place, if this one may withdraw the move; empty: none."""
    withdraw: Callable[[str], None] = lambda _reason: None
    """Withdraw the move, for a reason. What cannot be recorded now is asked for again."""


NO_MOVE: Final = OwnMove()
