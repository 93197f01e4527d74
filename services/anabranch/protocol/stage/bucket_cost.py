"""Cost of a bucket, however few rows it has: what leaving out rows does not save.

Theory of operation. A batch costs a fixed part, a part for each of its buckets with rows, and a
part for each row. Where windows end in each bucket, a bucket is a result for each key, a step of a
processor, a read of state. Rows that are left out do not save that. Counted as the cost of rows it
makes them dearer the fewer are kept, and then fewer are kept, until hardly any are: and the batch
is no shorter.

While rows and buckets only come in proportion, no measurement tells their costs apart, and there is
no need to: a stage that keeps all its rows decides nothing by it. A branch that leaves out rows has
batches of other proportions, and so have lulls and rushes. Each three batches give three equations
for the three parts. The median of what those say that are far enough from proportional is the cost
of a bucket: a few slow batches do not move it. It is at most what the cheapest batch took for each
of its buckets. Where buckets are a small part of what batches take they count as costing nothing,
so that noise begins no theory.

Invariants:
    CB1 without batches of different proportions a bucket costs nothing.
    CB2 the buckets of a batch never cost more than the batch took.
    CB3 one batch, whatever it took, does not make buckets dearer.
"""

from __future__ import annotations

from collections import deque
from itertools import combinations
from statistics import median
from typing import Final

MEASURED_BATCHES: Final = 12
"""Number of the last batches that are compared: 220 groups of three."""
PROPORTIONS_APART: Final = 0.1
"""Least volume between the proportions of three batches, as a part of the largest, from which they
say what a bucket costs. Below it the answer is due to noise.
"""
GROUPS_LEAST: Final = 8
"""Least number of groups of three that must say it."""
MATTERS_PARTS: Final = 5
"""Divisor of the duration of a batch: buckets that mostly take less than that cost nothing."""
CHANGES_PARTS: Final = 10
"""Divisor of the cost of a bucket: a smaller change of it is within the noise."""

_Batch = tuple[int, int, float]


class BucketCost:
    """Cost of a bucket in the last batches."""

    def __init__(self) -> None:
        """Start without measurements."""
        self._batches: deque[_Batch] = deque(maxlen=MEASURED_BATCHES)
        """Rows, buckets and duration, in ms, of each batch."""
        self._sizes: dict[int, _Batch] = {}
        """Newest batch whose rows have so many binary digits."""
        self.bucket_ms = 0.0
        """Cost of a bucket, in ms."""

    def took(self, rows: int, buckets: int, duration_ms: float) -> bool:
        """Add a batch of ``rows`` in so many ``buckets`` that took ``duration_ms``. Return whether
        buckets have another cost now: what rows cost must be measured anew, by ``batches``.
        """
        if buckets <= 0:
            return False
        batch = rows, buckets, float(duration_ms)
        self._batches.append(batch)
        self._sizes[rows.bit_length()] = batch
        said = [
            found
            for three in combinations(self._batches, 3)
            if (found := _bucket_ms(*three)) is not None
        ]
        most_ms = min(took_ms / count for _, count, took_ms in self._batches)
        likely_ms = median(said) if len(said) >= GROUPS_LEAST else self.bucket_ms
        found_ms = max(0.0, min(likely_ms, most_ms))
        share = median(found_ms * count / max(1.0, took_ms) for _, count, took_ms in self._batches)
        found_ms = found_ms if share * MATTERS_PARTS >= 1 else 0.0
        if abs(found_ms - self.bucket_ms) * CHANGES_PARTS <= self.bucket_ms:
            return False
        self.bucket_ms = found_ms
        return True

    def batches(self) -> list[_Batch]:
        """Return the last batches as rows, buckets and duration in ms, and before them the newest
        ones of other sizes.
        """
        recent = {rows.bit_length() for rows, _, _ in self._batches}
        before = [batch for size, batch in sorted(self._sizes.items()) if size not in recent]
        return [*before, *self._batches]


def _bucket_ms(one: _Batch, two: _Batch, three: _Batch) -> float | None:
    """Return the cost of a bucket by three batches; None if they do not tell."""
    rows = two[0] - one[0], three[0] - one[0]
    buckets = two[1] - one[1], three[1] - one[1]
    took_ms = two[2] - one[2], three[2] - one[2]
    volume = rows[0] * buckets[1] - rows[1] * buckets[0]
    largest = max(each[0] for each in (one, two, three)) * max(
        each[1] for each in (one, two, three)
    )
    if abs(volume) < PROPORTIONS_APART * largest or volume == 0:
        return None
    return (rows[0] * took_ms[1] - rows[1] * took_ms[0]) / volume
