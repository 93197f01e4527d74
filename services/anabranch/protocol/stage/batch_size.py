"""Size of the batches of a stage whose plan compares rows with one another.

Theory of operation. A join of two streams drops what no row can match any more between two batches
only. Within a batch each row is compared with all rows of its key, so the time of a batch grows
with the square of its rows: a backlog of minutes, taken at once, may take hours. A batch of few
rows costs mostly what every batch costs. The best size lies between, and depends on the keys, the
bounds of the join and the machine, which are not known beforehand. So batches begin small, and grow
as long as larger ones are faster, in rows per second.

Batches that the backlog bounds, not this size, say nothing about it. Any size gives the same
results, since only batch-safe plans take several buckets at once (PN3).

Invariants:
    BS1 the size of a plan that compares no rows is ``rows_max``.
    BS2 the size stays between COMPARED_ROWS_MIN and ``rows_max`` (or at it, if that is less).
    BS3 a batch that took longer than BATCH_LONG_MS is followed by smaller ones.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.stage.planner import PlanTraits

COMPARED_ROWS_MIN: Final = 2_000
"""Number of rows with which batches begin. If all have one key, a join compares two million pairs:
some seconds.
"""
BATCH_LONG_MS: Final = 10_000
"""Duration of a batch, in ms, above which the next one is smaller whatever its rate: new results,
corrections and shutdown wait for the end of a batch.
"""
_RATE_KEPT: Final = 0.9
"""Part of the rate before that a batch of twice the rows must reach: rates vary between equal
batches, too.
"""


def first_rows_max(rows_max: int, traits: PlanTraits) -> int:
    """Return the maximum number of rows of the first batches of a plan (BS1, BS2)."""
    return min(rows_max, COMPARED_ROWS_MIN) if traits.compares_rows else rows_max


class BatchSize:
    """Maximum number of rows of a stage's next batch."""

    def __init__(self, rows_max: int, traits: PlanTraits) -> None:
        """Begin with the first size. ``rows_max`` bounds every batch."""
        self._most = rows_max
        self._least = self.rows_max = first_rows_max(rows_max, traits)
        self._rate = 0.0
        """Rows per ms of the last batch that was as large as it might be, half as large as now."""

    def took(self, rows: int, duration_ms: int) -> None:
        """Record that a batch of ``rows`` took ``duration_ms``, and adapt the size."""
        if rows > self.rows_max // 2:
            rate = rows / max(1, duration_ms)
            if rate < _RATE_KEPT * self._rate or duration_ms > BATCH_LONG_MS:
                self.rows_max = max(self._least, self.rows_max // 2)
                self._rate = 0.0
            else:
                self.rows_max = min(self._most, self.rows_max * 2)
                self._rate = rate
