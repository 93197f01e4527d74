"""Results that a stage gave up since its state was lost: no more than had to be, and only then.

Rules:
    GP1 a gap follows a loss of the state, and one loss at least.
    GP2 it ends at most a state horizon behind what was complete on all inputs when it began.
    GP3 people are told of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import NamedTuple


class Gap(NamedTuple):
    """Buckets ``first..last`` of a stream that are closed empty."""

    at_ms: int
    """When the stream said so first."""
    first: int
    last: int


def check(
    stage: str,
    found: Sequence[Gap],
    lost_ms: Collection[int],
    inputs: Sequence[Sequence[tuple[int, int]]],
    horizon: int,
) -> list[str]:
    """Return what is wrong with the gaps of a stage, in words.

    Args:
        stage: Its name.
        found: Its gaps, ascending.
        lost_ms: When its state was lost.
        inputs: Of each input (time, bucket up to which it was closed from then on), ascending.
        horizon: So many buckets after what is read first results may be partial.
    """
    wrong = []
    after_ms = -1
    for gap in found:
        name = f"{stage}: buckets {gap.first}..{gap.last}, given up at {gap.at_ms} ms"
        if not any(after_ms < at_ms <= gap.at_ms for at_ms in lost_ms):
            wrong.append(f"{name}: no state was lost before (GP1)")
        complete = min(closed_at(each, gap.at_ms) for each in inputs)
        if gap.last > complete + horizon:
            wrong.append(
                f"{name}: the inputs were complete up to {complete}, and the horizon is {horizon}"
                " buckets (GP2)"
            )
        after_ms = gap.at_ms
    return wrong


def check_alarms(stage: str, found: Sequence[Gap], alarmed: Collection[int]) -> list[str]:
    """Gaps of which no alarm tells (GP3). ``alarmed``: first buckets of those of which one does."""
    return [
        f"{stage}: no alarm tells of the gap {gap.first}..{gap.last} (GP3)"
        for gap in found
        if gap.first not in alarmed
    ]


def closed_at(closed: Sequence[tuple[int, int]], at_ms: int) -> int:
    """Return the last bucket closed at ``at_ms``. ``closed``: (time, bucket), ascending."""
    index = bisect_right(closed, (at_ms, 2**63))
    return closed[index - 1][1] if index else 0
