"""Tentative results pass between the two answers, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from checkers.tentative import Row, Shown, check

COUNTS: dict[str, dict[int, list[Row]]] = {
    "": {7: [("x", 5), ("y", 2), ("z", 1)]},
    "a": {7: [("x", 3), ("y", 2)]},
    "b": {7: [("x", 2), ("z", 1)]},
    "ab": {},
}
"""Counts per key, by the streams that are missing after bucket 4: of x both have some, of y
only b, of z only a.
"""


def judged(
    missing: tuple[str, ...], rows: Sequence[Row], since: int = 4, bucket: int = 7
) -> list[str]:
    def without(streams: frozenset[str], after: int) -> dict[int, list[Row]]:
        assert after == 4
        return COUNTS["".join(sorted(streams))]

    return check(
        [Shown("s", bucket, missing, rows, since)],
        without,
        {"a", "b"},
        lambda row: (row[0], (float(str(row[1])),)),
    )


@pytest.mark.parametrize(
    ("missing", "rows"),
    [
        (("a",), COUNTS["a"][7]),
        (("a",), COUNTS[""][7]),
        (("a",), [("x", 4), ("y", 2)]),
        (("b",), [("x", 2), ("y", 1), ("z", 1)]),
        (("a", "b"), []),
        (("a", "b"), [("y", 1)]),
        ((), COUNTS[""][7]),
        ((), COUNTS[""][7][::-1]),
    ],
)
def test_what_lies_between_passes(missing: tuple[str, ...], rows: list[Row]) -> None:
    assert judged(missing, rows) == []


@pytest.mark.parametrize(
    ("missing", "rows", "text"),
    [
        (("a",), [("x", 3)], "leaves out what was there without ('a',): ['y']"),
        (("a",), [("x", 3), ("y", 1)], "leaves out"),
        (("a",), [], "leaves out"),
        (("a",), [("x", 6), ("y", 2)], "has more than the answer: ['x']"),
        (("a",), [("x", 3), ("x", 2), ("y", 2)], "has more"),
        (("a", "b"), [("w", 1)], "has more"),
        ((), COUNTS["a"][7], "names nothing as missing"),
        ((), [], "names nothing as missing"),
        (("c",), COUNTS["a"][7], "can be"),
        (("a", "a"), COUNTS["a"][7], "can be"),
    ],
)
def test_what_does_not_is_found(missing: tuple[str, ...], rows: list[Row], text: str) -> None:
    wrong = judged(missing, rows)
    assert len(wrong) == 1
    assert text in wrong[0]


def test_a_bucket_without_any_row_may_be_right() -> None:
    assert judged(("a",), [], bucket=8) == []
    assert judged((), [], bucket=8) == []
