"""Oracle of both queries: reads every reading once, in plain Python, and keeps what it has seen.

Shares no code with the example and works otherwise: counters instead of arrays, fractions instead
of scaled integers, one pass over seconds instead of keyed states. Only the rules are the same; they
are in docs/experiments/smart_grid.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from math import floor
from statistics import median
from typing import Any, Final, NamedTuple

Plug = tuple[int, int, int]
"""House, household, plug."""

_PANE_S: Final = 30
_SLICES_S: Final = (60, 300, 900, 3_600, 7_200)
_DAY_S: Final = 86_400
_WINDOWS_S: Final = {3_600: 30, 86_400: 720}
"""Step of each window, in seconds."""


class Prediction(NamedTuple):
    """Name of a predicted load: what was predicted, when, and for which slice."""

    due: int
    minutes: int
    start: int
    house: int
    household: int | None
    plug: int | None


class Share(NamedTuple):
    """Name of a reported share of outliers."""

    hours: int
    stop: int
    house: int


@dataclass(slots=True)
class Expected:
    """Results by their names."""

    predictions: dict[Prediction, int] = field(default_factory=dict)
    """Loads in mW."""
    shares: dict[Share, tuple[int, int]] = field(default_factory=dict)
    """Plugs above the median, and plugs."""


@dataclass(slots=True)
class Mean:
    """Sum and number of loads."""

    total: int = 0
    count: int = 0

    def add(self, loads: list[int]) -> None:
        """Add the loads of a pane."""
        self.total += sum(loads)
        self.count += len(loads)

    def value(self) -> int:
        """Return the mean in whole mW, halves up."""
        return _half_up(Fraction(self.total, self.count))


def expected(readings: Iterable[tuple[Any, ...]], history_days: int = 31) -> Expected:
    """Return the results for ``readings``, rows in the order of the challenge's fields."""
    found = Expected()
    predictor = _Predictor(found, history_days)
    windows = [_Window(found, length_s, step_s) for length_s, step_s in _WINDOWS_S.items()]
    for start, loads in _panes(readings):
        predictor.take(start, loads)
        for window in windows:
            window.take(start, loads)
    for window in windows:
        window.end()
    return found


def _panes(readings: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, dict[Plug, list[int]]]]:
    """Return the loads of each plug by pane, in order, each distinct reading once."""
    distinct = {
        (second, (house, household, plug), int(Decimal(str(value)) * 1_000))
        for _, second, value, kind, plug, household, house in readings
        if kind == 1
    }
    for number, group in groupby(sorted(distinct), lambda each: each[0] // _PANE_S):
        loads: dict[Plug, list[int]] = defaultdict(list)
        for _, plug, load in group:
            loads[plug].append(load)
        yield number * _PANE_S, loads


def _half_up(value: Fraction) -> int:
    return floor(value + Fraction(1, 2))


class _Predictor:
    """Means of every plug in every slice so far."""

    def __init__(self, found: Expected, history_days: int) -> None:
        self._found = found
        self._days = history_days
        self._means: dict[tuple[int, int], dict[Plug, Mean]] = defaultdict(dict)
        """Mean of each plug, by length and start of the slice in seconds."""

    def take(self, start: int, loads: dict[Plug, list[int]]) -> None:
        """Take a pane; predict for the houses in it."""
        houses = {house for house, _, _ in loads}
        for length in _SLICES_S:
            begin = start - start % length
            means = self._means[length, begin]
            for plug, values in loads.items():
                means.setdefault(plug, Mean()).add(values)
            target = begin + 2 * length
            # slices before the bound of the history are forgotten when their turn comes again
            earlier = [
                self._means.get((length, target - day * _DAY_S), {})
                for day in range(1, self._days + 1)
            ]
            for house in houses:
                self._predict(start + _PANE_S, length, target, house, means, earlier)

    def _predict(
        self,
        due: int,
        length: int,
        target: int,
        house: int,
        means: dict[Plug, Mean],
        earlier: list[dict[Plug, Mean]],
    ) -> None:
        now = {plug: mean.value() for plug, mean in means.items() if plug[0] == house}
        before = [
            {plug: mean.value() for plug, mean in day.items() if plug[0] == house}
            for day in earlier
        ]
        minutes = length // 60
        for plug, mean in now.items():
            history = [day[plug] for day in before if plug in day]
            name = Prediction(due, minutes, target, house, plug[1], plug[2])
            self._found.predictions[name] = _combined(mean, history)
        name = Prediction(due, minutes, target, house, None, None)
        history = [sum(day.values()) for day in before if day]
        self._found.predictions[name] = _combined(sum(now.values()), history)


def _combined(mean: int, history: list[int]) -> int:
    if not history:
        return mean
    return _half_up((mean + median(map(Fraction, history))) / 2)


class _Window:
    """Window of one length, as counters of loads."""

    def __init__(self, found: Expected, length_s: int, step_s: int) -> None:
        self._found = found
        self._length_s = length_s
        self._step_s = step_s
        self._stop = 0
        """End of the open step."""
        self._steps: deque[tuple[int, dict[Plug, list[int]]]] = deque()
        self._open: dict[Plug, list[int]] = defaultdict(list)
        self._plugs: dict[Plug, Counter[int]] = defaultdict(Counter)
        self._all: Counter[int] = Counter()
        self._shares: dict[int, Fraction] = {}

    def take(self, start: int, loads: dict[Plug, list[int]]) -> None:
        """Take a pane; evaluate the step before it if that is over."""
        stop = start - start % self._step_s + self._step_s
        if stop != self._stop:
            self.end()
            self._stop = stop
        for plug, values in loads.items():
            self._open[plug] += values

    def end(self) -> None:
        """Evaluate the open step."""
        if not self._open:
            return
        self._steps.append((self._stop, self._open))
        for plug, values in self._open.items():
            self._plugs[plug].update(values)
            self._all.update(values)
        self._open = defaultdict(list)
        while self._steps[0][0] <= self._stop - self._length_s:
            _, old = self._steps.popleft()
            for plug, values in old.items():
                self._plugs[plug].subtract(values)
                self._all.subtract(values)
        overall = _median(self._all)
        houses: dict[int, list[bool]] = defaultdict(list)
        for plug, counter in self._plugs.items():
            if any(counter.values()):
                houses[plug[0]].append(_median(counter) > overall)
        shares = {}
        for house, above in sorted(houses.items()):
            shares[house] = Fraction(sum(above), len(above))
            if self._shares.get(house) != shares[house]:
                name = Share(self._length_s // 3_600, self._stop, house)
                self._found.shares[name] = (sum(above), len(above))
        self._shares = shares


def _median(counter: Counter[int]) -> Fraction:
    """Return the median of a multiset."""
    size = counter.total()
    wanted, seen, found = [(size - 1) // 2, size // 2], 0, []
    for value in sorted(counter):
        seen += counter[value]
        while wanted and wanted[0] < seen:
            found.append(value)
            wanted.pop(0)
    return Fraction(sum(found), 2)
