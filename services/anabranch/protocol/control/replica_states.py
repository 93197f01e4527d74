"""The states of a replica, as it says them of itself and as others see it (DPC's node states)."""

from __future__ import annotations

from enum import StrEnum


class ReplicaState(StrEnum):
    """What a replica does, and so what may be expected of its stream. The values are what stands in
    heartbeats.

    Others take a replica for FAILURE, too, while they do not hear it, or hear only that it is
    starting.
    """

    STABLE = "stable"
    """It has caught up with its input, and closes what comes in time: stable."""
    UP_FAILURE = "up_failure"
    """Input is missing: a branch makes tentative buckets."""
    STABILIZATION = "stabilization"
    """The missing input is there: the successor makes the corrections."""
    FAILURE = "failure"
    """It gives no results in time: it has not caught up since it began, was paused or fell
    behind, or waits without a branch.
    """

    @classmethod
    def heard(cls, text: str) -> ReplicaState:
        """The state that a heartbeat names; a starting replica (empty text), or an unknown
        word, is FAILURE to others.
        """
        try:
            return cls(text)
        except ValueError:
            return cls.FAILURE
