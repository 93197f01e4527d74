"""``ingestion.event_time``: time of whole columns, in every unit, at every edge."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.ingestion import event_time
from anabranch.protocol.errors import RejectionReason
from anabranch.protocol.limits import EVENT_TIME_MS_MAX


def times(values: list[object], unit: str, kind: pa.DataType) -> list[int | None]:
    """Event time of each value, None where it has none."""
    timed = event_time.from_field(pa.table({"t": pa.array(values, kind)}), "t", unit)
    bad = np.zeros(len(values), dtype=bool) if timed.bad is None else timed.bad
    return [
        None if rejected else int(time)
        for time, rejected in zip(timed.event_time_ms, bad, strict=True)
    ]


def test_a_timestamp_is_an_event_time_in_microseconds() -> None:
    kind = pa.timestamp("us", "UTC")
    assert times([1_999, 999, None, -5, 2**40], "us", kind) == [1, None, None, None, 2**40 // 1_000]
    table = pa.table({"t": pa.array([-5], kind)})
    why = event_time.unusable(table["t"][0].as_py(), "field t")
    assert why.reason is RejectionReason.OUT_OF_RANGE
    assert str(why).startswith("field t is 1969-12-31T23:59:59.999995+00:00: not between")


@pytest.mark.parametrize(
    ("unit", "values", "expected"),
    [
        (
            "ms",
            [1, EVENT_TIME_MS_MAX, 0, -5, EVENT_TIME_MS_MAX + 1],
            [1, EVENT_TIME_MS_MAX, None, None, None],
        ),
        (
            "us",
            [
                1_000,
                1_999,
                2_000,
                999,
                EVENT_TIME_MS_MAX * 1_000 + 999,
                (EVENT_TIME_MS_MAX + 1) * 1_000,
            ],
            [1, 1, 2, None, EVENT_TIME_MS_MAX, None],
        ),
        (
            "s",
            [1, EVENT_TIME_MS_MAX // 1_000, 0, EVENT_TIME_MS_MAX // 1_000 + 1, 2**63 - 1, -(2**63)],
            [1_000, EVENT_TIME_MS_MAX - 999, None, None, None, None],
        ),
        ("ms", [7, None, 8], [7, None, 8]),
        ("ms", [], []),
    ],
)
def test_whole_numbers(unit: str, values: list[object], expected: list[int | None]) -> None:
    assert times(values, unit, pa.int64()) == expected


def test_small_whole_numbers() -> None:
    assert times([5, None, -1], "s", pa.int32()) == [5_000, None, None]


@pytest.mark.parametrize(
    ("unit", "values", "expected"),
    [
        (
            "s",
            [1.001, 0.001, 0.0004, math.nan, math.inf, -math.inf, 1e300, None],
            [1_001, 1, None, None, None, None, None, None],
        ),
        ("s", [1_700_000_000.123], [1_700_000_000_123]),
        ("s", [math.nextafter((EVENT_TIME_MS_MAX + 1) / 1_000, 0)], [EVENT_TIME_MS_MAX]),
        ("us", [1_500.0], [2]),
    ],
)
def test_floats(unit: str, values: list[object], expected: list[int | None]) -> None:
    assert times(values, unit, pa.float64()) == expected


def test_32_bit_floats() -> None:
    assert times([0.5, math.nan], "s", pa.float32()) == [500, None]


def test_timestamps_of_the_broker() -> None:
    arrived = event_time.arrivals(np.array([5, -1, EVENT_TIME_MS_MAX + 1]), 3, EVENT_TIME_MS_MAX)
    timed = event_time.from_arrivals(arrived)
    assert timed.event_time_ms.tolist() == [5, 0, 0]
    assert timed.bad is not None
    assert timed.bad.tolist() == [False, True, True]
    assert event_time.from_arrivals(np.array([5])).bad is None


def test_reasons() -> None:
    assert event_time.unusable(None, "field t").reason is RejectionReason.NO_EVENT_TIME
    assert event_time.unusable(math.nan, "field t").reason is RejectionReason.NOT_FINITE
    assert event_time.unusable(-1, "field t").reason is RejectionReason.OUT_OF_RANGE


@given(st.lists(st.integers(1, 40), min_size=1), st.integers(0, 40), st.integers(1, 40))
def test_arrivals_never_run_backwards(stamps: list[int], last_ms: int, limit_ms: int) -> None:
    """IN17."""
    newest_ms, expected = last_ms, list[int]()
    for stamp in stamps:
        newest_ms = max(newest_ms, min(stamp, limit_ms))
        expected.append(newest_ms)
    found = event_time.arrivals(np.array(stamps, dtype=np.int64), last_ms, limit_ms).tolist()
    assert found == expected == sorted(found)
    assert found[0] >= last_ms
    assert max(found) <= max(limit_ms, last_ms)
