"""Stalls of the machine, and which delays they leave to be judged. Pure functions over values.

A delay measured while the machine did not run the system says nothing about the system. So a delay
is left unjudged, neither in time nor late, if a stall overlaps the time from its input to its
result; every other delay is judged, however slow the system is. Times are ms since 1970.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

LATE_MS: Final = 200
"""Lateness of a thread's wake-up, in ms, from which it counts as a stall. A processor kept busy by
the system itself delays a thread that sleeps by some tens of ms.
"""
OTHERS_MAX: Final = 0.25
"""Share of the processors' time in one sample that other programs and the host of a virtual machine
may have before the sample counts as a stall: half of one processor of two.
"""


class Stall(NamedTuple):
    """An interval in which the machine ran the system too little to judge it."""

    begin_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        """Length, in ms."""
        return self.end_ms - self.begin_ms


class Spent(NamedTuple):
    """A sample of the processor time spent since the machine started."""

    at_ms: int
    busy_s: float
    """Processor seconds of all programs, and of the host where it takes processors away."""
    own_s: float
    """Processor seconds of the system under test and of the program that watches it."""
    is_whole: bool = True
    """Whether no process of the system has ended since the previous sample: the last moments of an
    ended process are in ``busy_s`` but not in ``own_s``, and would count as those of others.
    """


def late_wake(due_ms: int, woke_ms: int) -> list[Stall]:
    """Return the stall, if any, that a thread shows that was due to wake at ``due_ms``."""
    return [Stall(due_ms, woke_ms)] if woke_ms - due_ms >= LATE_MS else []


def taken_away(spent: Sequence[Spent], processors: int) -> list[Stall]:
    """Return the intervals between samples in which others had more than OTHERS_MAX."""
    return [
        Stall(before.at_ms, after.at_ms)
        for before, after in pairwise(spent)
        if after.is_whole and others_share(before, after, processors) > OTHERS_MAX
    ]


def others_share(before: Spent, after: Spent, processors: int) -> float:
    """Return the share of the processors' time that others had between two samples.

    What the system spends at a low priority while it starts is in ``own_s`` but not in ``busy_s``
    (``process_tree.busy_s``). So the share may be too small, even below 0, and never is too large
    by it: rather a delay is judged that others caused than one left unjudged that is the system's.
    """
    passed_s = processors * (after.at_ms - before.at_ms) / 1_000
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return others_s / passed_s if passed_s > 0 else 0.0


def merged(stalls: Iterable[Stall]) -> list[Stall]:
    """Return the same time as intervals in ascending order, none of which touch."""
    found: list[Stall] = []
    for each in sorted(stalls):
        if found and each.begin_ms <= found[-1].end_ms:
            found[-1] = Stall(found[-1].begin_ms, max(found[-1].end_ms, each.end_ms))
        else:
            found.append(each)
    return found


def overlapping(stalls: Sequence[Stall], begin_ms: float, end_ms: float) -> list[Stall]:
    """Return those of ``stalls``, as ``merged`` returns them, that overlap an interval."""
    first = bisect_left(stalls, begin_ms, key=lambda each: each.end_ms)
    last = bisect_left(stalls, end_ms, key=lambda each: each.begin_ms)
    return [each for each in stalls[first:last] if each.end_ms > begin_ms]


@dataclass(frozen=True, slots=True)
class Apart:
    """The number of delays left unjudged, and why."""

    total: int = 0
    stalled: int = 0
    """Delays that overlap a stall."""
    longest_ms: int = 0
    """Length of the longest stall that they overlap, in ms."""

    def __str__(self) -> str:
        if not self.stalled:
            return f"all {self.total:,} delays are judged: none fell into a stall of the machine"
        return (
            f"{self.stalled:,} of {self.total:,} delays fell into stalls of the machine (longest"
            f" {self.longest_ms / 1_000:.1f} s): not judged"
        )

    def __add__(self, other: Apart) -> Apart:
        return Apart(
            self.total + other.total,
            self.stalled + other.stalled,
            max(self.longest_ms, other.longest_ms),
        )


NONE_APART: Final = Apart()
"""Counts of no delays."""


def judged(
    delays: Iterable[T], stalls: Sequence[Stall], span: Callable[[T], tuple[float, float]]
) -> tuple[list[T], list[T], Apart]:
    """Separate the delays to judge from those that a stall overlaps.

    Args:
        delays: Anything that took time.
        stalls: As ``merged`` returns them.
        span: Of a delay, the times of its input and of its result.

    Returns:
        Those to judge, those not to judge, and the counts.
    """
    clear: list[T] = []
    stalled: list[T] = []
    longest_ms = 0
    for each in delays:
        met = overlapping(stalls, *span(each))
        (stalled if met else clear).append(each)
        longest_ms = max([longest_ms, *(stall.length_ms for stall in met)])
    return clear, stalled, Apart(len(clear) + len(stalled), len(stalled), longest_ms)
