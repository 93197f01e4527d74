"""How far apart batches are, who serves new results, and when a branch leaves the cores to the
correction. Rows of the correction gate: ``test_scheduling_transcripts.py``; its invariants:
``test_scheduling_properties.py``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.control.failure_detector import FailureDetector
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.limits import FAILURE_AFTER_MS
from anabranch.protocol.stage.planner import PlanTraits
from anabranch.protocol.stage.scheduling import (
    APART_LEAST_MS,
    APART_MOST_MS,
    CORRECTION_STEP_MS,
    CORRECTION_STEPS_ALONE,
    CORRECTION_STEPS_SERVED,
    BatchPacing,
    BatchRules,
    CorrectionGate,
    CorrectionWatch,
    Pace,
    ResultSpacing,
    pace_ms,
    quiet_every_ms,
)

NOW = 1_000_000
BEAT = Heartbeat("processing", "tolls", "0", 7, "running", 0, NOW, "up_failure")


def test_who_serves_new_results_meanwhile() -> None:
    detector, now = FailureDetector.of_replicas({"tolls": "012"}), NOW
    gate = CorrectionGate("tolls", "1", detector)
    gate.open(now)

    def hears(replica: str, **other: object) -> None:
        beat = replace(BEAT, replica=replica, written_ms=now, **other)  # type: ignore[arg-type]
        detector.receive(beat, now)

    assert not gate.peer_serves(now)
    for state, serves in (
        ("", False),
        ("failure", False),
        ("stable", True),
        ("up_failure", True),
        ("stabilization", True),
    ):
        hears("2", replica_state=state)
        assert gate.peer_serves(now) is serves, state
    hears("2", replica_state="stabilization", corrects=True)
    assert not gate.peer_serves(now)
    hears("0", replica_state="stable")
    assert gate.peer_serves(now)
    for _ in range(FAILURE_AFTER_MS // 100):
        now += 100
        gate.open(now)
    assert not gate.peer_serves(now), "it is not heard any more"


def test_bp1_there_is_a_least_and_a_most() -> None:
    assert pace_ms(0, 1) == APART_LEAST_MS
    assert pace_ms(1_000, 1) == APART_MOST_MS


def test_bp2_batches_take_the_same_share_of_the_cores() -> None:
    assert [pace_ms(replicas, 2) for replicas in range(7)] == [
        200,
        200,
        400,
        600,
        800,
        1_000,
        1_000,
    ]
    assert [pace_ms(8, cores) for cores in (2, 4, 8, 16, 64)] == [1_000, 800, 400, 200, 200]


@pytest.mark.parametrize(
    ("is_read", "wait_ms", "quiet_ms"),
    [(True, 9_000, 300), (False, 9_000, 1_000), (False, 900, 450), (True, 0, 0)],
)
def test_bp4_what_is_quiet_waits_for_less_where_stages_read_it(
    is_read: bool, wait_ms: int, quiet_ms: int
) -> None:
    assert quiet_every_ms(is_read=is_read, wait_ms=wait_ms) == quiet_ms


class TestBp3WhereResultsAre:
    def test_at_first_they_may_be_anywhere(self) -> None:
        spacing = ResultSpacing()
        assert spacing.expected(0, 1)
        spacing.seen([8])
        assert spacing.expected(8, 9)
        assert not spacing.is_sparse(250, 200)

    def test_windows_end_at_every_so_manieth_bucket(self) -> None:
        spacing = ResultSpacing()
        spacing.seen([24, 24, 40])
        spacing.seen([])
        spacing.seen([48])
        assert spacing.buckets == 8
        assert [upto for upto in range(49, 66) if spacing.expected(upto - 1, upto)] == [56, 64]
        assert spacing.expected(48, 70)
        assert [upto for upto in range(20, 34) if spacing.expected(upto - 1, upto)] == [24, 32], (
            "a correction begins before"
        )

    def test_one_between_them_makes_them_closer(self) -> None:
        spacing = ResultSpacing()
        spacing.seen([24, 32, 29, 40])
        assert spacing.buckets == 1

    @pytest.mark.parametrize(
        ("pace_ms", "is_sparse"), [(0, False), (200, True), (1_000, True), (1_001, False)]
    )
    def test_sparse_are_fewer_than_every_other_batch(self, pace_ms: int, is_sparse: bool) -> None:
        spacing = ResultSpacing()
        spacing.seen([8, 16])
        assert spacing.is_sparse(250, pace_ms) == is_sparse


PACE_MS = 400


def starts(arrivals: list[int], *, reads_stages: bool) -> list[int]:
    """Return when a query begins batches whose input comes at ``arrivals``, in ms; a batch takes
    all that has come.
    """
    rules = BatchRules(100, pace_ms=PACE_MS, reads_stages=reads_stages)
    pacing = BatchPacing(rules, PlanTraits(is_stateful=False, is_batch_safe=True))
    found, due_ms = list[int](), 0
    left = sorted(arrivals)
    while left:
        found.append(max(due_ms, left[0]))
        due_ms, is_capped = pacing.next_at(due_ms, 1, found[-1])
        assert not is_capped
        left = [each for each in left if each > found[-1]]
    return found


class TestBp6SlotsAreKept:
    LATE_ONCE = (10_000, 10_400, 11_000, 11_200, 11_600, 12_000)

    def test_an_input_that_is_late_delays_one_batch(self) -> None:
        assert starts([*self.LATE_ONCE], reads_stages=True) == [*self.LATE_ONCE]

    def test_where_sources_are_read_the_pace_counts_from_the_late_one(self) -> None:
        found = starts([*self.LATE_ONCE], reads_stages=False)
        assert found == [10_000, 10_400, 11_000, 11_400, 11_800, 12_200]

    def test_without_input_for_long_there_is_one_batch_more_and_not_many(self) -> None:
        every_bucket = [*range(60_000, 62_000, 100)]
        found = starts([10_000, *every_bucket], reads_stages=True)
        assert found == [10_000, 60_000, 60_100, 60_400, 60_800, 61_200, 61_600, 62_000]

    def test_one_that_was_awaited_is_followed_by_a_whole_pace(self) -> None:
        rules = BatchRules(100, pace_ms=PACE_MS, reads_stages=True)
        pacing = BatchPacing(rules, PlanTraits(is_stateful=True, is_batch_safe=True))
        assert pacing.next_at(9_000, 1, 8_700) == (8_700 + PACE_MS, False)

    @given(st.lists(st.integers(0, 3 * PACE_MS), max_size=30))
    def test_over_any_time_there_is_one_batch_more_at_most(self, gaps: list[int]) -> None:
        found = starts([*accumulate([10_000, *gaps])], reads_stages=True)
        for first, begun in enumerate(found):
            for number, ended in enumerate(found[first:], 1):
                assert number <= 2 + (ended - begun) // PACE_MS

    @given(st.lists(st.integers(0, PACE_MS), min_size=1, max_size=30))
    def test_no_input_of_a_paced_stage_waits_however_long_its_batches_take(
        self, takes: list[int]
    ) -> None:
        arrivals = [10_000 + number * PACE_MS + each for number, each in enumerate(takes)]
        assert starts(arrivals, reads_stages=True) == sorted(set(arrivals))


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
