"""Cost of load for a participant: its private, convex cost function.

Theory of operation. A cost function gives the cost of a level of load in micro-units per second: of
slow answers and broken promises, not of hardware. It never leaves its owner. What it is for is the
marginal cost, of one more task or of one task less. The default is the mean number of rows in an
M/M/1 queue, ``scale * r / (1 - r)`` at utilisation r. Near full load it would be infinite, so from
the guard on a straight line continues with the slope that it has there. Another is a line with
corners, which an operator draws.

Invariants:
    FK1  more load never costs less.
    FK2  a function is convex: a task costs at least as much on top of more load. M/M/1 is rounded
        down to whole micro-units, so it may be off by one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.contracts import PARTS_PER_MILLION

Cost = Callable[[int], int]
"""Cost function: from units of load to micro-units per second."""


@dataclass(frozen=True, slots=True)
class QueueCost:
    """Cost of an M/M/1 queue: ``scale_micro`` times the mean number in the system.

    Raises:
        ConfigurationError: there is no capacity, or the guard leaves no room below it.
    """

    capacity_units: int
    scale_micro: int
    guard_ppm: int = 980_000
    """Utilisation above which the cost is a straight line, in parts per million."""

    def __post_init__(self) -> None:
        if self.capacity_units < 2 or self.scale_micro < 1:
            raise ConfigurationError(
                f"cost: capacity {self.capacity_units} units, scale {self.scale_micro}; both must"
                " be above 0"
            )
        if not 0 < self.guard_ppm < PARTS_PER_MILLION or self._guard < 1:
            raise ConfigurationError(
                f"cost: guard {self.guard_ppm} parts per million of {self.capacity_units} units"
            )

    @property
    def _guard(self) -> int:
        return min(
            self.capacity_units * self.guard_ppm // PARTS_PER_MILLION, self.capacity_units - 1
        )

    def __call__(self, units: int) -> int:
        """Return the cost of a level of load."""
        guard = self._guard
        if units <= guard:
            return self.scale_micro * units // (self.capacity_units - units)
        left = self.capacity_units - guard
        slope = -(-self.scale_micro * self.capacity_units // (left * left))
        return self.scale_micro * guard // left + slope * (units - guard)


@dataclass(frozen=True, slots=True)
class CornerCost:
    """Straight lines between corners: from ``corners[i][0]`` units on each unit costs
    ``corners[i][1]`` micro-units per second.

    Raises:
        ConfigurationError: the corners do not begin at 0, or are not convex (FK2).
    """

    corners: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        starts, slopes = [start for start, _ in self.corners], [slope for _, slope in self.corners]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise ConfigurationError(f"cost: corners at {starts}; they begin at 0 and grow")
        if slopes[0] < 0 or slopes != sorted(slopes):
            raise ConfigurationError(
                f"cost: slopes {slopes}; a unit costs at least as much on top of more load"
            )

    def __call__(self, units: int) -> int:
        """Return the cost of a level of load."""
        number = bisect_right(self.corners, units, key=lambda corner: corner[0])
        reached = self.corners[:number]
        ends = [start for start, _ in reached[1:]] + [units]
        return sum(slope * (end - start) for (start, slope), end in zip(reached, ends, strict=True))


def marginal(cost: Cost, level: int, units: int) -> int:
    """Return the cost of ``units`` more on top of ``level``, in micro-units per second."""
    return cost(level + units) - cost(level)
