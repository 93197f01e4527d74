"""Tests of faults that end a process and keep it away: nothing starts it again before."""

from __future__ import annotations

import pytest

from simulation import drawing, explore
from simulation.faults import UNREACHABLE, Fault

TARGET = "delivery/out"
BACK_MS = 4_000
SEED = 4_001
"""A small one, which is healed after ``BACK_MS``."""


def starts_ms(*faults: Fault) -> list[int]:
    """Return when processes of the target started after the first one."""
    outcome = explore.once(SEED, [*faults], chosen=drawing.draw(SEED))
    assert outcome.wrong == []
    assert outcome.options.heal_ms > BACK_MS
    _, *others = (
        event.at_ms
        for event in outcome.history.events
        if (event.who.partition("#")[0], event.what) == (TARGET, "start")
    )
    return others


def away(at_ms: int, until_ms: int, kind: str = "away") -> Fault:
    return Fault(at_ms, kind, TARGET, 0, until_ms - at_ms)


@pytest.mark.parametrize("kind", ["away", UNREACHABLE])
def test_who_has_ended_before_does_not_start_while_it_is_away(kind: str) -> None:
    crash = Fault(1_000, "crash", TARGET, 0, 0)
    (again_ms,) = starts_ms(crash)
    assert 1_000 < again_ms < 2_000
    assert starts_ms(crash, away(again_ms - 1, BACK_MS, kind)) == [BACK_MS]


def test_a_second_absence_that_is_shorter_does_not_end_the_first() -> None:
    assert starts_ms(away(1_000, BACK_MS), away(1_200, 2_000)) == [BACK_MS]


def test_a_second_absence_that_is_longer_goes_on() -> None:
    assert starts_ms(away(1_000, 2_000), away(1_200, BACK_MS)) == [BACK_MS]
