"""Validator: compares results with the oracle's, each by its name, and counts what differs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.smart_grid.oracle import Expected, Prediction, Share

_SHOWN_MAX: Final = 5
"""Maximum number of differences that a verdict lists by name; all are counted."""


@dataclass(slots=True)
class Difference:
    """Counts of one query."""

    expected: int = 0
    received: int = 0
    missing: int = 0
    extra: int = 0
    duplicate: int = 0
    wrong: int = 0
    shown: list[str] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        """Whether every expected result is there once, right, and nothing else."""
        return not (self.missing or self.extra or self.duplicate or self.wrong)

    def note(self, what: str, name: Hashable) -> None:
        """Count a difference, and list it if there is room."""
        setattr(self, what, getattr(self, what) + 1)
        if len(self.shown) < _SHOWN_MAX:
            self.shown.append(f"{what}: {name}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Differences of both queries."""

    predictions: Difference
    shares: Difference

    @property
    def is_valid(self) -> bool:
        """Whether both queries' results are as expected, and there are any of each."""
        both = (self.predictions, self.shares)
        return all(each.is_valid and each.expected > 0 for each in both)

    def lines(self) -> list[str]:
        """Return the verdict as text."""
        lines = []
        for name, each in (("predictions", self.predictions), ("outliers", self.shares)):
            lines.append(
                f"{name}: {each.expected} expected, {each.received} received, {each.missing}"
                f" missing, {each.extra} extra, {each.duplicate} duplicate, {each.wrong} wrong"
            )
            lines += [f"  {text}" for text in each.shown]
        lines.append("valid" if self.is_valid else "NOT valid")
        return lines


def prediction_of(row: Mapping[str, Any], due: int) -> tuple[Prediction, int]:
    """Return name and load of a row of the example's output that belongs to second ``due``."""
    name = Prediction(
        due, row["minutes"], row["start"], row["house_id"], row["household_id"], row["plug_id"]
    )
    return name, row["load_mw"]


def share_of(row: Mapping[str, Any]) -> tuple[Share, tuple[int, int]]:
    """Return name and share of a row of the example's output.

    Raises:
        ValueError: the row's window has another length than it says.
    """
    if row["stop"] - row["start"] != row["hours"] * 3_600:
        raise ValueError(f"not a window of {row['hours']} h: {json.dumps(dict(row), default=str)}")
    return Share(row["hours"], row["stop"], row["house_id"]), (row["above"], row["plugs"])


def judge(
    expected: Expected,
    predictions: Iterable[tuple[Prediction, int]],
    shares: Iterable[tuple[Share, tuple[int, int]]],
) -> Verdict:
    """Compare what was received with what is expected."""
    return Verdict(
        _difference(expected.predictions, predictions), _difference(expected.shares, shares)
    )


def _difference(
    expected: Mapping[Any, object], received: Iterable[tuple[Hashable, object]]
) -> Difference:
    found = Difference(expected=len(expected))
    seen: Counter[Hashable] = Counter()
    for name, value in received:
        found.received += 1
        seen[name] += 1
        if seen[name] > 1:
            found.note("duplicate", name)
        elif name not in expected:
            found.note("extra", name)
        elif expected[name] != value:
            found.note("wrong", f"{name} is {value}, not {expected[name]}")
    for name in expected:
        if not seen[name]:
            found.note("missing", name)
    return found
