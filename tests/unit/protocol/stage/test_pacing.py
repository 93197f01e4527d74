"""How far apart batches are, and when a branch leaves the cores to the correction."""

from __future__ import annotations

from anabranch.protocol.stage.pacing import (
    APART_LEAST_MS,
    APART_MOST_MS,
    CORRECTION_STEP_MS,
    CORRECTION_STEPS_ALONE,
    CORRECTION_STEPS_SERVED,
    SMALL_BATCH_MS,
    CorrectionWatch,
    Pace,
    pace_ms,
)


def test_bp1_there_is_a_least_and_a_most() -> None:
    assert pace_ms(0, 1) == APART_LEAST_MS
    assert pace_ms(1_000, 1) == APART_MOST_MS


def test_bp2_each_replica_more_than_there_are_cores_adds_a_batch() -> None:
    found = [pace_ms(replicas, 2) - APART_LEAST_MS for replicas in range(6)]
    assert found == [0, 0, 0, SMALL_BATCH_MS, 2 * SMALL_BATCH_MS, 3 * SMALL_BATCH_MS]


FREE = Pace.FREE
PACED = Pace.PACED
SUSPENDED = Pace.SUSPENDED


class Correction:
    """One that is watched."""

    def __init__(self) -> None:
        self.watch, self.now_ms = CorrectionWatch(), 0

    def steps(self, *lags: int) -> CorrectionWatch:
        for lag in lags:
            self.watch.lags(self.now_ms, lag)
            self.now_ms += CORRECTION_STEP_MS
        return self.watch


def paces(watch: CorrectionWatch) -> tuple[Pace, Pace]:
    return watch.pace(peer_serves=False), watch.pace(peer_serves=True)


def test_pa1_while_it_comes_nearer_the_branch_is_free() -> None:
    correction = Correction()
    assert paces(correction.watch) == (FREE, FREE)
    assert paces(correction.steps(*range(100, 10, -1))) == (FREE, FREE)


def test_where_it_does_not_the_branch_is_paced_then_suspended() -> None:
    correction = Correction()
    found = [paces(correction.steps(50)) for _ in range(CORRECTION_STEPS_ALONE + 2)]
    assert found[:2] == [(FREE, FREE), (PACED, PACED)]
    assert found[CORRECTION_STEPS_SERVED] == (PACED, SUSPENDED)
    assert found[CORRECTION_STEPS_ALONE - 1] == (PACED, SUSPENDED)
    assert found[CORRECTION_STEPS_ALONE:] == [(SUSPENDED, SUSPENDED)] * 2


def test_one_that_is_late_itself_serves_nobody() -> None:
    correction = Correction()
    correction.steps(50, 50).branch_is_late()
    assert paces(correction.watch) == (PACED, PACED)
    assert paces(correction.steps(50)) == (SUSPENDED, SUSPENDED)


def test_a_step_is_over_after_its_time_only() -> None:
    correction = Correction()
    correction.watch.lags(0, 50)
    correction.watch.lags(CORRECTION_STEP_MS - 1, 90)
    assert paces(correction.watch) == (FREE, FREE)
    correction.watch.lags(CORRECTION_STEP_MS, 50)
    assert paces(correction.watch) == (PACED, PACED)


def test_pa2_the_pace_only_falls() -> None:
    correction = Correction()
    assert paces(correction.steps(50, 50, 40, 30)) == (PACED, PACED)
    assert paces(correction.steps(30)) == (PACED, SUSPENDED)


def test_pa3_time_in_which_it_waits_for_its_turn_does_not_count() -> None:
    correction = Correction()
    correction.steps(50, 50).waits()
    correction.steps(70)
    assert paces(correction.watch) == (PACED, PACED)


def test_pa3_the_next_one_begins_anew() -> None:
    correction = Correction()
    correction.steps(50, 50, 50).branch_is_late()
    correction.watch.ended()
    assert paces(correction.watch) == (FREE, FREE)
    assert paces(correction.steps(50, 50, 50)) == (PACED, SUSPENDED), "its branch is not late"
