"""Bucket arithmetic against its invariants BU1 to BU3."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.limits import EVENT_TIME_MS_MAX
from anabranch.protocol.log.buckets import bound_ms, bucket_of, buckets_of, closed_by

event_times = st.integers(1, EVENT_TIME_MS_MAX)
widths = st.integers(1, 86_400_000)


@pytest.mark.parametrize(
    ("event_time_ms", "bucket"), [(0, 0), (1, 1), (99, 1), (100, 1), (101, 2), (200, 2)]
)
def test_the_upper_bound_belongs_to_the_bucket(event_time_ms: int, bucket: int) -> None:
    assert bucket_of(event_time_ms, 100) == bucket


@given(event_times, widths)
def test_bu2_a_row_is_between_the_bounds_of_its_bucket(event_time_ms: int, width_ms: int) -> None:
    bound = bound_ms(bucket_of(event_time_ms, width_ms), width_ms)
    assert bound - width_ms < event_time_ms <= bound


@given(event_times, widths, st.integers(0, 10**6))
def test_bu3_what_a_mark_closes_holds_nothing_that_may_still_come(
    low_ms: int, width_ms: int, later_ms: int
) -> None:
    closed = closed_by(low_ms, width_ms)
    assert bucket_of(low_ms + later_ms, width_ms) > closed
    assert bucket_of(low_ms, width_ms) == closed + 1, "and not one less than could be"


@pytest.mark.parametrize(("span_ms", "buckets"), [(0, 0), (1, 1), (100, 1), (101, 2), (1_000, 10)])
def test_a_span_in_buckets_is_rounded_up(span_ms: int, buckets: int) -> None:
    assert buckets_of(span_ms, 100) == buckets
