"""When a tentative bucket is shown although a stable one may be about to come.

Theory of operation. After a failure the replicas of a stage correct one after the other. One that is done says STABLE and makes stable buckets
while a sibling's branch still makes tentative ones of the same input, often a moment earlier. Shown at once, they would begin a new failure on
the live topic, with an undo, that is none. So while a sibling says STABLE a tentative bucket is held back, but only for ``LIVE_HOLD_MS``: what a
replica says of itself decides about this much time, never about a tuple.

Invariants:
    H1  nothing is held while no sibling says STABLE.
    H2  a bucket is held for at most ``LIVE_HOLD_MS`` from when it could first be shown.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.protocol.limits import LIVE_HOLD_MS
from anabranch.protocol.replica_states import ReplicaState


class Hold:
    """Of one output. ``now_ms`` is monotonic."""

    def __init__(self) -> None:
        self._bucket, self._since_ms = 0, 0

    def left_ms(self, chosen: str, states: Mapping[str, ReplicaState], bucket: int, now_ms: int) -> int:
        """How long to wait with tentative buckets of ``chosen``, of which ``bucket`` is the first; 0: show them."""
        if bucket != self._bucket:
            self._bucket, self._since_ms = bucket, now_ms
        if not any(state is ReplicaState.STABLE for replica, state in states.items() if replica != chosen):
            return 0
        return max(0, self._since_ms + LIVE_HOLD_MS - now_ms)
