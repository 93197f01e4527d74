"""What state a source, a replica or an output is in, as a word and as a tone: whoever sees no
colours reads the same.
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
    """How a state is coloured, from what needs nobody to what needs somebody."""

    GOOD = "good"
    OFF = "off"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class State:
    """A state in a word or two."""

    tone: Tone
    word: str


NOT_HEARD: Final = State(Tone.OFF, "not heard")
GONE: Final = State(Tone.BAD, "silent")
_RANKS: Final = {tone: rank for rank, tone in enumerate(Tone)}


def replica_state(beat: Heartbeat | None) -> State:
    """Of a replica of a stage. ``beat``: its last heartbeat; None: it was never heard."""
    if beat is None:
        return NOT_HEARD
    if beat.state == "ended":
        return State(Tone.OFF, "ended")
    match ReplicaState.heard(beat.replica_state):
        case ReplicaState.STABLE:
            return State(Tone.GOOD, "STABLE")
        case ReplicaState.UP_FAILURE:
            return State(Tone.WARN, "UP_FAILURE")
        case ReplicaState.STABILIZATION:
            return State(Tone.BUSY, "STABILIZATION")
        case ReplicaState.FAILURE:
            return State(Tone.BAD, "FAILURE" if beat.replica_state else "starting")


def process_state(beat: Heartbeat | None) -> State:
    """Of an ingestion or a delivery."""
    if beat is None:
        return NOT_HEARD
    match beat.state:
        case "running":
            return State(Tone.GOOD, "running")
        case "waiting" | "standby":
            return State(Tone.GOOD, beat.state)
        case "ended" | "stopping":
            return State(Tone.OFF, beat.state)
        case "failed":
            return State(Tone.BAD, "failed")
        case other:
            return State(Tone.BUSY, other)


def of_replicas(states: Iterable[State]) -> State:
    """Of a stage: the best of its replicas is who is read."""
    return min(states, key=lambda each: _RANKS[each.tone], default=NOT_HEARD)
