"""Checker of three or more replicas of a stage that disagree (``protocol.control.fencing``): a
replica that a majority contradicts is fenced, ends, and starts anew from a state that is right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

VOTERS_MIN: Final = 3
HEARD_MS: Final = 2_000
"""Time that a process may continue that has not read its fence, in ms after the fence is in the
log.
"""


@dataclass(frozen=True)
class Made:
    """A bucket that a process of a replica closed."""

    at_ms: int
    replica: str
    epoch: int
    bucket: int
    is_right: bool


@dataclass(frozen=True)
class ManagerFence:
    """The manager's fence of a process."""

    at_ms: int
    replica: str
    epoch: int


def contradicted(made: Iterable[Made]) -> list[Made]:
    """Return the results that more than half of at least three replicas contradict."""
    by_bucket: defaultdict[int, dict[str, Made]] = defaultdict(dict)
    for each in made:
        by_bucket[each.bucket][each.replica] = each
    return [
        each
        for votes in by_bucket.values()
        if len(votes) >= VOTERS_MIN and 2 * sum(v.is_right for v in votes.values()) > len(votes)
        for each in votes.values()
        if not each.is_right
    ]


def check(
    made: Sequence[Made], fences: Sequence[ManagerFence], alarmed: Collection[int]
) -> list[str]:
    """Return what is wrong after the run, in words.

    Args:
        made: All buckets that replicas of one stage closed, each with the epoch that closed it.
        fences: All of the stage, in the order of the log.
        alarmed: Buckets about which an alarm says that replicas disagree.
    """
    lost = contradicted(made)
    wrong = [
        f"replica {each.replica} made bucket {each.bucket} wrong in epoch {each.epoch}, and nobody"
        " fenced it"
        for each in lost
        if not any(f.replica == each.replica and f.epoch >= each.epoch for f in fences)
    ]
    if lost and not {each.bucket for each in lost} & set(alarmed):
        wrong.append(f"nobody was told of bucket {min(each.bucket for each in lost)}")
    for fence in fences:
        own = [each for each in made if each.replica == fence.replica]
        if not any(e in lost and e.epoch <= fence.epoch and e.at_ms <= fence.at_ms for e in own):
            wrong.append(f"replica {fence.replica} was fenced, and nobody contradicts it (EF2)")
        late = [
            each
            for each in own
            if each.epoch == fence.epoch and each.at_ms > fence.at_ms + HEARD_MS
        ]
        if late:
            wrong.append(
                f"epoch {fence.epoch} of replica {fence.replica} closed bucket {late[0].bucket}"
                f" {late[0].at_ms - fence.at_ms} ms after its fence"
            )
    wrong += [
        f"epoch {again.epoch} of replica {again.replica} was fenced at {first.at_ms} ms, and again"
        f" at {again.at_ms} ms, though nothing was wrong that began in between (EF1)"
        for first, again in combinations(fences, 2)
        if again.replica == first.replica
        and not any(
            e.replica == first.replica and first.epoch < e.epoch <= again.epoch for e in lost
        )
    ]
    return wrong


def check_anew(
    made: Sequence[Made], fences: Sequence[ManagerFence], begun_ms: Iterable[tuple[str, int, int]]
) -> list[str]:
    """Check that a replica which began after its fence uses nothing that the fenced one left (TI8).

    Args:
        made: As above.
        fences: As above.
        begun_ms: (replica, epoch, when it began) of every process.
    """
    return [
        f"epoch {epoch} of replica {replica} began after the fence of epoch {fence.epoch}, and made"
        f" bucket {each.bucket} wrong"
        for replica, epoch, at_ms in begun_ms
        for fence in fences
        if fence.replica == replica and fence.at_ms < at_ms
        for each in made
        if (each.replica, each.epoch, each.is_right) == (replica, epoch, False)
    ]
