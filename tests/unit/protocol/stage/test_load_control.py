"""Cost of batches, lateness of a stage, share that its branch keeps, and use of the cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.stage.availability import waits_of
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.load_control import (
    COLD_MOST_MS,
    COST_BATCHES,
    EXTRAPOLATED_TIMES,
    FORECAST_AFTER_MS,
    HOLD_MS,
    KEPT_LEAST,
    KEPT_RISE,
    KEPT_STEP,
    LOAD_WINDOW_MS,
    OVERLOADED,
    RESUMED,
    ROWS_FIRST,
    ROWS_UNKNOWN,
    WORK_LEAST_MS,
    ArrivalRate,
    BacklogForecast,
    BatchCost,
    LoadControl,
    shed_bound_ms,
    target_of,
    time_left_ms,
)

TARGET_MS = 1_000


def took_ms(rows: int) -> int:
    """Duration of a batch: 100 ms, and 1 ms a row."""
    return 100 + rows


def control(*batches: int, beside: bool = False) -> LoadControl:
    """Return a control that has measured batches of so many rows."""
    made = LoadControl(TARGET_MS)
    for rows in batches:
        made.took(rows, took_ms(rows), beside=beside)
    return made


def keeping(kept: int) -> LoadControl:
    """Return a control whose branch has begun, and keeps ``kept`` per mille of 2 000 rows."""
    made = control(100, 1_000, 1_000)
    made.keep(2_000, 300, 0, beside=False, yields=0)
    made.steady = made.kept = kept
    return made


def arriving(made: LoadControl, rows_per_s: int, until_ms: int = 2 * LOAD_WINDOW_MS) -> LoadControl:
    """Let rows arrive, ten times a second, from 0 on."""
    made.arrivals.begin(0)
    for now_ms in range(100, until_ms + 1, 100):
        made.arrivals.arrived(now_ms, rows_per_s // 10)
    return made


class TestBatchCost:
    def test_batches_of_different_sizes_tell_the_fixed_part_from_that_of_a_row(self) -> None:
        assert not BatchCost().is_known
        cost = BatchCost()
        for rows in (100, 1_000, 1_000):
            cost.took(rows, took_ms(rows))
        assert cost.is_known
        assert (cost.fixed_ms, cost.row_ms()) == (100.0, 1.0)

    def test_of_batches_of_one_size_the_shortest_counts_as_the_fixed_part(self) -> None:
        cost = BatchCost()
        for took in (500, 480, 520):
            cost.took(1_000, took)
        assert cost.fixed_ms == 480
        assert cost.row_ms() == pytest.approx(0.02)

    def test_while_all_batches_have_one_size_a_target_at_most_is_fixed(self) -> None:
        cost = BatchCost(TARGET_MS)
        for took in (4_000, 3_000, 4_000):
            cost.took(1_000, took)
        assert (cost.fixed_ms, cost.row_ms()) == (TARGET_MS, 3.0)
        cost.took(100, 2_700)
        assert cost.fixed_ms > 2 * TARGET_MS, "the sizes tell it"

    def test_a_batch_is_longest_if_no_part_of_it_is_fixed(self) -> None:
        cost = BatchCost(TARGET_MS)
        assert cost.longest_ms(50) == 0.0
        for took in (300, 300):
            cost.took(100, took)
        assert cost.longest_ms(400) == pytest.approx(1_200)
        assert cost.longest_ms(50) == pytest.approx(300)
        cost.took(400, 600)
        assert cost.longest_ms(800) == pytest.approx(1_000)

    def test_faster_large_batches_make_no_row_cheaper_than_nothing(self) -> None:
        cost = BatchCost()
        cost.took(100, 500)
        cost.took(1_000, 400)
        assert (cost.fixed_ms, cost.row_ms()) == (400.0, 0.0)

    @pytest.mark.parametrize(
        ("batches", "fixed_ms"),
        [
            ([(100, 4_100), (10, 4_010)], 4_000),  # fewer rows save next to nothing
            ([(100, 4_100), (10, 4_010), (15, 4_015), (0, 4_000), (0, 4_000)], 4_000),
            ([(100, 4_000), (10, 4_400)], 4_000),
            ([(100, 7_900), (10, 4_000)], 3_310),
            ([(100, 8_100), (10, 4_000)], 140),  # they save half of it
            ([(100, 4_100), (10, 1_500), (10, 1_500)], 140),  # they may be in time
            ([(100, 4_100), (10, 4_010), (10, 200), (10, 200)], 140),  # it is over
            ([(100, 4_100), (10, 4_010), (100, 3_000), (100, 3_000)], 3_000),
        ],
    )
    def test_ol9_what_fewer_rows_do_not_save_is_no_cost_of_rows(
        self, batches: list[tuple[int, int]], fixed_ms: int
    ) -> None:
        cost = BatchCost(TARGET_MS)
        for rows, took_ms in [(20, 140), (20, 4_020), *batches]:
            cost.took(rows, took_ms)
        assert cost.fixed_ms == pytest.approx(fixed_ms, abs=60)

    def test_ol9_batches_of_one_size_do_not_tell_it(self) -> None:
        cost = BatchCost(TARGET_MS)
        for rows, took_ms in [(100, 140), (100, 4_100), (60, 4_060)]:
            cost.took(rows, took_ms)
        assert cost.fixed_ms == 140

    def test_ol9_it_stays_known_while_all_batches_have_one_size(self) -> None:
        cost = BatchCost(TARGET_MS)
        for rows, took_ms in [(20, 140), (20, 4_020), (100, 4_100), *[(80, 4_080)] * 20]:
            cost.took(rows, took_ms)
        assert cost.fixed_ms == pytest.approx(4_000, abs=1)
        assert cost.row_ms() == pytest.approx(1, abs=0.1)

    def test_a_batch_without_rows_says_nothing_of_rows(self) -> None:
        cost = BatchCost()
        cost.took(0, 5)
        assert (cost.fixed_ms, cost.rows_measured, cost.row_ms()) == (0.0, 0, 0.0)

    def test_ol2_one_slow_batch_does_not_move_the_cost(self) -> None:
        cost = BatchCost()
        for rows in (100, 400, 400, 400, 400):
            cost.took(rows, took_ms(rows))
        cost.took(400, 9_000)
        assert cost.row_ms() < 1.5
        assert cost.row_ms_twice() < 1.5

    def test_small_batches_predict_nothing_for_large_ones(self) -> None:
        cost = BatchCost()
        for rows in (1_000, 1_000, 10, 10):
            cost.took(rows, took_ms(rows))
        assert cost.row_ms_twice() == pytest.approx(1.0)


class TestArrivalRate:
    def test_rows_of_the_window_count(self) -> None:
        rate = ArrivalRate()
        assert rate.rows_per_ms(5) == 0.0
        rate.arrived(1_000, 500)  # before it was begun: it begins here
        assert rate.rows_per_ms(2_000) == 0.0
        rate.arrived(2_000, 500)
        rate.arrived(3_000, 0)
        assert rate.rows_per_ms(3_000) == pytest.approx(0.25)
        assert rate.rows_per_ms(2_000 + LOAD_WINDOW_MS) == 0.0

    def test_what_came_before_a_pause_does_not(self) -> None:
        rate = ArrivalRate()
        rate.begin(0)
        rate.arrived(100, 1_000)
        rate.begin(200)
        assert rate.rows_per_ms(300) == 0.0


class TestLate:
    def test_ol1_nothing_is_late_without_two_batches(self) -> None:
        assert not control().is_late(1_000_000, 100)
        assert not control(1_000).is_late(1_000_000, 100)
        assert control(100, 1_000, 1_000).is_late(1_000_000, 100)

    @pytest.mark.parametrize(
        ("waiting", "left_ms", "late"),
        [
            (1_800, 2_000, False),
            (2_000, 2_000, True),  # with the fixed part
            (WORK_LEAST_MS, 100, False),
            (WORK_LEAST_MS + 1, 100, True),
            (2 * TARGET_MS, 0, False),  # it is late already, but not for long
            (2 * TARGET_MS + 1, -5_000, True),
        ],
    )
    def test_the_rows_that_wait_take_longer_than_the_time_left(
        self, waiting: int, left_ms: int, late: bool
    ) -> None:
        assert control(100, 1_000, 1_000).is_late(waiting, left_ms) == late

    def test_where_each_bucket_has_a_batch_their_fixed_parts_wait_too(self) -> None:
        made = LoadControl(TARGET_MS, 500)
        for _ in range(2):
            made.took(100, 600, beside=False)
        assert not made.is_late(300, 1_900, batches=3)
        assert made.is_late(400, 1_900, batches=4)

    def test_batches_are_bounded_by_what_was_measured(self) -> None:
        assert control().rows_max == ROWS_UNKNOWN, "OL11"
        assert control(100, 10_000).rows_max == ROWS_FIRST
        assert control(100, 10_000, 10_000).rows_max == EXTRAPOLATED_TIMES * 10_000

    def test_ol10_rows_that_made_a_later_batch_longer_bound_the_first_ones(self) -> None:
        made = control()
        made.took_cold(100, 7_000)
        made.took_cold(400, 6_500)
        assert made.rows_max == made.branch_rows_max == ROWS_UNKNOWN, "Java compiles less"
        made.took_cold(800, 14_500)
        assert made.rows_max == made.branch_rows_max == COLD_MOST_MS // 20
        made.took(200, 2_200, beside=False)
        assert made.rows_max == COLD_MOST_MS // 20
        assert not made.is_late(100_000, 0), "OL1"
        made.took(200, 2_200, beside=False)
        made.took_cold(900, 90_000)
        assert made.rows_max == ROWS_FIRST, "its cost is known, and decides whether it is late"

    def test_few_expensive_rows_do_not_predict_many(self) -> None:
        made = control()
        for rows, duration_ms in ((18, 487), (11, 295), (13, 361)):
            made.took(rows, duration_ms, beside=False)
        assert made.branch_rows_max == EXTRAPOLATED_TIMES * 13
        assert made.rows_max == ROWS_FIRST, "of the stable query"
        assert control(100, 950).branch_rows_max < ROWS_FIRST, "those that surely take a second"
        assert control(300, 300).branch_rows_max == EXTRAPOLATED_TIMES * 300

    def test_batches_that_took_no_time_bound_nothing(self) -> None:
        made = control()
        for _ in range(2):
            made.took(5, 0, beside=False)
        assert made.branch_rows_max == ROWS_FIRST

    def test_the_rows_of_a_duration(self) -> None:
        assert control().rows_within(1_000) == ROWS_UNKNOWN
        assert control(100, 1_000, 1_000).rows_within(1_000) == 900
        assert control(100, 1_000, 1_000).rows_within(100_000) == EXTRAPOLATED_TIMES * 1_000

    @pytest.mark.parametrize(("waiting", "left_of_two_targets_ms"), [(0, 1_800), (200, 1_400)])
    def test_ol12_a_correction_may_take_what_short_batches_leave(
        self, waiting: int, left_of_two_targets_ms: int
    ) -> None:
        made = control(100, 1_000, 1_000)
        assert made.keep(waiting, 5_000, 0, beside=False, yields=None) == KEPT_ALL
        assert made.correction_ms == left_of_two_targets_ms

    def test_ol12_it_may_take_a_target_however_long_those_of_the_branch_are(self) -> None:
        made = control(100, 1_000, 1_000)
        assert made.keep(3_000, 1_000, 0, beside=False, yields=None) < KEPT_ALL
        assert made.correction_ms == made.target_ms

    def test_ol12_the_less_the_branch_keeps_the_longer_it_may_take(self) -> None:
        made = arriving(control(100, 1_000, 1_000), 600)
        allowed = []
        for yields in range(4):
            made.keep(600, 5_000, 10_000, beside=True, yields=yields)
            allowed.append(made.correction_ms)
        assert allowed == sorted(set(allowed))


class TestCores:
    def test_the_use_is_the_load_by_the_capacity(self) -> None:
        made = control(100, 1_000, 1_000)
        assert made.use(0) == 0
        assert arriving(made, 900).use(10_000) == pytest.approx(1_000, abs=30)
        assert arriving(control(), 900).use(10_000) is None

    def test_ol5_corrections_begin_after_a_while_below_the_threshold(self) -> None:
        made = control(100, 1_000, 1_000)
        made.forked()
        now_ms = 10_000
        arriving(made, 450, now_ms)
        made.watch(now_ms)
        made.watch(now_ms + HOLD_MS - 1)
        assert made.is_overloaded
        made.watch(now_ms + HOLD_MS)
        assert not made.is_overloaded

    def test_ol5_a_lull_does_not_count(self) -> None:
        made = control(100, 1_000, 1_000)
        made.forked()
        made.watch(0)
        arriving(made, 2_000, HOLD_MS)
        made.watch(HOLD_MS)
        assert made.is_overloaded
        made.watch(HOLD_MS + LOAD_WINDOW_MS)
        assert made.is_overloaded
        made.watch(2 * HOLD_MS + LOAD_WINDOW_MS)
        assert not made.is_overloaded

    @pytest.mark.parametrize(
        ("was", "use", "overloaded"),
        [
            (False, OVERLOADED + 50, True),
            (False, RESUMED + 50, False),
            (True, RESUMED + 50, True),
        ],
    )
    def test_between_the_thresholds_nothing_changes(
        self, was: bool, use: int, overloaded: bool
    ) -> None:
        made = arriving(control(100, 1_000, 1_000), use * 900 // 1_000)
        made.is_late_itself = was
        for now_ms in (10_000, 10_000 + HOLD_MS // 2):
            made.watch(now_ms)
        assert made.is_overloaded == overloaded

    def test_an_unknown_use_changes_nothing(self) -> None:
        made = arriving(control(), 1_000)
        made.watch(10_000)
        assert not made.is_overloaded

    def test_a_stuck_correction_waits_until_the_cost_was_measured_anew(self) -> None:
        made = arriving(control(100, 1_000, 1_000), 450)
        made.stuck()
        assert (made.is_overloaded, made.use(10_000)) == (True, None)
        for _ in range(COST_BATCHES):
            made.took(0, 100, beside=False)
            made.took(1_000, took_ms(1_000), beside=True)
            assert made.use(10_000) is None
            made.took(1_000, took_ms(1_000), beside=False)
        assert made.use(10_000) == pytest.approx(500, abs=30)

    def test_after_the_branch_everything_is_as_before(self) -> None:
        made = control(100, 1_000, 1_000)
        made.forked()
        made.keep(10_000, 500, 0, beside=False, yields=0)
        made.ended()
        assert (made.kept, made.is_overloaded) == (KEPT_ALL, False)


class TestKept:
    def test_it_is_what_fits_into_the_time_left(self) -> None:
        made = control(100, 1_000, 1_000)
        assert made.keep(10_000, 1_000, 0, beside=False, yields=0) == 90

    def test_with_much_time_left_the_target_counts(self) -> None:
        made = control(100, 1_000, 1_000)
        assert made.keep(9_000, 8_000, 0, beside=False, yields=0) == 100

    def test_without_time_left_a_part_of_the_target_counts(self) -> None:
        made = control(100, 1_000, 1_000)
        assert made.keep(10_000, -900, 0, beside=False, yields=0) == 25

    def test_ol4_the_steady_share_rises_by_steps_of_some_size(self) -> None:
        made = keeping(500)
        assert made.keep(1_000, 10_000, 0, beside=False, yields=0) == 500 + KEPT_RISE
        made = keeping(900 - KEPT_STEP + 1)
        assert made.keep(1_000, 10_000, 0, beside=False, yields=0) == 900 - KEPT_STEP + 1

    def test_the_last_step_to_all_may_be_small(self) -> None:
        made = keeping(KEPT_ALL - 1)
        assert made.keep(100, 10_000, 0, beside=False, yields=0) == KEPT_ALL

    def test_what_waited_for_the_fork_limits_no_batch_but_the_first(self) -> None:
        made = control(100, 1_000, 1_000)
        assert made.keep(10_000, -900, 0, beside=False, yields=0) == 25
        assert made.keep(2_000, 1_500, 0, beside=False, yields=0) == 450
        assert made.keep(2_000, 1_500, 0, beside=False, yields=0) == 450

    def test_a_batch_that_is_short_of_time_limits_no_other(self) -> None:
        made = keeping(450)
        assert made.keep(2_000, 300, 0, beside=False, yields=0) == 125
        assert made.keep(2_000, 1_500, 0, beside=False, yields=0) == 450

    def test_a_branch_that_is_in_time_keeps_all(self) -> None:
        made = control(100, 1_000, 1_000)
        assert made.keep(1_000, 3_000, 0, beside=False, yields=None) == KEPT_ALL
        assert made.keep(1_000, 3_000, 0, beside=True, yields=None) == KEPT_ALL

    def test_a_branch_that_begins_when_the_wait_is_over_sheds_sooner_than_a_stage_forks(
        self,
    ) -> None:
        made = control(100, 1_000, 1_000)
        assert not made.is_late(1_500, 0)
        assert made.keep(1_500, 0, 0, beside=False, yields=None) == 166

    def test_beside_a_correction_it_leaves_half_of_what_the_load_leaves(self) -> None:
        made = arriving(control(100, 1_000, 1_000), 450)
        assert made.keep(100, 10_000, 10_000, beside=True, yields=0) == pytest.approx(500, abs=30)
        assert made.keep(100, 10_000, 10_000, beside=True, yields=2) == pytest.approx(125, abs=10)

    def test_above_the_threshold_for_corrections_it_keeps_what_it_does_there(self) -> None:
        made = arriving(control(100, 1_000, 1_000), 2_000)
        spare = (1_000 - RESUMED) * KEPT_ALL // (2 * RESUMED)
        assert made.keep(100, 10_000, 10_000, beside=True, yields=0) == spare

    def test_batches_beside_a_correction_have_a_cost_of_their_own(self) -> None:
        made = control(100, 1_000, 1_000)
        for rows in (100, 1_000, 1_000):
            made.took(rows, 2 * took_ms(rows), beside=True)
        assert made.keep(10_000, 1_000, 0, beside=True, yields=None) == 40

    def test_ol8_before_they_are_measured_the_branch_has_half_of_the_time(self) -> None:
        alone, beside, late = (control(100, 1_000, 1_000) for _ in range(3))
        assert alone.keep(10_000, 1_000, 0, beside=False, yields=None) == 90
        assert beside.keep(10_000, 1_000, 0, beside=True, yields=None) == 40
        assert late.keep(10_000, -900, 0, beside=True, yields=0) == 25

    def test_ol8_while_all_batches_alone_have_one_size_those_beside_cost_what_they_may(
        self,
    ) -> None:
        made = LoadControl(TARGET_MS)
        for rows, duration_ms, beside in [(10, 250, False)] * 3 + [(40, 2_000, True)] * 2:
            made.took(rows, duration_ms, beside=beside)
        assert made.keep(160, 1_000, 0, beside=True, yields=None) < 500

    def test_ol8_without_batches_alone_those_beside_count_as_they_are(self) -> None:
        made = control(100, 1_000, 1_000, beside=True)
        assert made.keep(10_000, 1_000, 0, beside=True, yields=None) == 90

    def test_ol8_to_wait_for_the_successor_makes_no_row_dearer(self) -> None:
        made = keeping(KEPT_ALL - 1)
        for waited_ms in (1_200, 2_500, 900, 2_500, 1_700):
            made.took(20, took_ms(20) + waited_ms, beside=True)
        assert made.keep(100, 1_000, 0, beside=True, yields=None) == KEPT_ALL

    @given(
        st.lists(st.integers(1, 20_000), min_size=2, max_size=12),
        st.integers(0, 100_000),
        st.integers(0, 100_000),
        st.integers(-5_000, 5_000),
        st.integers(-5_000, 5_000),
        st.integers(KEPT_LEAST, KEPT_ALL),
        st.booleans(),
    )
    def test_ol6_fewer_rows_or_more_time_keep_no_less(
        self,
        batches: list[int],
        waiting: int,
        more: int,
        left_ms: int,
        sooner_ms: int,
        kept: int,
        is_first: bool,
    ) -> None:
        def keeps(rows: int, ms: int) -> int:
            made = control(*batches)
            if not is_first:
                made.keep(rows, ms, 0, beside=False, yields=0)
            made.steady = made.kept = kept
            return made.keep(rows, ms, 0, beside=False, yields=0)

        first = keeps(waiting, left_ms)
        assert KEPT_LEAST <= first <= min(KEPT_ALL, kept + KEPT_RISE)
        assert keeps(waiting + more, left_ms) <= first
        if (left_ms > 0) == (left_ms - abs(sooner_ms) > 0):
            assert keeps(waiting, left_ms - abs(sooner_ms)) <= first


def test_two_batches_of_the_target_fit_between_the_waits() -> None:
    assert target_of(3_100, 800) == 1_150
    assert target_of(800, 800) == WORK_LEAST_MS // 2


@pytest.mark.parametrize(("depth", "height"), [(0, 1), (1, 2), (3, 1)])
def test_the_smallest_bound_of_a_stage_that_sheds_leaves_a_batch_a_second(
    depth: int, height: int
) -> None:
    bound_ms = shed_bound_ms(depth, height)
    waits = [waits_of(each_ms, 500, depth, height) for each_ms in (bound_ms, bound_ms - 2)]
    targets = [target_of(each.first_ms, each.next_ms) for each in waits]
    assert targets == [WORK_LEAST_MS, WORK_LEAST_MS - 1]


@pytest.mark.parametrize(
    ("held", "grown", "during_ms", "left_ms"),
    [
        (100, 10, 1_000, 90_000),
        (100, 0, 1_000, None),
        (100, -5, 1_000, None),
        (100, 5, 0, None),
        (2_000, 10, 1_000, 0),
    ],
)
def test_how_long_a_growing_backlog_has_room(
    held: int, grown: int, during_ms: int, left_ms: int | None
) -> None:
    assert time_left_ms(held, 1_000, grown, during_ms) == left_ms


def test_a_backlog_is_observed_for_a_while_before_its_growth_counts() -> None:
    forecast = BacklogForecast(10_000)
    assert forecast.observe(1_000, 500) is None
    assert forecast.observe(1_000 + FORECAST_AFTER_MS - 1, 1_500) is None
    assert forecast.observe(1_000 + FORECAST_AFTER_MS, 1_500) == 85_000
    forecast.ended()
    assert forecast.observe(50_000, 1_500) is None
