"""The load of a task as an agent sees it: an exponentially weighted mean of what its node measures.

Theory of operation. Measurements are noisy and late. The mean follows them with a weight for each
measurement, and is kept in millionths of a unit, so that small steps are not lost. The first
measurement counts whole. The figure that an offer gives a seller of a task that it does not run yet
is a measurement, too.

Invariants:
    FW1  the mean lies between the smallest and the largest measurement.
    FW2  of equal measurements it becomes their value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from anabranch.protocol.federation.contracts import PARTS_PER_MILLION

_MILLIONTHS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class LoadAverage:
    """Mean of the measurements so far."""

    millionths: int

    @classmethod
    def of(cls, units: int) -> Self:
        """Return the mean of one measurement."""
        return cls(units * _MILLIONTHS)

    @property
    def units(self) -> int:
        """Mean, rounded; at least one unit for a task that runs, since prices are per unit."""
        return max(1, (self.millionths + _MILLIONTHS // 2) // _MILLIONTHS)

    def measured(self, units: int, weight_ppm: int) -> LoadAverage:
        """Return the mean with one more measurement of the given weight."""
        step = (units * _MILLIONTHS - self.millionths) * weight_ppm
        # Rounded away from where it stands: otherwise it would stop a little short of its goal.
        return LoadAverage(
            self.millionths
            + (-(-step // PARTS_PER_MILLION) if step > 0 else step // PARTS_PER_MILLION)
        )
