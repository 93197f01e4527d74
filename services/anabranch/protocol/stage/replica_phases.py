"""Phases of a failure that a replica goes through, and the events that are possible in each.

Theory of operation. The behaviour of a replica depends on two facts: whether it has a branch, and
whether its stable query has something to correct. Together they are its *phase*. A change of either
is an *event*. ``TRANSITIONS`` lists all possible pairs of the two. Any other pair is a bug in
``protocol.stage.replica`` with unknown consequences: the replica ends, and its next process begins
ALONE, from its durable state.

==========  ==========  ==========  ======================================================
phase       event       next        what it is
==========  ==========  ==========  ======================================================
ALONE       FORKED      BRANCHED    a wait is over, and what is missing is gone on without; or the
                                    stage itself is late
ALONE       ABANDONED   ALONE       no branch can begin
BRANCHED    CORRECTS    CORRECTING  the bucket at the hole is complete
BRANCHED    STANDS      BRANCHED    a wait is over at a later hole, or again at this one
BRANCHED    YIELDS      BRANCHED    the branch of an overloaded stage has the cores
BRANCHED    FORKED      BRANCHED    second fork: the stable query is the next branch
BRANCHED    CAUGHT_UP   ALONE       nothing was missing that the branch had gone on without
BRANCHED    ABANDONED   ALONE       the branch failed, or the next one cannot begin
CORRECTING  CORRECTS    CORRECTING  one bucket more
CORRECTING  STANDS      BRANCHED    the stable query came to another hole
CORRECTING  YIELDS      BRANCHED    the stage is overloaded: the branch has the cores
CORRECTING  CAUGHT_UP   ALONE       the failure is over
CORRECTING  ABANDONED   ALONE       the branch failed
==========  ==========  ==========  ======================================================

Invariants:
    RF1 only the events in ``TRANSITIONS`` happen to a replica.
    RF2 there is a branch in every phase except ALONE.
    RF3 a second fork happens only after the stable query has stopped at a hole: no correction is
        under way.
    RF4 the advertised state follows from the phase; in ALONE it is STABLE while results are in
        time, otherwise FAILURE.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import LocalProtocolError


class Phase(Enum):
    """Phase of a failure, for one replica."""

    ALONE = auto()
    """The stable query is the only one."""
    BRANCHED = auto()
    """The branch continues without some input, and the stable query waits for it, or for the cores
    of an overloaded stage.
    """
    CORRECTING = auto()
    """The branch continues, and the stable query runs the buckets that were missing."""


class PhaseChange(Enum):
    """Event that changes the phase of a replica, or happens within it."""

    FORKED = auto()
    """Fork: the stable query has become the branch, and its snapshot the stable query."""
    CORRECTS = auto()
    """Correction: the stable query runs a bucket beside a branch."""
    STANDS = auto()
    """Stop at a hole: the wait of the stable query beside a branch is over, and its next bucket is
    not complete.
    """
    YIELDS = auto()
    """Pause for the branch: the stable query leaves the cores to it, although its own next bucket
    is complete.
    """
    CAUGHT_UP = auto()
    """End of the failure: the branch is no longer needed."""
    ABANDONED = auto()
    """End without a branch: no further one is tried at this hole, since the branch failed or cannot
    begin.
    """


TRANSITIONS: Final[Mapping[Phase, Mapping[PhaseChange, Phase]]] = {
    Phase.ALONE: {PhaseChange.FORKED: Phase.BRANCHED, PhaseChange.ABANDONED: Phase.ALONE},
    Phase.BRANCHED: {
        PhaseChange.CORRECTS: Phase.CORRECTING,
        PhaseChange.STANDS: Phase.BRANCHED,
        PhaseChange.YIELDS: Phase.BRANCHED,
        PhaseChange.FORKED: Phase.BRANCHED,
        PhaseChange.CAUGHT_UP: Phase.ALONE,
        PhaseChange.ABANDONED: Phase.ALONE,
    },
    Phase.CORRECTING: {
        PhaseChange.CORRECTS: Phase.CORRECTING,
        PhaseChange.STANDS: Phase.BRANCHED,
        PhaseChange.YIELDS: Phase.BRANCHED,
        PhaseChange.CAUGHT_UP: Phase.ALONE,
        PhaseChange.ABANDONED: Phase.ALONE,
    },
}

_ADVERTISED: Final = {
    Phase.BRANCHED: ReplicaState.UP_FAILURE,
    Phase.CORRECTING: ReplicaState.STABILIZATION,
}


def next_phase(phase: Phase, event: PhaseChange) -> Phase:
    """Return the phase after ``event``.

    Raises:
        LocalProtocolError: ``event`` cannot happen in ``phase`` (RF1).
    """
    follows = TRANSITIONS[phase].get(event)
    if follows is None:
        message = f"event {event.name} cannot happen to a replica in phase {phase.name}"
        raise LocalProtocolError(message)
    return follows


def advertised(phase: Phase, *, in_time: bool) -> ReplicaState:
    """Return the state that heartbeats show to others (RF4). ``in_time``: whether results are in
    time.
    """
    return _ADVERTISED.get(phase, ReplicaState.STABLE if in_time else ReplicaState.FAILURE)
