"""Faults that the validator must find: right results with one thing changed.

    python -m benchmarks.smart_grid.mutants

prints the table of docs/experiments/smart_grid.md: what each mutant is counted as.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.smart_grid.generator import Plan, World
from benchmarks.smart_grid.oracle import Expected, expected
from benchmarks.smart_grid.validator import Difference, judge

PLAN: Final = Plan(houses=2, days=2, minutes=3)

Results = list[tuple[Any, Any]]
Change = Callable[[Results], Results]


@dataclass(frozen=True, slots=True)
class Mutant:
    """Change of the results of one query, and what it must be counted as."""

    query: str
    name: str
    change: Change
    counted_as: tuple[str, ...]


def _without(results: Results) -> Results:
    return results[1:]


def _repeated(results: Results) -> Results:
    return [*results, results[0]]


def _exchanged(results: Results) -> Results:
    return [*results[1:], results[1]]


def _renamed(field: str, by: int) -> Change:
    def change(results: Results) -> Results:
        (name, value), *others = results
        return [(name._replace(**{field: getattr(name, field) + by}), value), *others]

    return change


def _another(value: Callable[[Any], Any]) -> Change:
    def change(results: Results) -> Results:
        (name, old), *others = results
        return [(name, value(old)), *others]

    return change


def _none(_: Results) -> Results:
    return []


_BOTH: Final[tuple[tuple[str, Change, tuple[str, ...]], ...]] = (
    ("one dropped", _without, ("missing",)),
    ("one repeated", _repeated, ("duplicate",)),
    ("one lost, another repeated", _exchanged, ("missing", "duplicate")),
    ("of another house", _renamed("house", 100), ("missing", "extra")),
    ("none at all", _none, ("missing",)),
)
MUTANTS: Final = (
    *(Mutant("predictions", *each) for each in _BOTH),
    *(Mutant("shares", *each) for each in _BOTH),
    Mutant("predictions", "1 mW more", _another(lambda load: load + 1), ("wrong",)),
    Mutant("predictions", "of the slice before", _renamed("start", -60), ("missing", "extra")),
    Mutant("predictions", "30 s later", _renamed("due", 30 * 999), ("missing", "extra")),
    Mutant("shares", "one plug more above", _another(lambda s: (s[0] + 1, s[1])), ("wrong",)),
    Mutant("shares", "one plug more", _another(lambda s: (s[0], s[1] + 1)), ("wrong",)),
    Mutant("shares", "a step later", _renamed("stop", 30 * 999), ("missing", "extra")),
    Mutant("shares", "of the other window", _renamed("hours", 5), ("missing", "extra")),
)


def counted(mutant: Mutant, truth: Expected) -> Difference:
    """Return how the validator counts the mutant."""
    results: dict[str, Results] = {
        "predictions": list(truth.predictions.items()),
        "shares": list(truth.shares.items()),
    }
    results[mutant.query] = mutant.change(results[mutant.query])
    verdict = judge(truth, results["predictions"], results["shares"])
    found: Difference = getattr(verdict, mutant.query)
    return found


def kinds(found: Difference) -> dict[str, int]:
    """Return the counts that are not 0."""
    names = ("missing", "extra", "duplicate", "wrong")
    return {name: count for name in names if (count := getattr(found, name))}


def main() -> int:
    """Print the table. Return the exit code: 0 if each mutant is found."""
    truth = expected(World(PLAN).readings().iter_rows())
    print("| query | mutant | counted as |\n|---|---|---|")
    all_found = True
    for mutant in MUTANTS:
        found = kinds(counted(mutant, truth))
        all_found &= tuple(found) == mutant.counted_as
        text = ", ".join(f"{count} {name}" for name, count in found.items())
        print(f"| {mutant.query} | {mutant.name} | {text} |")
    return 0 if all_found else 1


if __name__ == "__main__":
    sys.exit(main())
