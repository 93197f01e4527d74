"""Fencing of a process that its peers contradict: which one must end, and how that is proven.

Theory of operation. If two replicas have different digests of a bucket, one of them is wrong, and
nothing says which: the first record in the log stands, and a person is notified. If three or more
replicas closed the bucket by the same plan, those that a majority contradicts are taken to be
wrong, and their state with them. A fence names their processes. It names an epoch, so it does not
apply to a process that was started again, from a copy of a peer or after a repair. The next process
reads all fences there ever were before it looks for a checkpoint: it cannot use what a fenced
process left (``protocol.log.timeline``, TI8), even if that process died before it heard of its
fence. A process that began before the fence was written continues from that state, and is outvoted
and fenced in its turn.

A fence is not believed. It carries the votes: what each replica made of the bucket. A process that
hears of its fence, one that looks for a checkpoint, and the manager that checks whether it has
written the fence already, count them by the rule by which they were cast, and compare them with the
stage's boundary log. If the log no longer names the bucket, only the rule is left: fences outlive
the log, and who rejected one for that would go on from a wrong state after a long absence.

Invariants:
    EF1 no replica is fenced twice for what one process made, over restarts of the manager too:
        reading the logs again gives the same fences.
    EF2 no replica is fenced unless at least three replicas closed the bucket and more than half of
        them agree on something else; a fence that does not prove it is of no effect.
    EF3 fencing needs the manager and nothing else needs fencing: what stands in the log stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from anabranch.protocol.control.records import Fence, Vote
from anabranch.protocol.log.boundary_log import LogState, contents

VOTERS_MIN: Final = 3
"""Fewer have no majority that leaves somebody over."""


def outvoted(votes: Mapping[str, Hashable]) -> tuple[str, ...]:
    """Return the replicas that a majority contradicts, by id (EF2). ``votes``: what each replica
    made of one bucket.
    """
    if len(votes) < VOTERS_MIN:
        return ()
    ((stated, count),) = Counter(votes.values()).most_common(1)
    return (
        tuple(sorted(r for r, vote in votes.items() if vote != stated))
        if 2 * count > len(votes)
        else ()
    )


def is_proven(fence: Fence, log_state: LogState) -> bool:
    """Return whether the votes of ``fence`` outvote the process that it names, and ``log_state``
    contradicts none of them. ``log_state``: state of the stage's log, read to its end after the
    fence was.
    """
    votes = {vote.replica: vote for vote in fence.votes}
    own = votes.get(fence.replica)
    if own is None or len(votes) < len(fence.votes):
        return False
    if not own.epoch <= fence.epoch <= _newest(log_state, fence.replica):
        return False
    if any(_is_contradicted(vote, fence.bucket, log_state) for vote in fence.votes):
        return False
    return fence.replica in outvoted({r: (vote.rows, vote.digest) for r, vote in votes.items()})


def _newest(log_state: LogState, replica: str) -> int:
    """Return the newest epoch of a replica; -1: it is none, or has never begun."""
    epoch = log_state.epoch(replica) if replica in log_state.writers else None
    return -1 if epoch is None else epoch


def _is_contradicted(vote: Vote, bucket: int, log_state: LogState) -> bool:
    if vote.epoch > _newest(log_state, vote.replica):
        return True
    if not 0 < bucket <= log_state.closed(vote.replica):
        return True
    parts = log_state.replica_bucket(vote.replica, bucket)
    if parts is None or log_state.recomputed_after(bucket - 1):
        return False  # forgotten, or named once more and not as this writer's
    return contents(parts) != (vote.rows, vote.digest)


def fenced_epochs(fences: Iterable[Fence], log_state: LogState) -> dict[str, int]:
    """Return the newest fenced epoch of each replica of a stage that was fenced.

    Args:
        fences: Fences against replicas of the stage, in any order.
        log_state: State of the stage's log, as for ``is_proven``.
    """
    found: dict[str, int] = {}
    for fence in fences:
        if is_proven(fence, log_state):
            found[fence.replica] = max(fence.epoch, found.get(fence.replica, fence.epoch))
    return found


class FenceBook:
    """Processes that were fenced already."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], set[Fence]] = {}

    def known(self, fence: Fence) -> None:
        """Note a fence that is in the topic, whether it proves anything or not."""
        self._known.setdefault((fence.stage, fence.replica), set()).add(fence)

    def is_new(self, fence: Fence, log_state: LogState) -> bool:
        """Return whether to write ``fence``; from then on it is known. False if the replica was
        fenced in an epoch not older than that of the process that made the bucket (EF1).
        """
        made = max((v.epoch for v in fence.votes if v.replica == fence.replica), default=-1)
        known = self._known.get((fence.stage, fence.replica), ())
        if any(each.epoch >= made and is_proven(each, log_state) for each in known):
            return False
        self.known(fence)
        return True
