"""Comparing what came out with what must: pure functions over values."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from examples.toll_road.traffic import Refused

EXAMPLES_MAX = 5


@dataclass(frozen=True, slots=True)
class Delivered:
    """One record of an output topic as a consumer got it. ``identifier`` is its header ``anabranch-id``; times are ms since 1970."""

    value: Mapping[str, object]
    identifier: tuple[int, int]
    stime_ms: int
    partition: int
    appended_ms: int
    received_ms: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an output differs from the oracle. All numbers are 0 when it does not, but for ``expected`` and ``delivered``."""

    expected: int
    delivered: int
    missing: int
    duplicated: int
    wrong: int
    out_of_order: int
    examples: tuple[str, ...] = field(default=())

    def is_equal(self) -> bool:
        """Whether the output is what it must be."""
        return self.missing == self.duplicated == self.wrong == self.out_of_order == 0


def compare(expected: pl.DataFrame, delivered: Sequence[Delivered], key: Sequence[str]) -> Comparison:
    """Record by record.

    Missing: a key that must be there and is not. Duplicated: each further record with a key or an id that was there already. Wrong: a
    record with a key that must not be there, or with other values, other columns, or other types than it must have. Out of order: a
    record whose id is not greater than the one before it in its partition.
    """
    wanted = {tuple(row[name] for name in key): row for row in expected.iter_rows(named=True)}
    seen: set[tuple[object, ...]] = set()
    identifiers: set[tuple[int, int]] = set()
    newest: dict[int, tuple[int, int]] = defaultdict(lambda: (-1, -1))
    counts: Counter[str] = Counter()
    examples: list[str] = []

    def note(what: str, record: object) -> None:
        counts[what] += 1
        if counts[what] <= EXAMPLES_MAX:
            examples.append(f"{what}: {record}")

    for record in delivered:
        name = tuple(record.value.get(column) for column in key)
        if name in seen or record.identifier in identifiers:
            note("duplicated", record)
        elif not _is_same(record.value, wanted.get(name)):
            note("wrong", f"{record}, must be {wanted.get(name)}")
        elif record.identifier <= newest[record.partition]:
            note("out of order", record)
        seen.add(name)
        identifiers.add(record.identifier)
        newest[record.partition] = max(newest[record.partition], record.identifier)
    for name, row in wanted.items():
        if name not in seen:
            note("missing", row)
    return Comparison(
        len(wanted),
        len(delivered),
        counts["missing"],
        counts["duplicated"],
        counts["wrong"],
        counts["out of order"],
        tuple(examples),
    )


def _is_same(value: Mapping[str, object], wanted: Mapping[str, object] | None) -> bool:
    if wanted is None or value.keys() != wanted.keys():
        return False
    return all(type(value[name]) is type(wanted[name]) and value[name] == wanted[name] for name in wanted)


@dataclass(frozen=True, slots=True)
class Refusals:
    """How the dead letters differ from the records that were bad on purpose."""

    expected: int
    found: int
    missing: int
    unexpected: int
    other_reason: int
    examples: tuple[str, ...] = field(default=())

    def is_equal(self) -> bool:
        """Whether exactly the bad records were refused, each for its reason."""
        return self.missing == self.unexpected == self.other_reason == 0


def compare_refused(expected: Iterable[Refused], found: Iterable[Refused]) -> Refusals:
    """Dead letters are at least once, so a record of the input counts once, however often it was refused."""
    wanted = {(record.topic, record.partition, record.offset): record.reason for record in expected}
    got = {(record.topic, record.partition, record.offset): record.reason for record in found}
    missing = [(place, reason) for place, reason in wanted.items() if place not in got]
    unexpected = [(place, reason) for place, reason in got.items() if place not in wanted]
    other = [(place, reason, got[place]) for place, reason in wanted.items() if place in got and got[place] != reason]
    examples = [f"not refused: {entry}" for entry in missing[:EXAMPLES_MAX]]
    examples += [f"refused, but good: {entry}" for entry in unexpected[:EXAMPLES_MAX]]
    examples += [f"refused for another reason: {entry}" for entry in other[:EXAMPLES_MAX]]
    return Refusals(len(wanted), len(got), len(missing), len(unexpected), len(other), tuple(examples))


def percentile_ms(values_ms: Sequence[int], share: float) -> int | None:
    """The smallest value that at least ``share`` of the values do not exceed; None without values."""
    if not values_ms:
        return None
    return sorted(values_ms)[max(0, math.ceil(share * len(values_ms)) - 1)]
