"""Which process must end because its peers contradict it?

Theory of operation. Two replicas whose digests of a bucket differ cannot both be right, and nobody
can tell which one is: the first record in the log stands, and a person is notified. Of three or
more that closed the bucket by the same plan, those that a majority contradicts are wrong as far as
anybody can know, and go on from a wrong state. Their processes are named in a fence. It names an
epoch, so a process that was started anew, by a person who mended it or from a copy of a peer, is
not meant. The next process reads all fences there ever were before it looks for a checkpoint: what a fenced process
left is of no use to it (``protocol.log.timeline``, TI8), whether that process heard of its fence or
died before. One that began before the fence was written goes on from that, and is outvoted and
fenced in its turn.

Invariants:
    EF1 a process is fenced at most once, over restarts of the manager too: reading the logs again
        gives the same fences.
    EF2 nobody is fenced unless at least three replicas closed the bucket and more than half of them
        agree on something else.
    EF3 fencing needs the manager and nothing else needs fencing: what stands in the log stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final

from anabranch.protocol.control.records import ControlRecord, Fence

VOTERS_MIN: Final = 3
"""Fewer have no majority that leaves somebody over."""


def outvoted(votes: Mapping[str, Hashable]) -> tuple[str, ...]:
    """The replicas that a majority contradicts, by id (EF2). ``votes``: what each replica
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


def fenced_epochs(
    stage: str, peers: Collection[str], entries: Iterable[ControlRecord]
) -> dict[str, int]:
    """Of each replica of ``stage`` that was fenced the newest epoch that was, by the topic of
    fences.

    Args:
        stage: The stage of the replica that asks.
        peers: The other replicas of the stage. Where they are so few that nobody is outvoted, no
            fence counts and ``entries`` is not read.
        entries: Records of the topic of fences, in any order.
    """
    if len(peers) + 1 < VOTERS_MIN:
        return {}
    found: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry, Fence) and entry.stage == stage:
            found[entry.replica] = max(entry.epoch, found.get(entry.replica, entry.epoch))
    return found


class FenceBook:
    """Which processes were fenced already."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str, int]] = set()

    def known(self, fence: Fence) -> None:
        """A fence stands in the topic."""
        self._known.add((fence.stage, fence.replica, fence.epoch))

    def fence(self, stage: str, replica: str, epoch: int, bucket: int, now_ms: int) -> Fence | None:
        """The fence to write for a replica that was outvoted about ``bucket``; None: it is
        known (EF1).
        """
        reason = (
            f"a majority of the replicas of {stage} made other tuples of bucket {bucket} than"
            f" replica {replica}, by the same plan"
        )
        made = Fence(stage, replica, epoch, reason, now_ms)
        if (stage, replica, epoch) in self._known:
            return None
        self.known(made)
        return made
