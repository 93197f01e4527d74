"""Schema ids that a registry does not have: when to ask for one again.

Theory of operation. A registry may learn an id after records with it have arrived: a producer's
registry is copied to the one that is asked, or is restored. So that an id is unknown is never
final. Records that come meanwhile are dead letters, and each batch with such a record would ask: so
after each answer the next question waits, twice as long each time. Where the registry does not
answer nothing is known, and nothing becomes a dead letter: the caller's error ends the attempt.

Invariants:
    UK1 an unknown id is asked for again after ASK_AGAIN_MAX_MS at the latest, if records with it
        come.
    UK2 between two questions for one id lie at least ASK_AGAIN_FIRST_MS, unless UNKNOWN_MAX others
        were answered between them.
    UK3 at most UNKNOWN_MAX ids are remembered. The one whose answer is oldest is forgotten first:
        whoever may write a topic can make up no end of ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ASK_AGAIN_FIRST_MS: Final = 1_000
"""Pause before the second question for an unknown id, in ms: a registry that is copied to learns an
id within a second.
"""

ASK_AGAIN_MAX_MS: Final = 60_000
"""Longest pause between two questions for one unknown id, in ms: bounds what becomes a dead letter
after the registry has learned it.
"""

UNKNOWN_MAX: Final = 1_000
"""Number of unknown ids that are remembered (UK3): more than producers use at a time."""


@dataclass(slots=True)
class _Unknown:
    """Id that the registry does not have."""

    why: str
    pause_ms: int
    ask_ms: int


class SchemaLookups:
    """Unknown ids of one registry, numbers or GUIDs. Times are of a monotonic clock, in ms. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._unknown: dict[int | str, _Unknown] = {}

    def answered_lately(self, schema_id: int | str, now_ms: int) -> str:
        """Return why ``schema_id`` is unknown; empty: it is to be asked for now."""
        known = self._unknown.get(schema_id)
        return "" if known is None or now_ms >= known.ask_ms else known.why

    def unknown(self, schema_id: int | str, why: str, now_ms: int) -> int:
        """Remember that the registry does not have ``schema_id``. Return the pause until it is
        asked again, in ms.
        """
        before = self._unknown.pop(schema_id, None)
        pause_ms = (
            ASK_AGAIN_FIRST_MS if before is None else min(2 * before.pause_ms, ASK_AGAIN_MAX_MS)
        )
        # Behind all others: the order of the mapping is that of the answers (UK3).
        self._unknown[schema_id] = _Unknown(why, pause_ms, now_ms + pause_ms)
        if len(self._unknown) > UNKNOWN_MAX:
            del self._unknown[next(iter(self._unknown))]
        return pause_ms

    def found(self, schema_id: int | str) -> bool:
        """Forget that ``schema_id`` was unknown; whether it was."""
        return self._unknown.pop(schema_id, None) is not None
