"""Cost of a bucket in the batches of a stage, however few rows it has: of a window that ends in it,
or of a call that a function makes once for each.

Theory of operation. Batches are sized by their rows (``protocol.stage.load_control``). Where a
bucket costs as much as many rows, a batch with many nearly empty buckets takes far longer than
planned: the first batch of a branch, or one of a correction. Leaving out rows saves nothing of
that; only fewer buckets do. But each further batch costs its fixed part again. A stage whose
batches take long whatever they hold would fall behind in smaller ones. So the two parts must be
told apart.

The duration of a batch is taken as a fixed part, a part for each bucket and a part for each row,
fitted by least squares to the last MEASURED_BATCHES batches that ran alone on the cores. The cost
of a bucket is the fitted one less SURE_ERRORS of its standard errors: as much as these batches
surely show. If all of them had as many buckets, or if more buckets always had more rows in
proportion, they show nothing, and nothing is bounded.

Invariants:
    BC1 a stage has no bound unless its batches took longer with more buckets, whatever rows these
        had.
    BC2 batches of as many buckets as the bound keep up with the buckets that come, if their rows
        take the part of a batch that is left for rows. Where none would, there is no bound.
    BC3 a bucket costs no more than any of the last batches took for each of its buckets, those of
        a correction included. So a bound that noise made too small grows by the batches it bounds.
    BC4 a batch may have the buckets that together cost as much as its fixed part: fewer would at
        most halve its duration.
"""

from __future__ import annotations

from collections import deque
from math import sqrt
from statistics import fmean
from typing import Final

MEASURED_BATCHES: Final = 32
"""Number of the last batches to which the cost is fitted. Most have one or two buckets, and a few
of them must have more.
"""
MEASURED_LEAST: Final = 8
"""Number of batches from which the cost is fitted: fewer do not tell the error of three parts."""
SURE_ERRORS: Final = 3
"""Number of standard errors by which the fitted cost of a bucket may be too high."""
ROWS_PARTS: Final = 4
"""Divisor of the duration that a batch should have: the part of it that is left for rows."""
_FITTED_PARTS: Final = 3
"""Number of parts that are fitted: the fixed one, that of buckets, and that of rows."""
_SPREAD_LEAST: Final = 1e-6
"""Least mean square of the number of buckets that rows do not explain: less is rounding."""


class BucketCost:
    """Cost of a bucket and fixed part of a batch, by the last batches of a stage."""

    def __init__(self) -> None:
        """Start without measurements."""
        self._alone: deque[tuple[int, int, int]] = deque(maxlen=MEASURED_BATCHES)
        """Buckets with rows, rows, and duration, in ms, of each batch that ran alone."""
        self._all: deque[tuple[int, int]] = deque(maxlen=MEASURED_BATCHES)
        """Buckets with rows and duration, in ms, of each batch."""
        self._fitted_ms = 0.0
        """Cost of a bucket that the batches alone surely show, in ms."""
        self.fixed_ms = 0.0
        """Fixed part of a batch, in ms."""

    def took(self, buckets: int, rows: int, duration_ms: int, *, beside: bool) -> None:
        """Add a batch of ``rows`` in one or more ``buckets`` that took ``duration_ms``. ``beside``:
        whether another batch may have made it longer.
        """
        self._all.append((buckets, duration_ms))
        if not beside:
            self._alone.append((buckets, rows, duration_ms))
            self._fit()

    @property
    def bucket_ms(self) -> float:
        """Cost of a bucket, in ms; 0: none is known (BC3)."""
        each_ms = (duration_ms / buckets for buckets, duration_ms in self._all)
        return min([self._fitted_ms, *each_ms])

    def buckets_within(self, duration_ms: int, width_ms: int) -> int | None:
        """Return the maximum number of buckets with rows of a batch that should take
        ``duration_ms``, its rows included; None: there is no bound (BC1, BC2, BC4). ``width_ms``:
        time in which a bucket comes.
        """
        bucket_ms = self.bucket_ms
        if not 0 < bucket_ms < width_ms:
            return None
        with_rows_ms = self.fixed_ms + duration_ms / ROWS_PARTS
        fit = (duration_ms - with_rows_ms) / bucket_ms
        keep_up = 1 + with_rows_ms // (width_ms - bucket_ms)
        return max(1, int(fit), int(keep_up), int(self.fixed_ms / bucket_ms))

    def _fit(self) -> None:
        """Fit the three parts to the batches that ran alone."""
        self._fitted_ms = self.fixed_ms = 0.0
        if len(self._alone) < MEASURED_LEAST:
            return
        buckets = [float(each) for each, _, _ in self._alone]
        rows = [float(each) for _, each, _ in self._alone]
        times_ms = [float(each) for _, _, each in self._alone]
        # The slope between what rows do not explain of both is the part of a bucket in a fit of all
        # three parts (theorem of Frisch, Waugh and Lovell).
        buckets_by_row, more_buckets = _line(rows, buckets)
        time_by_row, longer_ms = _line(rows, times_ms)
        spread = sum(more * more for more in more_buckets)
        if spread < _SPREAD_LEAST * len(buckets):
            return
        slope = sum(x * y for x, y in zip(more_buckets, longer_ms, strict=True)) / spread
        errors = (y - slope * x for x, y in zip(more_buckets, longer_ms, strict=True))
        variance = sum(error * error for error in errors) / (len(buckets) - _FITTED_PARTS)
        self._fitted_ms = max(0.0, slope - SURE_ERRORS * sqrt(variance / spread))
        row_ms = time_by_row - self._fitted_ms * buckets_by_row
        explained_ms = self._fitted_ms * fmean(buckets) + row_ms * fmean(rows)
        self.fixed_ms = max(0.0, fmean(times_ms) - explained_ms)


def _line(by: list[float], values: list[float]) -> tuple[float, list[float]]:
    """Return the slope of the line through ``values`` over ``by``, 0 if all of ``by`` are equal;
    and the difference of each value from the line.
    """
    mean_by, mean = fmean(by), fmean(values)
    spread = sum((x - mean_by) ** 2 for x in by)
    shared = sum((x - mean_by) * (y - mean) for x, y in zip(by, values, strict=True))
    slope = shared / spread if spread > 0 else 0.0
    return slope, [y - mean - slope * (x - mean_by) for x, y in zip(by, values, strict=True)]
