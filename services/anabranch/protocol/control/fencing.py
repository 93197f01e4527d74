"""Fencing of replicas whose results the majority of their peers contradicts: which processes must
end, and how every reader of a fence checks that it is justified.

Theory of operation. If two replicas have different digests of a bucket, one of them is wrong, and
nothing shows which: the first record in the log counts, and a person is notified. If three or more
replicas closed the bucket by the same plan, those that a majority contradicts are taken to be
wrong, and their state with them. The manager then writes a fence for each of their processes into
the control topic. A fence names a replica and an epoch, so it does not apply to a later process of
the replica, which starts from a copy of a peer or after a repair. Such a process reads all fences
before it chooses a checkpoint, and uses none that a fenced process wrote
(``protocol.log.timeline``, TI8). That holds even if the fenced process died before it read its
fence. A process that began before the fence was written may have used such a checkpoint; its
results are contradicted in turn, and it is fenced as well.

No reader trusts a fence. A fence carries the votes: the digest of the bucket by each replica. Its
readers are the fenced process, a process that chooses a checkpoint, and the manager, which checks
whether the fence is written already. Each of them counts the votes by the rule of ``outvoted`` and
compares them with the stage's boundary log. If trimming has removed the bucket from the log, the
votes alone decide. To reject the fence would be wrong: a replica that was away for long would
continue from its wrong state.

Invariants:
    EF1 no replica is fenced twice for the results of one process, over restarts of the manager too:
        reading the logs again gives the same fences.
    EF2 no replica is fenced unless at least three replicas closed the bucket and more than half of
        them agree on something else; a fence whose votes do not prove that has no effect.
    EF3 fencing needs the manager, and nothing else needs fencing: records in the log are not
        changed by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from anabranch.protocol.control.records import Fence, Vote
from anabranch.protocol.log.boundary_log import LogState, contents

VOTERS_MIN: Final = 3
"""Minimum number of replicas for a vote: of two that differ, neither has a majority."""


def outvoted(votes: Mapping[str, Hashable]) -> tuple[str, ...]:
    """Return the ids of the replicas that a majority contradicts, sorted (EF2). ``votes``: the
    content of one bucket by each replica.
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
