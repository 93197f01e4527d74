"""Which of the processes of one replica runs it, and when another one takes its place.

The module reads what was said, by the time at which it stood in the log. A process that listens has
heard what was said ``ON_THE_WAY_MS`` before; later words may be on the way to it.

Rules:
    PF1 nobody takes the place of one that is heard, or whose epoch has just begun, nor before it
        was silent for the whole wait, or has said that it ends.
    PF2 whose turn is later waits for those before it: who has a checkpoint goes first, else the
        order of the processes decides.
    PF3 somebody takes the place of one that is silent as soon as that is allowed, if there is
        anybody; what an older epoch's process says is no sign of life.

A bucket that it closes is as good a sign of life as its word: one may get through without the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

ON_THE_WAY_MS: Final = 200
HEARD_MS: Final = 700
"""A heartbeat of each process that is alive comes in every so many ms."""
LATE_MS: Final = 1_200
"""Time beside the waits, in ms: a heartbeat's interval, a poll, a copy, an epoch's record."""


class Began(NamedTuple):
    """An epoch's first record."""

    at_ms: int
    epoch: int


class Word(NamedTuple):
    """A heartbeat of the process of an epoch."""

    at_ms: int
    epoch: int
    is_end: bool = False
    """Whether it says that the process ends."""


class Closed(NamedTuple):
    """A bucket that the process of an epoch has closed."""

    at_ms: int
    epoch: int


class Primaries(NamedTuple):
    """Epochs, heartbeats and closed buckets of the processes that ran the replica."""

    begun: Sequence[Began]
    """Their epochs, ascending."""
    words: Sequence[Word]
    closed: Sequence[Closed] = ()

    def signs_ms(self, epoch: int) -> list[int]:
        """Return when the process of ``epoch`` gave a sign of life, after it had begun."""
        words = [each.at_ms for each in self.words if each.epoch == epoch]
        return words + [each.at_ms for each in self.closed if each.epoch == epoch]


class Stands(NamedTuple):
    """A heartbeat of a process that stands by."""

    at_ms: int
    process: str
    has_checkpoint: bool


class Waits(NamedTuple):
    """For a primary that is silent, and for each process whose turn is before."""

    silent_ms: int
    turn_ms: int


def _last_sign_ms(at_ms: int, primaries: Primaries) -> int | None:
    """Return the last sign of life of the newest epoch that all knew of at ``at_ms``; None if none
    has begun.
    """
    newest = _newest(at_ms, primaries.begun)
    if newest is None:
        return None
    known_ms = [each for each in primaries.signs_ms(newest.epoch) if each <= at_ms - ON_THE_WAY_MS]
    return max([newest.at_ms, *known_ms])


def _newest(at_ms: int, begun: Sequence[Began]) -> Began | None:
    """Return the newest epoch that all knew of at ``at_ms``."""
    known = [each for each in begun if each.at_ms <= at_ms - ON_THE_WAY_MS]
    return max(known, key=lambda each: each.epoch, default=None)


def _has_ended(at_ms: int, primaries: Primaries) -> bool:
    """Return whether the last word of that epoch, on its way or not, says that its process ends."""
    newest = _newest(at_ms, primaries.begun)
    said = [
        word
        for word in primaries.words
        if newest is not None and word.epoch == newest.epoch and word.at_ms <= at_ms
    ]
    return bool(said) and max(said).is_end


def check(
    stage: str,
    became: Sequence[tuple[int, str, bool]],
    primaries: Primaries,
    stands: Sequence[Stands],
    waits: Waits,
) -> list[str]:
    """Return which processes took over too early, in words (PF1, PF2).

    Args:
        stage: Its name.
        became: (time, process, whether it has a checkpoint) of each that began to be primary.
        primaries: Those before, and what they said and closed.
        stands: What processes said that stood by.
        waits: How long each has to wait.
    """
    wrong = []
    for at_ms, process, has_checkpoint in became:
        sign_ms = _last_sign_ms(at_ms, primaries)
        if sign_ms is None:
            continue
        own = not has_checkpoint, process
        heard: dict[str, set[tuple[bool, str]]] = {}
        for each in stands:
            if each.process != process and at_ms - HEARD_MS <= each.at_ms <= at_ms:
                heard.setdefault(each.process, set()).add((not each.has_checkpoint, each.process))
        before = [name for name, turns in heard.items() if all(turn < own for turn in turns)]
        silent_ms = 0 if _has_ended(at_ms, primaries) else waits.silent_ms
        wait_ms = silent_ms + waits.turn_ms * len(before)
        if at_ms - sign_ms < wait_ms:
            wrong.append(
                f"{stage}.{process} becomes the primary at {at_ms} ms: the one before was heard at"
                f" {sign_ms} ms, and {sorted(before)} go first: the wait is {wait_ms} ms"
            )
    return wrong


def check_in_time(
    stage: str,
    primaries: Primaries,
    free: Callable[[int, int], Collection[str]],
    waits: Waits,
    until_ms: int,
) -> list[str]:
    """Return where no process took over from a silent one (PF3).

    Args:
        stage: Its name.
        primaries: All of the stage, and what they said and closed.
        free: (from, until) -> who stood by all the time, and was not held up.
        waits: How long each has to wait.
        until_ms: What is after that is not judged.
    """
    wrong = []
    for before, after in pairwise([*primaries.begun, Began(until_ms, -1)]):
        signs_ms = [
            each for each in primaries.signs_ms(before.epoch) if before.at_ms <= each <= after.at_ms
        ]
        sign_ms = max([before.at_ms, *signs_ms])
        # Others of whom no more is heard may have been heard just before.
        deadline_ms = sign_ms + waits.silent_ms + 2 * waits.turn_ms + LATE_MS
        if after.at_ms > deadline_ms and free(sign_ms, deadline_ms):
            wrong.append(
                f"{stage}: nobody becomes the primary up to {after.at_ms} ms, the last one was"
                f" heard at {sign_ms} ms, and {sorted(free(sign_ms, deadline_ms))} stood by"
            )
    return wrong
