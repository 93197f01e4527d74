"""Statistics of delays: percentiles and a histogram of measured delays, and quantiles from a
Prometheus histogram.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BOUNDS_MS: Final = (100, 200, 300, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000)
"""Upper bounds of the bars of a histogram, in ms. One more bar holds all larger delays."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Statistics of the delays of ``count`` buckets, in ms."""

    count: int
    p50_ms: int
    p95_ms: int
    p99_ms: int
    max_ms: int
    bars: tuple[int, ...]
    """Number of delays up to each of ``BOUNDS_MS``, and above the last one."""


def delays_of(found_ms: Sequence[int]) -> Delays | None:
    """Return the statistics of ``found_ms``; None: there are no delays."""
    if not found_ms:
        return None
    ordered = sorted(found_ms)
    bars = [0] * (len(BOUNDS_MS) + 1)
    for each in ordered:
        bars[bisect_left(BOUNDS_MS, each)] += 1
    p50, p95, p99 = (ordered[ceil(share * len(ordered)) - 1] for share in (0.5, 0.95, 0.99))
    return Delays(len(ordered), p50, p95, p99, ordered[-1], tuple(bars))


def quantiles_s(
    now: Mapping[float, float], before: Mapping[float, float], shares: Sequence[float]
) -> list[float] | None:
    """Return quantiles of what a Prometheus histogram counted between two scrapes, in seconds.

    A histogram holds counts only, so a quantile is the upper bound of the bar in which it lies.

    Args:
        now: Cumulative count up to each bound in seconds, at the later scrape.
        before: The same at the earlier scrape.
        shares: Share of each quantile, such as 0.95.

    Returns:
        None if nothing was counted in between, or the process restarted and counts from zero.
    """
    bounds = sorted(now)
    counts = [now[bound] - before.get(bound, 0.0) for bound in bounds]
    if not counts or counts[-1] <= 0 or any(high < low for low, high in pairwise(counts)):
        return None
    largest = max((bound for bound in bounds if bound != inf), default=0.0)
    found = []
    for share in shares:
        bound = bounds[bisect_left(counts, share * counts[-1])]
        found.append(largest if bound == inf else bound)
    return found
