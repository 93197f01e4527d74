"""When a tentative bucket is shown although a stable one may be about to come.

Theory of operation. After a failure the replicas of a stage correct one after the other. One that
is done says STABLE and makes stable buckets while a peer's branch still makes tentative ones of the
same input, often a moment earlier. Shown at once, they would begin a new failure on the live topic,
with an undo, that is none. So while a peer says STABLE a tentative bucket is held back, but not for
long: what a replica says of itself decides about this much time, never about a record.

How long depends on how much of its delay the bucket has used. The first bucket of a new branch has
had the stage's whole first wait, so little is left: ``LIVE_HOLD_MS``. A branch that ran already
when the end of its failure was told takes later buckets after the short wait; for those the
difference between the waits is left, and while the topic stands outside a failure they may be held
for it: if the input is missing again, the stable peer forks after its own first wait, which is no
later.

Which branches ran is remembered in memory only. After a restart of delivery every branch is taken
for a new one. The other way round a branch that began between the last correction and the telling
of the end is taken for an old one, though its first bucket has had the long wait: it is held until
the peer forks, whose wait began with the same sign.

Invariants:
    LH1 nothing is held while no peer says STABLE.
    LH2 a bucket is held for at most ``LIVE_HOLD_MS`` from when it could first be shown; one of a
        branch whose failure is over, outside a failure, for at most what the stage's later wait is
        shorter than its first one, if that is more.
    LH3 so a later bucket is not shown later than a first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.protocol.control.replica_states import ReplicaState
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.limits import LIVE_HOLD_MS
from anabranch.protocol.log.records import BranchNumber
from anabranch.protocol.stage.availability import BucketTimers, Policy, Waits


@dataclass(frozen=True, slots=True)
class Offer:
    """Tentative buckets of a replica that could be shown."""

    replica: str
    branch: BranchNumber | None
    """The newest one of the replica; None: not known."""
    first: int
    last: int


class Hold:
    """Of one output. ``now_ms`` is monotonic."""

    def __init__(self, waits: Waits, policy: Policy) -> None:
        """``waits`` and ``policy`` of the stage that makes the output."""
        saved_ms = waits.first_ms - waits.next_ms if policy is Policy.PROCESS else 0
        self._long_ms = max(LIVE_HOLD_MS, saved_ms)
        self._over: dict[str, BranchNumber] = {}
        """Per replica: its branches up to this one were for failures that are over."""
        self._offered = BucketTimers()
        """The timer of bucket n started when bucket n - 1 could first be shown."""

    def failure_ended(self, branches: Mapping[str, BranchNumber | None]) -> None:
        """The end of a failure was told. ``branches``: the newest one of each replica; None:
        it never had one.
        """
        self._over = {replica: number for replica, number in branches.items() if number is not None}

    def left_ms(
        self, offer: Offer, states: Mapping[str, ReplicaState], now_ms: int, *, failing: bool
    ) -> int:
        """How long to wait with what is offered; 0: show it.

        Args:
            offer: What could be shown.
            states: What each replica says of itself.
            now_ms: Now.
            failing: A failure is shown: more of it begins none.

        Raises:
            LocalProtocolError: nothing is offered.
        """
        self._offered.observe(now_ms, offer.last)
        self._offered.forget(offer.first)
        since_ms = self._offered.started(offer.first + 1)
        if since_ms is None:
            message = (
                f"tentative buckets {offer.first}..{offer.last} of {offer.replica} are none to be"
                " held"
            )
            raise LocalProtocolError(message)
        if not any(
            state is ReplicaState.STABLE
            for replica, state in states.items()
            if replica != offer.replica
        ):
            return 0
        newest_over = self._over.get(offer.replica)
        is_over = (
            newest_over is not None and offer.branch is not None and offer.branch <= newest_over
        )
        hold_ms = self._long_ms if is_over and not failing else LIVE_HOLD_MS
        return max(0, since_ms + hold_ms - now_ms)
