"""The oracle of the smart grid gives what the rules say, at their borders, computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.smart_grid.oracle import Prediction, Share, expected

T = 1_378_058_400
DAY = 86_400
A, B, C = (1, 0, 0), (1, 0, 1), (2, 0, 0)

Reading = tuple[Any, ...]


def load(plug: tuple[int, int, int], second: int, watts: float, kind: int = 1) -> Reading:
    house, household, number = plug
    return (0, T + second, watts, kind, number, household, house)


def predicted(readings: list[Reading], due: int, minutes: int = 1) -> dict[Any, int]:
    """Return the loads predicted at a time, by plug (None: house)."""
    return {
        name.plug: value
        for name, value in expected(readings).predictions.items()
        if (name.due, name.minutes, name.house) == (T + due, minutes, 1)
    }


def test_without_history_the_mean_of_the_slice_so_far_is_predicted_for_the_slice_after_next() -> (
    None
):
    readings = [load(A, 0, 10), load(A, 29, 20), load(A, 30, 60), load(A, 60, 7)]
    found = expected(readings).predictions
    loads = {
        (name.due - T, name.start - T): value
        for name, value in found.items()
        if name.minutes == 1 and name.plug == 0
    }
    assert loads == {(30, 120): 15_000, (60, 120): 30_000, (90, 180): 7_000}


@pytest.mark.parametrize(("minutes", "start"), [(5, 600), (15, 1_800), (60, 7_200), (120, 14_400)])
def test_longer_slices_go_on_where_shorter_ones_begin_anew(minutes: int, start: int) -> None:
    found = expected([load(A, 0, 10), load(A, 270, 20)]).predictions
    assert found[Prediction(T + 300, minutes, T + start, 1, 0, 0)] == 15_000


def test_a_reading_that_was_repeated_counts_once_and_another_value_counts_too() -> None:
    once = [load(A, 0, 10), load(A, 1, 40)]
    assert predicted([*once, load(A, 0, 10)], 30) == {0: 25_000, None: 25_000}
    assert predicted([*once, load(A, 0, 70)], 30) == {0: 40_000, None: 40_000}


def test_work_is_not_load() -> None:
    assert predicted([load(A, 0, 10), load(A, 1, 5_000, kind=0)], 30)[0] == 10_000


def test_means_are_whole_milliwatts_with_halves_up() -> None:
    assert predicted([load(A, 0, 0.001), load(A, 1, 0.002)], 30)[0] == 2
    assert predicted([load(A, 0, 0), load(A, 1, 0.001), load(A, 2, 0)], 30)[0] == 0


def test_a_house_is_the_sum_of_the_means_of_its_plugs() -> None:
    readings = [load(A, 0, 10), load(A, 1, 20), load(B, 0, 100), load(C, 0, 9_000)]
    assert predicted(readings, 30) == {0: 15_000, 1: 100_000, None: 115_000}


def test_the_median_is_that_of_the_same_slice_on_earlier_days() -> None:
    history = [
        load(A, 120 - 3 * DAY, 10),
        load(A, 120 - 2 * DAY, 50),
        load(A, 120 - 1 * DAY, 20),
        load(A, 60 - DAY, 7_000),
        load(A, 180 - DAY, 7_000),
    ]
    assert predicted([*history, load(A, 0, 100)], 30)[0] == 60_000  # (100 + 20) / 2
    assert predicted([*history[1:], load(A, 0, 100)], 30)[0] == 67_500  # (100 + 35) / 2


def test_a_plug_without_history_in_a_house_with_one() -> None:
    readings = [load(A, 120 - DAY, 20), load(A, 0, 10), load(B, 0, 30)]
    assert predicted(readings, 30) == {0: 15_000, 1: 30_000, None: 30_000}


def test_a_history_that_is_too_old_does_not_count() -> None:
    old = [load(A, 120 - 31 * DAY, 20), load(A, 0, 10)]
    assert predicted(old, 30)[0] == 15_000
    assert predicted([load(A, 120 - 32 * DAY, 20), load(A, 0, 10)], 30)[0] == 10_000


def test_a_plug_that_fell_silent_is_predicted_as_long_as_its_slice_lasts() -> None:
    readings = [load(A, 0, 10), load(B, 0, 30), load(B, 30, 50), load(B, 60, 50)]
    assert predicted(readings, 60) == {0: 10_000, 1: 40_000, None: 50_000}
    assert predicted(readings, 90) == {1: 50_000, None: 50_000}


def shares(readings: list[Reading], hours: int = 1) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the reported shares by (seconds since the beginning, house)."""
    return {
        (name.stop - T, name.house): value
        for name, value in expected(readings).shares.items()
        if name.hours == hours
    }


def test_a_plug_is_an_outlier_if_its_median_is_above_that_of_all_loads() -> None:
    readings = [load(A, 0, 10), load(B, 0, 30), load(B, 1, 30), load(C, 0, 20)]
    # all: 10, 20, 30, 30: the median is 25
    assert shares(readings) == {(30, 1): (1, 2), (30, 2): (0, 1)}


def test_an_equal_median_is_not_above() -> None:
    readings = [load(A, 0, 10), load(B, 0, 20), load(C, 0, 30)]
    assert shares(readings) == {(30, 1): (0, 2), (30, 2): (1, 1)}


def test_a_share_is_reported_when_it_changes() -> None:
    readings = [load(A, 0, 10), load(C, 0, 30), load(A, 30, 10), load(A, 60, 90), load(A, 61, 90)]
    readings += [load(A, 62, 90)]
    # after 60 s: A 10 10, C 30: as before; after 90 s: A 10 10 90 90 90, all 10 10 30 90 90 90
    assert shares(readings) == {(30, 1): (0, 1), (30, 2): (1, 1), (90, 1): (1, 1), (90, 2): (0, 1)}


def test_a_step_leaves_the_window_as_a_whole_after_its_length() -> None:
    readings = [load(A, 0, 90), load(C, 0, 30), load(C, 3_570, 30), load(C, 3_600, 30)]
    found = shares(readings)
    # until 3600 the first step is in the window; then A has no reading in it, and is gone
    assert found == {(30, 1): (1, 1), (30, 2): (0, 1)}
    assert expected(readings).shares[Share(24, T + 720 - T % 720, 1)] == (1, 1)
    back = shares([*readings, load(A, 3_660, 90)])
    assert back[3_690, 1] == (1, 1), "a house that was away is reported anew"


def test_the_long_window_goes_by_its_own_steps() -> None:
    readings = [load(A, 0, 10), load(C, 0, 30), load(A, 60, 90), load(A, 61, 90)]
    assert set(shares(readings, 24)) == {(720 - T % 720, 1), (720 - T % 720, 2)}
