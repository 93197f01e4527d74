"""A stage in each mode of ``ha`` in virtual time: results are right after each loss, and each mode
costs what its rules say.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.ha.sweep import extra_bytes
from experiments.ha.virtual import (
    ACTIVE,
    AMNESIA,
    MODES,
    PASSIVE,
    STORED,
    UPSTREAM,
    WIDTH_MS,
    Costs,
    Measured,
    Mode,
    Setting,
    VirtualStage,
)

pytestmark = pytest.mark.no_cover  # the rules have tests of their own

WINDOW_S = 4
RATE = 4_000
BUCKET_ROWS = RATE * WIDTH_MS // 1_000


def run(folder: Path, mode: Mode, interval_s: float | None = None) -> Measured:
    setting = Setting(mode, window_s=WINDOW_S, rate=RATE, interval_s=interval_s)
    return VirtualStage(setting, folder).run((0.5,))


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_no_result_is_wrong_and_only_amnesia_loses_any(mode: Mode, tmp_path: Path) -> None:
    found = run(tmp_path, mode)
    assert found.compared > 10
    assert found.wrong == 0
    assert (found.lost > 0) == (mode is AMNESIA)


def test_upstream_backup_processes_two_windows_again_and_keeps_them(tmp_path: Path) -> None:
    found = run(tmp_path, UPSTREAM)
    assert found.rows_again == pytest.approx(2 * WINDOW_S * RATE, abs=2 * BUCKET_ROWS)
    assert found.calm.kept_rows >= 2 * WINDOW_S * RATE


@pytest.mark.parametrize("mode", [STORED, PASSIVE], ids=lambda mode: mode.name)
@pytest.mark.parametrize("interval_s", [2.0, 8.0])
def test_what_came_after_the_checkpoint_is_processed_again(
    mode: Mode, interval_s: float, tmp_path: Path
) -> None:
    found = run(tmp_path, mode, interval_s)
    assert found.rows_again == pytest.approx(interval_s / 2 * RATE, abs=4 * BUCKET_ROWS)


def test_who_has_a_replica_waits_for_nothing_and_who_has_a_standby_for_its_silence(
    tmp_path: Path,
) -> None:
    active, passive, stored = (
        run(tmp_path / mode.name, mode).losses[0].first_ms for mode in (ACTIVE, PASSIVE, STORED)
    )
    assert active <= 2 * WIDTH_MS
    assert 1_500 + Costs().standby_ms <= passive < Costs().detected_ms
    assert stored >= Costs().detected_ms + Costs().start_ms


def test_a_second_replica_reads_the_input_again_and_the_others_send_only_signs_of_life(
    tmp_path: Path,
) -> None:
    active, amnesia = (run(tmp_path / mode.name, mode) for mode in (ACTIVE, AMNESIA))
    assert active.calm.read_again == active.calm.input.size_bytes
    assert active.calm.copies == active.calm.results
    assert active.calm.busy_ms == 2 * amnesia.calm.busy_ms
    assert extra_bytes(amnesia) == amnesia.calm.beats.size_bytes > 0
