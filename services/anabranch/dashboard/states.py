"""States of sources, replicas and outputs on the page, each as a word and a tone. The word says the
same as the tone's colour, for readers who do not see colours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from anabranch.protocol.control.records import ReplicaState

if TYPE_CHECKING:
    from anabranch.protocol.control.records import Heartbeat


class Tone(StrEnum):
    """Colour class of a state, in ascending order of the attention that it needs."""

    GOOD = "good"
    OFF = "off"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class State:
    """State of a process, replica or stage, as the page shows it."""

    tone: Tone
    word: str


NO_HEARTBEAT: Final = State(Tone.OFF, "not heard")
"""State of what has sent no heartbeat since the page began."""
GONE: Final = State(Tone.BAD, "silent")
"""State of what has sent heartbeats, and sends none any more."""
_RANKS: Final = {tone: rank for rank, tone in enumerate(Tone)}


def replica_state(heartbeat: Heartbeat | None) -> State:
    """Return the state of a stage's replica by its last heartbeat; None: it has sent none."""
    if heartbeat is None:
        return NO_HEARTBEAT
    if heartbeat.state == "ended":
        return State(Tone.OFF, "ended")
    match ReplicaState.parse(heartbeat.replica_state):
        case ReplicaState.STABLE:
            return State(Tone.GOOD, "STABLE")
        case ReplicaState.UP_FAILURE:
            return State(Tone.WARN, "UP_FAILURE")
        case ReplicaState.STABILIZATION:
            return State(Tone.BUSY, "STABILIZATION")
        case ReplicaState.FAILURE:
            return State(Tone.BAD, "FAILURE" if heartbeat.replica_state else "starting")


def process_state(heartbeat: Heartbeat | None) -> State:
    """Return the state of an ingestion or delivery by its last heartbeat; None: it sent none."""
    if heartbeat is None:
        return NO_HEARTBEAT
    match heartbeat.state:
        case "running":
            return State(Tone.GOOD, "running")
        case "waiting" | "standby":
            return State(Tone.GOOD, heartbeat.state)
        case "ended" | "stopping":
            return State(Tone.OFF, heartbeat.state)
        case "failed":
            return State(Tone.BAD, "failed")
        case other:
            return State(Tone.BUSY, other)


def stage_state(states: Iterable[State]) -> State:
    """Return the state of a stage: the best of its replicas' states, since readers take the results
    of any replica.
    """
    return min(states, key=lambda each: _RANKS[each.tone], default=NO_HEARTBEAT)
