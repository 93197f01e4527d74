"""Percentiles and histograms of delays."""

from __future__ import annotations

from math import inf

from anabranch.dashboard.delays import BOUNDS_MS, delays_of, quantiles_s


def test_percentiles_are_delays_that_occurred() -> None:
    found = delays_of(list(range(100, 0, -1)))
    assert found is not None
    assert (found.count, found.p50_ms, found.p95_ms, found.p99_ms, found.max_ms) == (
        100,
        50,
        95,
        99,
        100,
    )
    one = delays_of([7])
    assert one is not None
    assert (one.p50_ms, one.p99_ms) == (7, 7)
    assert delays_of([]) is None


def test_each_delay_is_in_the_bar_of_its_upper_bound() -> None:
    found = delays_of([100, 101, BOUNDS_MS[-1] + 1, -5])
    assert found is not None
    assert found.bars[:2] == (2, 1)
    assert found.bars[-1] == 1
    assert sum(found.bars) == 4


def test_quantiles_are_of_what_came_since() -> None:
    before = {0.1: 90.0, 1.0: 90.0, inf: 90.0}
    now = {0.1: 90.0, 1.0: 99.0, inf: 100.0}
    assert quantiles_s(now, {}, (0.5,)) == [0.1]
    assert quantiles_s(now, before, (0.5, 0.9, 0.99)) == [1.0, 1.0, 1.0]


def test_nothing_new_or_a_process_that_began_anew_says_nothing() -> None:
    now = {0.1: 3.0, inf: 4.0}
    assert quantiles_s(now, now, (0.5,)) is None
    assert quantiles_s(now, {0.1: 50.0, inf: 60.0}, (0.5,)) is None
    assert quantiles_s({0.1: 9.0, inf: 14.0}, {0.1: 2.0, inf: 12.0}, (0.5,)) is None
    assert quantiles_s({}, {}, (0.5,)) is None
