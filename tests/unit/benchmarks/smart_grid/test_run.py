"""Words and exit code of the smart grid benchmark for the verdicts of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.smart_grid.__main__ import (
    Outcome,
    exit_code,
    overload,
)
from benchmarks.smart_grid.feeder import Fed
from benchmarks.smart_grid.generator import FIRST_S
from benchmarks.smart_grid.oracle import Expected, Prediction
from benchmarks.smart_grid.receiver import Shown
from benchmarks.smart_grid.validator import judge

NAME = Prediction(FIRST_S + 30, 1, FIRST_S + 120, 0, 1, 2)
START_S = 1_700_000_000.0


def outcome_of(first: dict[Prediction, Shown], truth: dict[Prediction, int]) -> Outcome:
    fed = Fed(100, 10.0, 0.0, {FIRST_S + second: START_S + second for second in range(29)})
    expected = Expected(predictions=truth)
    return Outcome(judge(expected, [], []), fed, expected, first, 20.0, 1.0, 0.0)


def test_what_the_live_topic_showed_first_is_judged() -> None:
    other, never = NAME._replace(plug=3), NAME._replace(plug=4)
    late = NAME._replace(due=FIRST_S + 60)
    outcome = outcome_of(
        {
            NAME: Shown(900, START_S + 30, is_tentative=True, shed_permille=400),
            other: Shown(500, START_S + 29, is_tentative=False, shed_permille=0),
        },
        {NAME: 1_000, other: 500, never: 1, late: 1},
    )
    found = overload(outcome, FIRST_S, FIRST_S + 30)
    assert found.latencies_s == (2.0, 1.0), "nothing was fed in the pane's last second"
    assert found.errors == (0.1,)
    assert found.errors_mw == (100.0,)
    assert (found.shed_permille, found.unshown) == (400, 1)
    assert outcome.readings_per_s == 5


@pytest.mark.parametrize(
    ("came_s", "per_s"),
    [
        ({}, 5),
        ({10: 40.0, 20: 45.0, 29: 50.0}, 9 / 29 * 100 / 5),
        ({10: 40.0, 20: 44.9, 29: 45.0}, 19 / 29 * 100 / 5),  # the second half came at once
        ({10: 40.0, 29: 41.0}, 5),  # too short
        ({10: 50.0, 20: 50.0}, 5),  # one batch had it all
        ({10: 1.0, 20: 2.0, 29: 50.0}, 5),  # never less than that of the whole run
    ],
)
def test_the_rate_of_a_warm_node_is_that_of_the_second_half(
    came_s: dict[int, float], per_s: float
) -> None:
    found = {FIRST_S + due: START_S + at_s for due, at_s in came_s.items()}
    outcome = replace(outcome_of({}, {}), came_s=found)
    assert outcome.warm_readings_per_s == pytest.approx(per_s)


def test_a_run_in_which_nothing_was_left_out_shows_no_overload() -> None:
    assert exit_code(is_valid=True, shed_permille=120) == 0
    assert exit_code(is_valid=True, shed_permille=0) == 2
    assert exit_code(is_valid=False, shed_permille=0) == 1
