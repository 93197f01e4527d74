"""``codec.event_times``: time of whole columns, in every unit, at every edge."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from anabranch.codec import event_times
from anabranch.protocol.errors import RejectionReason
from anabranch.protocol.limits import EVENT_TIME_MS_MAX

MAY = 1_777_644_000_000
"""2026-05-01T14:00:00Z"""


def times(
    values: list[object], unit: str, kind: pa.DataType, zone: str | None = None
) -> list[int | None]:
    """Event time of each value, None where it has none."""
    table = pa.table({"t": pa.array(values, kind)})
    timed = event_times.times_of(event_times.column_at(table, "t"), unit, zone)
    bad = np.zeros(len(values), dtype=bool) if timed.bad is None else timed.bad
    return [
        None if rejected else int(time)
        for time, rejected in zip(timed.event_time_ms, bad, strict=True)
    ]


def test_a_timestamp_is_an_event_time_in_microseconds() -> None:
    kind = pa.timestamp("us", "UTC")
    assert times([1_999, 999, None, -5, 2**40], "us", kind) == [1, None, None, None, 2**40 // 1_000]
    table = pa.table({"t": pa.array([-5], kind)})
    why = event_times.unusable(table["t"][0].as_py(), "field t")
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
        (
            "ns",
            [10**6, 10**6 - 1, 1_777_644_000_123_456_789, 2**63 - 1],
            [1, None, 1_777_644_000_123, None],
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


def test_reasons() -> None:
    assert event_times.unusable(None, "field t").reason is RejectionReason.NO_EVENT_TIME
    assert event_times.unusable(math.nan, "field t").reason is RejectionReason.NOT_FINITE
    assert event_times.unusable(-1, "field t").reason is RejectionReason.OUT_OF_RANGE


def test_texts_are_cut_to_the_millisecond() -> None:
    texts = ["2026-05-01T14:00:00.123999999Z", "2026-05-01T16:00+02", "2026-05-01", None]
    assert times(list(texts), "us", pa.string()) == [
        MAY + 123,
        MAY,
        None,
        None,
    ]
    assert times(["2026-05-01T16:00:00"], "us", pa.string()) == [None]
    assert times(["2026-05-01T16:00:00"], "us", pa.string(), "Europe/Berlin") == [MAY]
    assert times(["1969-12-31T23:59:59Z"], "us", pa.string()) == [None]


def test_a_timestamp_without_a_zone_has_that_of_the_file() -> None:
    kind = pa.timestamp("us")
    micros = 1_777_651_200_000_999
    assert times([micros, None, 0], "us", kind, "Europe/Berlin") == [MAY, None, None]
    assert times([micros], "us", kind, "+02:00") == [MAY]


def test_a_part_of_a_nested_column() -> None:
    rows = [{"p": {"a": 5}}, {"p": None}, {"p": {"a": None}}]
    table = pa.table({"t": pa.array(rows, pa.struct([("p", pa.struct([("a", pa.int64())]))]))})
    timed = event_times.times_of(event_times.column_at(table, "t.p.a"), "ms")
    assert timed.event_time_ms.tolist() == [5, 0, 0]
    assert timed.bad is not None
    assert timed.bad.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("value", "has_zone", "reason", "words"),
    [
        ("x", False, "wrong_type", "no time such as 2026-05-01T14:00:00Z"),
        ("2026-02-30T00:00Z", True, "wrong_type", "no time such as"),
        ("2026-05-01T14:00", False, "wrong_type", "without a zone"),
        ("1969-05-01T14:00", True, "out_of_range", "not between 1 ms after 1970"),
        ("1969-05-01T14:00Z", False, "out_of_range", "not between 1 ms after 1970"),
    ],
)
def test_reasons_of_texts(value: str, has_zone: bool, reason: str, words: str) -> None:
    why = event_times.unusable(value, "field t", has_zone=has_zone)
    assert (why.reason, words in str(why)) == (reason, True)


def test_a_number_of_another_unit_says_which() -> None:
    why = event_times.unusable(MAY * 1_000, "field t", unit="s")
    assert str(why).endswith("; with unit: us they would be about 2026-05-01T14:00Z")
    assert str(event_times.unusable(-1, "field t", unit="s")).endswith("the year 9999")
    assert str(event_times.unusable(math.inf, "field t", unit="s")).endswith("the year 9999")
