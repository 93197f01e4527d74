"""Bucket arithmetic against its invariants BU1 to BU3, values by bucket number, and the parts of
open buckets.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import EVENT_TIME_MS_MAX
from anabranch.protocol.log.buckets import (
    BucketMap,
    OpenParts,
    bound_ms,
    bucket_of,
    buckets_of,
    closed_by,
)
from harness.boundary_logs import part

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


def filled(*buckets: int) -> BucketMap[str]:
    found: BucketMap[str] = BucketMap()
    for bucket in buckets:
        found[bucket] = str(bucket)
    return found


def test_it_ascends_however_it_was_filled() -> None:
    found = filled(5, 1, 9, 5, 3)
    assert list(found) == [(1, "1"), (3, "3"), (5, "5"), (9, "9")]
    assert (len(found), found[9], found.get(9), found.get(2)) == (4, "9", "9", None)


def test_ranges() -> None:
    found = filled(1, 3, 5, 9)
    assert found.between(2, 10**15) == [3, 5, 9]
    assert found.between(1, 5, 2) == [1, 3]
    assert found.between(3, 4, 9) == [3]
    assert found.between(6, 4) == found.between(1, 9, 0) == []


def test_taking_out() -> None:
    found = filled(1, 3, 5, 9)
    assert found.pop_between(2, 5) == [(3, "3"), (5, "5")]
    assert found.pop_upto(1) == [(1, "1")]
    found[4] = "4"
    assert list(found) == [(4, "4"), (9, "9")]
    found.clear()
    assert found.pop_upto(99) == list(found) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("set", "upto", "between")), st.integers(0, 20), st.integers(0, 20)
        ),
        max_size=40,
    )
)
def test_it_is_a_dictionary_in_order(steps: list[tuple[str, int, int]]) -> None:
    found: BucketMap[int] = BucketMap()
    plain: dict[int, int] = {}
    for what, a, b in steps:
        if what == "set":
            found[a] = plain[a] = b
            continue
        first, last = (0, a) if what == "upto" else (a, b)
        assert found.between(first, last) == sorted(k for k in plain if first <= k <= last)
        gone = found.pop_upto(a) if what == "upto" else found.pop_between(a, b)
        assert gone == sorted((k, v) for k, v in plain.items() if first <= k <= last)
        plain = {k: v for k, v in plain.items() if not first <= k <= last}
        assert list(found) == sorted(plain.items())


A, B = BatchId("l", 1), BatchId("l", 2)


def opened() -> OpenParts:
    return OpenParts([(A, part(5)), (B, part(3)), (B, part(5, "b")), (A, part(9))])


def test_parts_stand_by_bucket_in_the_order_of_their_naming() -> None:
    parts = opened()
    assert (len(parts), parts.between(1, 99), parts.between(1, 99, 2)) == (4, [3, 5, 9], [3, 5])
    assert (parts.of(5), parts.of(4)) == ((part(5), part(5, "b")), ())
    assert parts.items() == ((B, part(3)), (A, part(5)), (B, part(5, "b")), (A, part(9)))


def test_op1_op2_closing_takes_them_out() -> None:
    parts = opened()
    assert parts.close(5) == [(3, (part(3),)), (5, (part(5), part(5, "b")))]
    assert (len(parts), parts.close(5)) == (1, [])
    parts.clear()
    assert (len(parts), parts.items()) == (0, ())


def test_a_rewind_keeps_what_other_records_named() -> None:
    parts = opened()
    parts.drop({B})
    assert (len(parts), parts.items()) == (2, ((A, part(5)), (A, part(9))))


def test_what_fits() -> None:
    parts = opened()
    assert parts.fits([part(10)], 0, 5)
    assert not parts.fits([part(10)], 2, 4)
    assert parts.fits([part(10)], 3, 4)
    assert parts.fits([part(10), part(2)], 3, 4)
    assert not parts.fits([part(10), part(12)], 3, 4)
