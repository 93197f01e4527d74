"""The checker of the scaler's moves finds what each of its rules forbids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from checkers.scaling import Moved, Reported, Scaled, check, place

HOME, POOL = "north.0", "north.7"
BUSY = [Reported(at_ms, 600, 0) for at_ms in range(0, 20_000, 1_000)]
IDLE = [Reported(at_ms, None, 0) for at_ms in range(0, 20_000, 1_000)]
KNOWN = Scaled(
    HOME, [POOL], (), {HOME: BUSY, POOL: IDLE}, [(100, HOME)], 250, 2_000, 1_500, 2_500, 500
)


def moved(at_ms: int, node: str, cause: str, only_from: str = "") -> Moved:
    return Moved(at_ms, node, only_from, cause, withdrawn=False)


SLIDE = moved(5_000, POOL, "overload", HOME)
BACK = moved(9_500, HOME, "back", POOL)
BEGUN = [(100, HOME), (6_000, POOL), (10_500, HOME)]


def test_a_slide_and_the_way_back_are_right() -> None:
    known = replace(KNOWN, moves=[SLIDE, BACK], begun=BEGUN)
    assert list(check(known)) == []
    assert (place(known), place(KNOWN)) == (HOME, HOME)
    assert place(replace(KNOWN, moves=[SLIDE])) == POOL


def test_of_two_decisions_from_one_place_one_counts() -> None:
    """MZ6."""
    late = moved(5_100, POOL, "overload", HOME)
    stray = moved(5_200, HOME, "back", "north.9")
    assert list(check(replace(KNOWN, moves=[SLIDE, late, stray]))) == []
    assert place(replace(KNOWN, moves=[SLIDE, stray])) == POOL


@pytest.mark.parametrize(
    ("known", "rule"),
    [
        (replace(KNOWN, moves=[moved(5_000, "", "", "")]), "MZ1"),
        (replace(KNOWN, moves=[moved(5_000, "north.9", "", "")]), "MZ1"),
        (replace(KNOWN, moves=[moved(5_000, POOL, "lost", HOME)]), "MZ2"),
        (replace(KNOWN, moves=[SLIDE, moved(5_800, HOME, "target_lost", POOL)]), "MZ2"),
        (
            replace(KNOWN, moves=[SLIDE, moved(6_500, HOME, "back", POOL)], begun=BEGUN),
            "MZ3",
        ),
        (replace(KNOWN, moves=[SLIDE, BACK], begun=[(4_900, HOME)]), "MZ4"),
        (
            replace(
                KNOWN,
                moves=[SLIDE],
                reports={HOME: [each._replace(busy=10) for each in BUSY[:5]]},
            ),
            "MZ5",
        ),
        (
            replace(
                KNOWN,
                moves=[SLIDE],
                reports={HOME: [each._replace(is_cold=each.at_ms == 4_000) for each in BUSY]},
            ),
            "MZ7",
        ),
        (replace(KNOWN, moves=[SLIDE], reports={HOME: BUSY}), "MZ8"),
        (
            replace(
                KNOWN, moves=[moved(15_000, POOL, "overload")], reports={HOME: BUSY, POOL: IDLE[:3]}
            ),
            "MZ8",
        ),
    ],
)
def test_what_is_wrong_is_found(known: Scaled, rule: str) -> None:
    assert any(f"({rule})" in line for line in check(known))


@pytest.mark.parametrize(
    "reports",
    [[], BUSY[:1], [Reported(each.at_ms, 10, each.at_ms) for each in BUSY]],
    ids=["none", "long ago", "it falls behind"],
)
def test_a_node_that_was_silent_is_lost_and_one_that_falls_behind_is_overloaded(
    reports: Sequence[Reported],
) -> None:
    lost = moved(5_000, POOL, "lost", HOME)
    if not reports or reports[-1].at_ms < 2_000:
        assert list(check(replace(KNOWN, moves=[lost], reports={HOME: reports, POOL: IDLE}))) == []
    else:
        assert list(check(replace(KNOWN, moves=[SLIDE], reports={HOME: reports, POOL: IDLE}))) == []
