"""History of a run: a list of plain facts, and its hash. Two runs of one seed must have the
same.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

Fact = str | int | bool | None


class Event(NamedTuple):
    """One fact. ``at_ms`` is virtual time; ``who`` a process (``delivery/out#2``) or ``world``."""

    at_ms: int
    who: str
    what: str
    facts: tuple[Fact, ...]

    def __str__(self) -> str:
        return f"{self.at_ms:>7} {self.who:<22} {self.what:<10} {' '.join(map(str, self.facts))}"


class History:
    """Events in their order. ``probes`` count what was reached: fault kinds, ways to recover,
    rows of tables.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._earlier: list[Event] = []
        """Events of an earlier life, which no checker reads."""
        self.probes: Counter[str] = Counter()

    def add(self, at_ms: int, who: str, what: str, *facts: Fact) -> None:
        """Add the fact that ``what`` happened."""
        self.events.append(Event(at_ms, who, what, facts))

    def begin_anew(self, deleted: Collection[str]) -> None:
        """Hide the events so far from the checkers, but for what was appended to topics that are
        not ``deleted``. The hash and the transcript keep all.
        """
        self._earlier += self.events
        self.events = [
            event
            for event in self.events
            if event.what == "append" and event.facts[0] not in deleted
        ]

    def reached(self, probe: str) -> None:
        """Count a place that good seeds reach."""
        self.probes[probe] += 1

    def digest(self) -> str:
        """Hash of everything that happened, probes included."""
        total = hashlib.blake2b(digest_size=16)
        for event in (*self._earlier, *self.events):
            total.update(repr(tuple(event)).encode())
        total.update(repr(sorted(self.probes.items())).encode())
        return total.hexdigest()

    def transcript(self, last: int = 200) -> str:
        """Return the last events, one a line."""
        return "\n".join(str(event) for event in [*self._earlier, *self.events][-last:])


def short(value: bytes | None) -> str:
    """Return a few digits that tell values apart."""
    return "none" if value is None else hashlib.blake2b(value, digest_size=5).hexdigest()
