"""Comparison of results with expected ones: pure functions over values."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from demo.live_checker import LiveRecord

if TYPE_CHECKING:
    from demo.traffic import Rejected

EXAMPLES_MAX = 5
TEXTS_MAX = 20
_TEXT_CHARS_MAX = 700


class Result(NamedTuple):
    """Everything that must be right about a result, on either topic."""

    value: str
    """Value as JSON with sorted names: 8, 8.0 and "8" are three values."""
    event_time_ms: int
    key: bytes | None
    partition: int | None
    """Partition on the topic; None if the reader does not know it."""


def result(
    value: Mapping[str, object], event_time_ms: int, key: bytes | None, partition: int | None
) -> Result:
    """Build a result from a record's decoded value, its header ``anabranch-event-time``, key and
    partition.
    """
    return Result(json.dumps(value, sort_keys=True), event_time_ms, key, partition)


Answer = Mapping[int, Sequence[Result]]
"""All results of an output, by bucket, in the order of their positions."""


class Delivered(NamedTuple):
    """Record of an output topic as a consumer received it."""

    identifier: tuple[int, int]
    """Header ``anabranch-id``: bucket and position."""
    result: Result
    received_ms: int
    """Time of receipt, in ms since 1970."""

    @property
    def partition(self) -> int | None:
        """Partition of the topic."""
        return self.result.partition


Read = TypeVar("Read", Delivered, LiveRecord)


def followed(topic: str, seen: Sequence[Read], again: Sequence[Read]) -> list[str]:
    """Check that the records which a follower of a topic saw are, in each partition, the beginning
    of those that it holds in the end. Return the differences, in words.
    """
    wrong = []
    for partition in {record.partition for record in (*again, *seen)}:
        mine, there = (
            [each._replace(received_ms=0) for each in some if each.partition == partition]
            for some in (seen, again)
        )
        if mine != there[: len(mine)]:
            place = next(
                (i for i, pair in enumerate(zip(mine, there, strict=False)) if pair[0] != pair[1]),
                len(there),
            )
            wrong.append(
                f"{topic}, partition {partition}: its follower saw {mine[place]}, it holds"
                f" {there[place : place + 1]}"
            )
    return wrong


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences of an output from the oracle. All numbers are 0 if there are none, except
    ``expected`` and ``delivered``.

    An output without expected results is not equal: it would show nothing.
    """

    expected: int
    delivered: int
    missing: int
    duplicated: int
    wrong: int
    out_of_order: int
    examples: tuple[str, ...] = field(default=())

    def is_equal(self) -> bool:
        """Return whether the output is what it must be."""
        return (
            self.missing == self.duplicated == self.wrong == self.out_of_order == 0 < self.expected
        )


def compare(answer: Answer, delivered: Iterable[Delivered]) -> Comparison:
    """Compare the delivered records with the expected ones, one by one."""
    wanted = {
        (bucket, position): row
        for bucket, rows in answer.items()
        for position, row in enumerate(rows)
    }
    seen: set[tuple[int, int]] = set()
    newest: dict[int | None, tuple[int, int]] = defaultdict(lambda: (-1, -1))
    counts: Counter[str] = Counter()
    examples: list[str] = []

    def note(what: str, record: object) -> None:
        """Count a difference and keep the first ones as examples."""
        counts[what] += 1
        if counts[what] <= EXAMPLES_MAX:
            examples.append(f"{what}: {record}")

    for record in delivered:
        counts["delivered"] += 1
        partition, expected = record.result.partition, wanted.get(record.identifier)
        if record.identifier in seen:
            note("duplicated", record)
        elif expected is None or record.result != (
            expected if partition is not None else expected._replace(partition=None)
        ):
            note("wrong", f"{record}, must be {expected}")
        elif record.identifier <= newest[partition]:
            note("out of order", record)
        seen.add(record.identifier)
        newest[partition] = max(newest[partition], record.identifier)
    for identifier, row in wanted.items():
        if identifier not in seen:
            note("missing", f"{identifier} {row}")
    return Comparison(
        len(wanted),
        counts["delivered"],
        counts["missing"],
        counts["duplicated"],
        counts["wrong"],
        counts["out of order"],
        tuple(examples),
    )


@dataclass(frozen=True, slots=True)
class Rejections:
    """Differences of the dead letters from the records that were bad on purpose. Without bad
    records they are not equal: that would show nothing.
    """

    expected: int
    found: int
    missing: int
    unexpected: int
    altered: int
    """Rejected for another reason, or not kept as they were written."""
    examples: tuple[str, ...] = field(default=())

    def is_equal(self) -> bool:
        """Return whether exactly the bad records were rejected, each for its reason, byte
        by byte.
        """
        return self.missing == self.unexpected == self.altered == 0 < self.expected


def compare_rejected(expected: Iterable[Rejected], found: Iterable[Rejected]) -> Rejections:
    """Compare the dead letters with the bad records. Dead letters are delivered at least once, so a
    record of the input counts once, however often it was rejected; each of its dead letters must be
    right.
    """
    wanted = {record.place: record for record in expected}
    got: dict[tuple[str, int, int], set[Rejected]] = defaultdict(set)
    for letter in found:
        got[letter.place].add(letter)
    missing = [record for place, record in wanted.items() if place not in got]
    unexpected = [
        letter for place, letters in got.items() if place not in wanted for letter in letters
    ]
    altered = [
        (wanted[place], letter)
        for place, letters in got.items()
        if place in wanted
        for letter in letters
        if letter != wanted[place]
    ]
    """Number of records rejected for another reason, or not kept byte by byte."""
    examples = [f"not rejected: {entry}" for entry in missing[:EXAMPLES_MAX]]
    examples += [f"rejected, but good: {entry}" for entry in unexpected[:EXAMPLES_MAX]]
    examples += [f"rejected as something else: {entry}" for entry in altered[:EXAMPLES_MAX]]
    return Rejections(
        len(wanted), len(got), len(missing), len(unexpected), len(altered), tuple(examples)
    )


def shortened(texts: Sequence[str]) -> list[str]:
    """Return the first of many texts, each cut to its beginning, for people."""
    found = [
        text if len(text) <= _TEXT_CHARS_MAX else f"{text[:_TEXT_CHARS_MAX]} ..."
        for text in texts[:TEXTS_MAX]
    ]
    return found if len(texts) <= TEXTS_MAX else [*found, f"and {len(texts) - TEXTS_MAX} more"]


def percentile_ms(values_ms: Sequence[int], share: float) -> int | None:
    """Return the smallest value that at least ``share`` of the values do not exceed; None without
    values.
    """
    if not values_ms:
        return None
    return sorted(values_ms)[max(0, math.ceil(share * len(values_ms)) - 1)]
