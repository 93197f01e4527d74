"""The six delay policies in virtual time: what holding back saves, and where suspending breaks
the bound.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.dpc.figures import FailureFigures
from experiments.dpc.policies import BOUND_MS, RATE, run

pytestmark = pytest.mark.no_cover  # the rules have tests of their own

FAILURE_S = 12.0


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
