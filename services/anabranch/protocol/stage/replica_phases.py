"""In which phase of a failure is a replica, and what may happen in it?

Theory of operation. What a replica does hangs on two facts: whether it has a branch, and whether
its stable query has something to correct. Together they are its *phase*. Whatever changes them is
an *event*. ``TRANSITIONS`` names all pairs of the two that there can be. What is not in it would be
a mistake in ``protocol.stage.replica``, of which nobody knows where it leads: the replica ends, and
its next process begins ALONE, from what is durable.

==========  ==========  ==========  ======================================================
phase       event       next        what it is
==========  ==========  ==========  ======================================================
ALONE       FORKED      BRANCHED    a wait is over, and what is missing is gone on without
ALONE       ABANDONED   ALONE       no branch can begin
BRANCHED    CORRECTS    CORRECTING  the bucket at the hole is complete
BRANCHED    STANDS      BRANCHED    a wait is over at a later hole, or again at this one
BRANCHED    FORKED      BRANCHED    second fork: the stable query is the next branch
BRANCHED    CAUGHT_UP   ALONE       nothing was missing that the branch had gone on without
BRANCHED    ABANDONED   ALONE       the branch failed, or the next one cannot begin
CORRECTING  CORRECTS    CORRECTING  one bucket more
CORRECTING  STANDS      BRANCHED    the stable query came to another hole
CORRECTING  CAUGHT_UP   ALONE       the failure is over
CORRECTING  ABANDONED   ALONE       the branch failed
==========  ==========  ==========  ======================================================

Invariants:
    RF1 nothing happens to a replica but what ``TRANSITIONS`` has.
    RF2 there is a branch in every phase but ALONE.
    RF3 who forks a second time has come to stand at a hole before: no correction is under way.
    RF4 what is advertised follows from the phase; ALONE it is STABLE while results are in time, and
        FAILURE else.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import LocalProtocolError


class Phase(Enum):
    """Of a failure, as one replica goes through it."""

    ALONE = auto()
    """The stable query is the only one."""
    BRANCHED = auto()
    """The branch goes on without some input, and the stable query waits for it."""
    CORRECTING = auto()
    """The branch goes on, and the stable query runs what was missing."""


class Event(Enum):
    """What changes the phase."""

    FORKED = auto()
    """The stable query has become the branch, its snapshot the stable query."""
    CORRECTS = auto()
    """The stable query has a bucket beside a branch."""
    STANDS = auto()
    """The wait of the stable query beside a branch is over, and its bucket is not complete."""
    CAUGHT_UP = auto()
    """The branch is not needed any more."""
    ABANDONED = auto()
    """There will be no branch at this hole: it failed, or cannot begin."""


TRANSITIONS: Final[Mapping[Phase, Mapping[Event, Phase]]] = {
    Phase.ALONE: {Event.FORKED: Phase.BRANCHED, Event.ABANDONED: Phase.ALONE},
    Phase.BRANCHED: {
        Event.CORRECTS: Phase.CORRECTING,
        Event.STANDS: Phase.BRANCHED,
        Event.FORKED: Phase.BRANCHED,
        Event.CAUGHT_UP: Phase.ALONE,
        Event.ABANDONED: Phase.ALONE,
    },
    Phase.CORRECTING: {
        Event.CORRECTS: Phase.CORRECTING,
        Event.STANDS: Phase.BRANCHED,
        Event.CAUGHT_UP: Phase.ALONE,
        Event.ABANDONED: Phase.ALONE,
    },
}

_ADVERTISED: Final = {
    Phase.BRANCHED: ReplicaState.UP_FAILURE,
    Phase.CORRECTING: ReplicaState.STABILIZATION,
}


def next_phase(phase: Phase, event: Event) -> Phase:
    """The phase after ``event``.

    Raises:
        LocalProtocolError: it cannot happen in ``phase`` (RF1).
    """
    follows = TRANSITIONS[phase].get(event)
    if follows is None:
        message = f"a replica that is {phase.name} cannot come to {event.name}"
        raise LocalProtocolError(message)
    return follows


def advertised(phase: Phase, *, in_time: bool) -> ReplicaState:
    """The state that heartbeats show to others (RF4). ``in_time``: its results are."""
    return _ADVERTISED.get(phase, ReplicaState.STABLE if in_time else ReplicaState.FAILURE)
