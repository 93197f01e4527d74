"""Delays and counts from traces whose figures are known."""

from __future__ import annotations

import pytest

from experiments.dpc.figures import (
    Cut,
    Event,
    NewResult,
    Trace,
    death_figures,
    failure_figures,
    in_words,
    new_results,
    percentile,
    spread,
)

WIDTH = 100


def stable(at_ms: float, closed: int, rows: int = 1) -> Event:
    return Event(at_ms, "0", False, closed, rows)


def tentative(at_ms: float, closed: int, rows: int = 1) -> Event:
    return Event(at_ms, "0", True, closed, rows, ("c",))


def trace(*events: Event, upto: int = 400) -> Trace:
    """Bucket n is due at 100 n."""
    return Trace({bucket: 100.0 * bucket for bucket in range(1, upto + 1)}, list(events))


def usual(first: int, last: int, delay_ms: float = 30) -> list[Event]:
    return [stable(WIDTH * bucket + delay_ms, bucket) for bucket in range(first, last + 1)]


def failure() -> Trace:
    """Cut from bucket 101 on; after 1 s tentative buckets; healed at 15 s; corrected at once
    at 15.2 s.
    """
    events = usual(1, 100)
    events.append(tentative(11_100, 101, rows=5))
    events += [tentative(WIDTH * bucket + 700, bucket, rows=5) for bucket in range(105, 145)]
    events.append(stable(15_200, 151, rows=50))
    return trace(*events, *usual(152, 200))


def test_a_record_that_closes_several_buckets_is_late_for_each_of_them() -> None:
    found = new_results([stable(330, 3)], {1: 100.0, 2: 200.0, 3: 300.0})
    assert found == [
        NewResult(1, 330, 230, False),
        NewResult(2, 330, 130, False),
        NewResult(3, 330, 30, False),
    ]


def test_corrections_and_what_was_due_at_no_known_time_are_not_new() -> None:
    found = new_results([tentative(150, 1), stable(900, 1), stable(950, 2)], {1: 100.0})
    assert [(result.bucket, result.is_tentative) for result in found] == [(1, True)]


def test_figures_of_a_failure() -> None:
    figures = failure_figures(failure(), Cut(101, 10_050, 15_000))
    assert figures.seconds == pytest.approx(4.95)
    assert figures.normal_ms == figures.normal_max_ms == 30
    assert figures.first_ms == 1_000, "bucket 101, due at 10.1 s, came at 11.1 s"
    assert figures.longest_ms == 1_000
    assert figures.delay_ms == 970
    assert figures.later_ms == 700
    assert figures.correcting_ms == 700, "buckets 143 and 144 came after the heal"
    assert figures.tentative_rows == 41 * 5
    assert figures.done_ms == 200
    assert figures.speed == pytest.approx(5_000 / 200), "buckets 101 to 151 in 200 ms"
    assert "41" not in in_words(figures)
    assert "done 0.20 s" in in_words(figures)


def test_a_masked_failure_has_no_tentative_result_and_nothing_to_correct() -> None:
    events = [*usual(1, 100), stable(11_020, 110, rows=10), *usual(111, 150)]
    figures = failure_figures(trace(*events), Cut(101, 10_050, 11_000))
    assert (
        figures.tentative_rows,
        figures.first_ms,
        figures.later_ms,
        figures.done_ms,
        figures.tentative_s,
    ) == (0, None, None, None, 0.0)
    assert figures.longest_ms == 920
    assert "nothing to correct" in in_words(figures)


def test_results_that_come_long_after_a_masked_failure_count_to_it() -> None:
    events = [*usual(1, 80, delay_ms=2_000), stable(16_000, 130), *usual(131, 160, delay_ms=2_000)]
    figures = failure_figures(trace(*events), Cut(81, 8_050, 10_000))
    assert figures.longest_ms == 16_000 - 8_100


def test_corrections_that_never_end_are_reported_and_everything_after_counts() -> None:
    events = [event for event in failure().events if event.is_tentative or event.closed <= 100]
    events += [tentative(WIDTH * bucket + 2_000, bucket) for bucket in range(145, 300)]
    figures = failure_figures(trace(*events), Cut(101, 10_050, 15_000))
    assert figures.done_ms is None
    assert figures.longest_ms == 2_000
    assert "not finished" in in_words(figures)


def test_figures_of_a_death() -> None:
    events = [*usual(1, 100), *usual(101, 140, delay_ms=80)]
    figures = death_figures(trace(*events), 10_050)
    assert (figures.before_median_ms, figures.before_max_ms) == (30, 30)
    assert (figures.after_median_ms, figures.after_max_ms, figures.tentative_rows) == (80, 80, 0)


def test_spreads_of_nothing_are_zero() -> None:
    assert spread([]) == (0.0, 0.0, 0.0)
    assert spread([3, 1, 2]) == (1, 2, 3)
    assert percentile([], 0.5) == 0.0
    assert percentile([1, 2, 3, 4], 0.99) == 4
