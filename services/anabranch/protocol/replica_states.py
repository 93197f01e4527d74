"""The states of a replica, as it says them of itself and as others see it (DPC's node states)."""

from __future__ import annotations

from enum import StrEnum


class ReplicaState(StrEnum):
    """What a replica does, and so what may be expected of its stream. The values are what stands in heartbeats.

    A replica never says FAILURE of itself: it is what others take it for while they do not hear it, or hear only that it is starting.
    """

    STABLE = "stable"
    """All its input is complete: what it closes is final."""
    UP_FAILURE = "up_failure"
    """Input is missing: a branch makes tentative buckets."""
    STABILIZATION = "stabilization"
    """The missing input is there: the successor makes the corrections."""
    FAILURE = "failure"

    @classmethod
    def heard(cls, text: str) -> ReplicaState:
        """The state that a heartbeat names; a starting replica (empty text), or an unknown word, is FAILURE to others."""
        try:
            return cls(text)
        except ValueError:
            return cls.FAILURE
