"""Alarms about conditions that last: an alarm is raised when a condition begins, and not again
before it was over.

Theory of operation. A process reports in every heartbeat that it waits for its input, refuses one,
or has more rows than it can process; an output that is away sends none. So the manager receives the
same condition every second, and people need one alarm. It remembers which conditions last. A
manager that starts remembers none, and raises the alarms of those that last once more.

Invariants:
    AC1 a condition raises one alarm when it begins and none while it lasts. If it was over
        meanwhile, it raises another one.
    AC2 a source waits for its input, and a replica refuses one, while its heartbeats name that
        state.
    AC3 an overload lasts from the first forecast below ``ROOM_WARNED_MS`` until the replica has no
        branch: forecasts vary meanwhile.
    AC4 an output that is away (TM8 of ``protocol.control.trimming``) raises an alarm, and another
        one when it loses its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from anabranch.protocol.control.failure_detector import INGESTION_SERVICE, REPLICA_SERVICE
from anabranch.protocol.control.records import INPUT_MISSING, INPUT_REFUSED, Heartbeat
from anabranch.protocol.control.trimming import OutputAway

OVERLOAD_LASTS: Final = "overload_lasts"
"""Kind of an alarm: an overloaded stage soon cannot hold more of its input."""
OUTPUT_AWAY: Final = "output_away"
"""Kind of an alarm: an output has sent no heartbeat for long."""
ROOM_WARNED_MS: Final = 3_600_000
"""Time until an overloaded stage cannot hold more of its input, in ms, below which the manager
raises an alarm: long enough for a person to make room.
"""


class AlarmConditions:
    """Conditions that last, as far as one manager knows."""

    def __init__(self) -> None:
        """Start without any."""
        self._lasting: set[tuple[str, str, str]] = set()
        """(kind of the alarm, name, replica) of each condition of a process that lasts."""
        self._away: set[tuple[str, bool]] = set()
        """(output, whether it has lost its place) of each output that is away."""

    def begun(self, beat: Heartbeat) -> list[str]:
        """Return the kinds of the alarms to raise about the process that has just sent ``beat``
        (AC1-AC3).
        """
        shown = {(kind, beat.name, beat.replica): lasts for kind, lasts in _conditions(beat)}
        begun = [each for each, lasts in shown.items() if lasts and each not in self._lasting]
        self._lasting.difference_update(each for each, lasts in shown.items() if not lasts)
        self._lasting.update(begun)
        return [kind for kind, _, _ in begun]

    def newly_away(self, away: Collection[OutputAway]) -> list[OutputAway]:
        """Return those of the outputs that are ``away`` now to raise an alarm about (AC4)."""
        before, self._away = self._away, {_away(each) for each in away}
        return [each for each in away if _away(each) not in before]


def _conditions(beat: Heartbeat) -> Iterator[tuple[str, bool]]:
    """Yield each condition about which ``beat`` decides, as the kind of its alarm, and whether it
    lasts.
    """
    if beat.service == INGESTION_SERVICE:
        yield INPUT_MISSING, beat.state == INPUT_MISSING
    if beat.service == REPLICA_SERVICE:
        if beat.branch is None:
            yield OVERLOAD_LASTS, False
        elif beat.room_left_ms is not None and beat.room_left_ms < ROOM_WARNED_MS:
            yield OVERLOAD_LASTS, True
        yield INPUT_REFUSED, beat.state == INPUT_REFUSED


def _away(output: OutputAway) -> tuple[str, bool]:
    return output.output, not output.left_ms
