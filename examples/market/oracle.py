"""Oracle of the query of Medusa's Figure 1: its results by plain loops over all sightings, without
Spark and without the stages.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MINUTE_MS: Final = 5_000
"""Length of a minute of this road, in ms."""
_FREE_CARS, _SLOW = 3, 40
"""Parameters of billing.yaml."""

Row = tuple[int, int, int, int]
"""(end of the minute in ms, car, segment, toll), or (end of the minute in ms, car, truck, segment).
"""


@dataclass(frozen=True, slots=True)
class Sighting:
    """Record of a region."""

    region: str
    car: int
    kind: str
    segment: int
    speed: int
    time_ms: int

    def value(self) -> bytes:
        """Return the record's value, as JSON."""
        fields = {"car": self.car, "kind": self.kind, "segment": self.segment}
        return json.dumps(fields | {"speed": self.speed, "time": self.time_ms}).encode()

    def end_ms(self) -> int:
        """Return the end of the sighting's minute, in ms."""
        return self.time_ms // MINUTE_MS * MINUTE_MS + MINUTE_MS


def tolls(sightings: Iterable[Sighting]) -> Counter[Row]:
    """Compute what each moving car pays: the toll of its segment by the minute before. In a segment
    without cars in that minute there is no toll, so no notification either.
    """
    seen: dict[tuple[int, int], list[Sighting]] = defaultdict(list)
    for each in sightings:
        if each.kind == "car":
            seen[each.end_ms(), each.segment].append(each)
    found: Counter[Row] = Counter()
    for (end_ms, segment), here in seen.items():
        before = seen.get((end_ms - MINUTE_MS, segment))
        if before is None:
            continue
        over = max(len({each.car for each in before}) - _FREE_CARS, 0)
        is_slow = sum(each.speed for each in before) / len(before) < _SLOW
        for car in {each.car for each in here if each.speed > 0}:
            found[end_ms, car, segment, 2 * over * over if is_slow else 0] += 1
    return found


def dispatches(sightings: Iterable[Sighting]) -> Counter[Row]:
    """Find the truck with the lowest number where and when a car stands and there is a truck."""
    cars: set[tuple[int, int, int]] = set()
    trucks: dict[tuple[int, int], set[int]] = defaultdict(set)
    for each in sightings:
        if each.kind == "tow_truck":
            trucks[each.end_ms(), each.segment].add(each.car)
        elif each.speed == 0:
            cars.add((each.end_ms(), each.segment, each.car))
    return Counter(
        (end_ms, car, min(trucks[end_ms, segment]), segment)
        for end_ms, segment, car in cars
        if (end_ms, segment) in trucks
    )
