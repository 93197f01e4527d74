"""How many of several runs were clean, and what that says about all such runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

_Z: Final = 1.959963984540054
"""Number of standard deviations of a normal distribution within which 95 % lie."""
NOT_JUDGED: Final = "not judged"
"""Beginning of an outcome in which nothing was wrong, and times could not be judged."""


class Interval(NamedTuple):
    """A share lies in it with 95 % confidence."""

    low: float
    high: float


def wilson(successes: int, trials: int) -> Interval:
    """Return the share of successes among all trials, of which these are a sample (Wilson's score
    interval); 0 to 1 without a trial.
    """
    if not trials:
        return Interval(0.0, 1.0)
    share, square = successes / trials, _Z * _Z / trials
    middle = (share + square / 2) / (1 + square)
    half = _Z * math.sqrt(share * (1 - share) / trials + square / (4 * trials)) / (1 + square)
    return Interval(max(0.0, middle - half), min(1.0, middle + half))


def in_words(outcomes: Mapping[int, str]) -> str:
    """``outcomes``: what came of the run of each seed; empty: it was clean. One that could
    not be judged is not clean.
    """
    runs = len(outcomes)
    clean = sum(not outcome for outcome in outcomes.values())
    right = sum(not outcome or outcome.startswith(NOT_JUDGED) for outcome in outcomes.values())
    lines = [f"seed {seed}: {outcome or 'clean'}" for seed, outcome in outcomes.items()]
    return "\n".join(
        [
            *lines,
            f"nothing was wrong in {right} of {runs} runs: {_interval(right, runs)}",
            f"{clean} of {runs} runs were clean: {_interval(clean, runs)}",
        ]
    )


def _interval(count: int, trials: int) -> str:
    low, high = wilson(count, trials)
    return f"{low:.0%} to {high:.0%} of such runs are (95 %)"
