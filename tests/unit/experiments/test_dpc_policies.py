"""The six delay policies in virtual time: what holding back saves, and where suspending breaks
the bound.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.protocol.stage.availability import Policy, Waits
from experiments.dpc.figures import FailureFigures
from experiments.dpc.policies import BOUND_MS, RATE, TwoPhaseAvailability, run

pytestmark = pytest.mark.no_cover  # the rules have tests of their own

FAILURE_S = 12.0
WAITS = Waits(2_000, 500)


def figures(name: str, folder: Path) -> FailureFigures:
    (found,) = run(name, folder / name.replace(" ", ""), failures_s=(FAILURE_S,)).failures
    return found


def test_suspending_while_correcting_breaks_the_bound_that_processing_keeps(tmp_path: Path) -> None:
    process = figures("Process & Process", tmp_path)
    suspend = figures("Process & Suspend", tmp_path)
    assert process.delay_ms <= BOUND_MS < suspend.delay_ms
    assert suspend.tentative_rows < process.tentative_rows


def test_holding_back_while_correcting_saves_less_than_a_long_wait_of_results(
    tmp_path: Path,
) -> None:
    process, delay = (figures(f"Process & {name}", tmp_path) for name in ("Process", "Delay"))
    saved = process.tentative_rows - delay.tentative_rows
    assert 0 < saved <= RATE * 3
    assert delay.delay_ms <= BOUND_MS


def test_without_tentative_results_the_failure_is_the_delay(tmp_path: Path) -> None:
    found = figures("`suspend`", tmp_path)
    assert found.tentative_rows == 0
    assert found.delay_ms >= 1_000 * FAILURE_S


@pytest.mark.parametrize(
    ("correcting", "due"), [(Policy.PROCESS, 7), (Policy.DELAY, 3), (Policy.SUSPEND, 0)]
)
def test_a_complete_bucket_waits_as_the_policy_says(correcting: Policy, due: int) -> None:
    availability = TwoPhaseAvailability(["a"], WAITS, Policy.PROCESS, correcting)
    availability.observe(0, 2, 7)
    availability.observe(500, 6, 7)
    for at_ms in (1_000, 1_500, 2_100):
        availability.observe(at_ms, 6, 7)
    availability.read_to_end("a", 2_100)
    assert availability.due_upto(7, 7) == 7
    availability.is_correcting = True
    assert availability.due_upto(7, 7) == due
    assert availability.policy is Policy.PROCESS
