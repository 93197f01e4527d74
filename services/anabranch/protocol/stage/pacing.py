"""How much of the cores do queries take: how often does one begin a batch, and how much does a
branch leave to the correction?

Theory of operation. A small batch costs about SMALL_BATCH_MS of one core whatever it holds. So
fewer and larger ones are cheaper, and results get older by as much as batches are apart. Even where
each replica has a core, a batch for each bucket would keep the cores busy: queries would wait for
one another, and results be no younger. So batches are APART_LEAST_MS apart. Each replica more than
there are cores takes its batch from the cores of the others, so all leave as much more time between
theirs.

While a replica corrects, its branch gives new results beside it, with an equal share of the cores.
Where two queries cost more than real time neither catches up, though each would alone: the
correction never ends, and the branch falls behind, too. So the correction is watched: over every
``CORRECTION_STEP_MS`` its lag must shrink. Where it did not, the branch is *paced*: it begins a
batch only when the bound of its results asks for one, so that it needs fewer and larger ones. Where
that is not enough it is *suspended*: at once if a peer serves, or if the branch cannot hold the
bound either; else after a longer while, since corrections must end. A suspended branch stays, and
its last results with it, until the correction has caught up, or stands at a hole.

Invariants:
    BP1 batches are never less than APART_LEAST_MS apart, and never more than APART_MOST_MS.
    BP2 replicas that have a core each change nothing; one more never makes batches come closer.
    PA1 a branch whose correction comes nearer over every step is free.
    PA2 within one correction the pace only falls, so there is an end to every state in which it
        does not come nearer.
    PA3 a correction that has caught up, or stands, or must wait for its turn, needs nothing: the
        branch is free.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

APART_LEAST_MS: Final = 400
"""A batch for each bucket of 250 ms keeps two cores busy and makes results no younger: they
wait for one another.
"""
APART_MOST_MS: Final = 1_000
"""Results get older by it at every stage, so there is an end to what is saved."""
SMALL_BATCH_MS: Final = 150
"""What a small batch takes of one core, measured."""


def pace_ms(replicas: int, cores: int) -> int:
    """Least time between the starts of two batches of a query, where ``replicas`` of stages share
    ``cores`` (BP1, BP2).
    """
    return min(APART_MOST_MS, APART_LEAST_MS + SMALL_BATCH_MS * max(0, replicas - cores))


CORRECTION_STEP_MS: Final = 10_000
"""Over so long a correction must have come nearer, or its branch leaves it more of the cores:
longer than a few batches and what varies with them.
"""

CORRECTION_STEPS_SERVED: Final = 2
"""Such steps without coming nearer after which a branch is suspended where a peer serves, or where
it cannot hold its bound either: one of them was paced.
"""

CORRECTION_STEPS_ALONE: Final = 4
"""The same where the branch is all that serves new results in time: without an end to it the
results before would never be corrected.
"""


class Pace(Enum):
    """How a branch runs."""

    FREE = "free"
    PACED = "paced"
    """Only when the bound of its results asks for it."""
    SUSPENDED = "suspended"


class CorrectionWatch:
    """Of one replica. ``now_ms`` is any clock that does not go back."""

    def __init__(self) -> None:
        self._steps = 0
        """Over which the lag did not shrink, in this correction (PA2)."""
        self._began: tuple[int, int] | None = None
        """When the step that runs began, and the lag then."""
        self._late = False

    def lags(self, now_ms: int, buckets: int) -> None:
        """The correction goes on, and is so far behind."""
        if self._began is None:
            self._began = now_ms, buckets
        elif now_ms - self._began[0] >= CORRECTION_STEP_MS:
            self._steps += buckets >= self._began[1]
            self._began = now_ms, buckets

    def waits(self) -> None:
        """It has to wait for its turn: the step that runs says nothing."""
        self._began = None

    def branch_is_late(self) -> None:
        """The branch, paced, does not hold the bound."""
        self._late = True

    def ended(self) -> None:
        """There is nothing to correct, or nothing to correct it from (PA3)."""
        self._steps = 0
        self._began = None
        self._late = False

    def pace(self, *, peer_serves: bool) -> Pace:
        """How the branch runs now. ``peer_serves``: another replica of the stage gives new
        results.
        """
        if self._steps == 0:
            return Pace.FREE
        steps_max = CORRECTION_STEPS_SERVED if peer_serves or self._late else CORRECTION_STEPS_ALONE
        return Pace.PACED if self._steps < steps_max else Pace.SUSPENDED
