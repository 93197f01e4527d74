"""Tentative results against the answer without the inputs that were missing.

A branch goes on with what there is. So what it shows of a bucket lies between two answers: the
whole one, and that of the inputs that nobody says were missing. What is below the second was left
out although it was there; what is beyond the first was made up; and who names no stream must show
the whole answer.

The module knows nothing of where results come from. Its caller computes answers (``Without``) and
says what of a row its key is and what of it only grows with more input (``Split``), so it serves a
boundary log (``tests/simulation``) and a live topic alike:

    # Each bucket that was shown, with rows or without.
    judged = [Shown("tolls bucket 7", 7, ("north",), rows, since=4), ...]
    wrong = check(judged, without, {"north", "south"}, split)

Rules:
    TA1 the streams that are named are ones that can have been missing, none of them twice.
    TA2 each key of the answer without the named streams is there, as often, with measures that are
        no less.
    TA3 no key that is not in the whole answer is there, none more often, none with measures that
        are more.
    TA4 where no stream is named, the rows are the whole answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Row = tuple[object, ...]
Answer = Mapping[int, Sequence[Row]]
"""Bucket -> its rows."""
Without = Callable[[frozenset[str], int], Answer]
"""(streams, bucket) -> the answer if these streams had nothing in any bucket after that one.
Without any stream: the whole answer.
"""
Split = Callable[[Row], tuple[Hashable, tuple[float, ...]]]
"""Row -> (what of it is the same however much input is missing, measures that only grow with
more input).
"""


class Shown(NamedTuple):
    """One bucket as a branch shows it."""

    name: str
    """For people."""
    bucket: int
    missing: tuple[str, ...]
    """The streams that it names."""
    rows: Sequence[Row]
    since: int
    """The last bucket in which none of these streams was missing to the branch, nor to those
    whose results it was made from.
    """


@dataclass(frozen=True)
class _Key:
    """The rows of one key: how many, and the sums of their measures."""

    count: int = 0
    measures: tuple[float, ...] = ()

    def with_row(self, measures: tuple[float, ...]) -> _Key:
        sums = (
            tuple(a + b for a, b in zip(self.measures, measures, strict=True))
            if self.count
            else measures
        )
        return _Key(self.count + 1, sums)

    def covers(self, other: _Key) -> bool:
        """Whether it has no fewer rows than ``other``, with measures that are no less."""
        return self.count >= other.count and all(
            a >= b for a, b in zip(self.measures, other.measures, strict=False)
        )


def check(
    shown: Iterable[Shown], without: Without, can_be_missing: Collection[str], split: Split
) -> list[str]:
    """Return what is wrong with the shown results, in words."""
    wrong: list[str] = []
    nothing: frozenset[str] = frozenset()
    for each in shown:
        named = frozenset(each.missing)
        if not named <= set(can_be_missing) or len(named) < len(each.missing):
            wrong.append(
                f"{each.name} names {each.missing} as missing: only {sorted(can_be_missing)} can be"
            )
            continue
        whole = without(nothing, each.since).get(each.bucket, ())
        if not named:
            if sorted(each.rows, key=repr) != sorted(whole, key=repr):
                wrong.append(
                    f"{each.name} names nothing as missing, but is {each.rows}, not {whole}"
                )
            continue
        least = without(named, each.since).get(each.bucket, ())
        rows, low, high = (_by_key(of, split) for of in (each.rows, least, whole))
        left_out = [key for key, much in low.items() if not rows.get(key, _Key()).covers(much)]
        made_up = [key for key, much in rows.items() if not high.get(key, _Key()).covers(much)]
        for keys, what in (
            (left_out, f"leaves out what was there without {each.missing}"),
            (made_up, "has more than the answer"),
        ):
            if keys:
                wrong.append(
                    f"{each.name} {what}: {keys[:5]}; it is {each.rows}, at least {least}, at most"
                    f" {whole}"
                )
    return wrong


def _by_key(rows: Iterable[Row], split: Split) -> dict[Hashable, _Key]:
    found: dict[Hashable, _Key] = {}
    for row in rows:
        key, measures = split(row)
        found[key] = found.get(key, _Key()).with_row(measures)
    return found
