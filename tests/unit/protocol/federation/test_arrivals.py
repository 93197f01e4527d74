"""Tests of what came of a stream in time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation import arrivals
from anabranch.protocol.federation.arrivals import EARLY_MS_MAX, Arrivals, Arrived

TEXT = (100, 1_000, 300)
"""Periods of ten buckets: number 5 has buckets 51 to 60."""


def read(*records: tuple[int, int, int], begins_after: int | None = None) -> Arrivals:
    """(up to, rows of the last bucket, the log's time), record by record."""
    made = Arrivals(*TEXT)
    before = 0
    if begins_after is not None:
        made.begins_after(begins_after)
        before = begins_after
    for upto, rows, at_ms in records:
        made.came(before, upto, [(upto, rows)] if rows else [], at_ms)
        before = upto
    return made


def test_what_comes_within_the_delay_of_its_end_is_in_time() -> None:
    steady = [(n, 7, 100 * n + 300) for n in range(50, 61)]
    assert read(*steady).of(5) == Arrived(70, 10)
    late = [(n, 7, 100 * n + 301) for n in range(50, 61)]
    assert read(*late).of(5) == Arrived(0, 0)


def test_a_stall_costs_the_buckets_that_were_late_and_no_others() -> None:
    steady = [(n, 7, 100 * n) for n in range(50, 54)]
    # Buckets 54 to 58 come at once, when only the last three can still be in time.
    found = read(*steady, (58, 7, 5_900), (60, 7, 6_000))
    assert found.of(5) == Arrived(21 + 7 + 7, 3 + 3 + 2)


def test_the_first_record_of_a_stream_counts_what_is_not_late_and_costs_nothing() -> None:
    """It closes all buckets since 1970."""
    found = Arrivals(*TEXT)
    found.came(0, 17_000_000_060, [(17_000_000_055, 3), (17_000_000_060, 4)], 1_700_000_006_000)
    assert found.of(1_700_000_005) == Arrived(4, 4)


def test_fd3_a_claim_about_the_future_is_not_in_time() -> None:
    last = (5_000 + EARLY_MS_MAX) // 100
    found = read((50, 1, 5_000), (last + 10, 9, 5_000))
    assert last == 650
    assert found.of(64) == Arrived(0, 10), "a clock may be ahead"
    assert found.of(65) == Arrived(0, 0), "each is closed more than a minute before it ends"


def test_a_range_over_several_periods_is_divided_among_them() -> None:
    found = Arrivals(100, 1_000, 10_000)
    found.came(45, 72, [(46, 1), (50, 2), (51, 4), (72, 8)], 8_000)
    assert [found.of(period) for period in (3, 4, 5, 6, 7)] == [
        Arrived(0, 0),
        Arrived(3, 5),
        Arrived(4, 10),
        Arrived(0, 10),
        Arrived(8, 2),
    ]


def test_a_period_is_over_once_the_log_has_got_beyond_its_last_delay() -> None:
    assert not read((60, 0, 6_300)).is_over(5)
    assert read((60, 0, 6_300), (61, 0, 6_301)).is_over(5)


def test_fd1_of_what_was_not_followed_whole_there_is_no_figure() -> None:
    records = [(n, 1, 100 * n) for n in range(56, 80)]
    found = read(*records, begins_after=55)
    assert (found.first_period, found.of(5), found.of(6)) == (6, None, Arrived(10, 10))
    assert read(*[(n, 1, 100 * n) for n in range(51, 80)], begins_after=50).of(5) == (10, 10)


def test_fd4_what_is_metered_is_forgotten_and_does_not_come_back() -> None:
    found = read(*[(n, 1, 100 * n) for n in range(41, 56)])
    found.forget(5)
    assert (found.of(4), found.of(5)) == (None, Arrived(5, 5))
    found.forget(4)
    found.came(30, 56, [(45, 9), (56, 1)], 4_600)
    assert (found.of(4), found.of(5)) == (None, Arrived(6, 11)), "not what is forgotten"


def test_fd4_a_reader_does_not_hold_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "PERIODS_MAX", 10)
    found = Arrivals(*TEXT)
    for n in range(1, 121):
        found.came(n - 1, n, [(n, 1)], 100 * n)
    assert found.first_period >= 5
    assert found.of(11) == Arrived(10, 10)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2_000), st.integers(0, 5)), max_size=30),
    st.integers(0, 30),
)
def test_fd1_fd2_who_begins_later_counts_the_same_or_nothing(
    records: list[tuple[int, int, int]], skipped: int
) -> None:
    whole, part = Arrivals(*TEXT), Arrivals(*TEXT)
    upto = now_ms = 0
    naive = dict[int, tuple[int, int]]()
    for number, (more, pause_ms, rows) in enumerate(records):
        before, upto = upto, upto + more
        now_ms += pause_ms
        found = [(upto, rows)] if rows else []
        whole.came(before, upto, found, now_ms)
        if number < skipped:
            part.begins_after(upto)
        else:
            part.came(before, upto, found, now_ms)
        for bucket in range(before + 1, upto + 1):
            if now_ms - 300 <= 100 * bucket <= now_ms + EARLY_MS_MAX:
                messages, buckets = naive.get((bucket - 1) // 10, (0, 0))
                added = rows if bucket == upto else 0
                naive[(bucket - 1) // 10] = messages + added, buckets + 1
    for period in range(upto // 10 + 2):
        assert whole.of(period) == naive.get(period, (0, 0))
        assert part.of(period) in (None, whole.of(period))
