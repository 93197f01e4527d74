"""``codec.iso_times``: the forms in which programs write a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec.iso_times import clock_offsets, milliseconds
from anabranch.codec.logical_types import zone_of

TWO = 1_777_644_000_000
"""2026-05-01T14:00:00Z"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-01T14:00:00Z", TWO),
        ("2026-05-01t14:00z", TWO),
        ("2026-05-01 14:00:00+00", TWO),
        ("2026-05-01T16:00:00+0200", TWO),
        ("2026-05-01T16:00:00+02", TWO),
        ("2026-05-01T16:00:00+02:00", TWO),
        ("2026-05-01T08:30:00-0530", TWO),
        ("2026-05-01T14:00:00,25Z", TWO + 250),
        ("2026-05-01T14:00:00.999999999Z", TWO + 999),
        ("1969-12-31T23:59:59.999Z", -1),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("2026-05-01T14:00:00", None),
        ("2026-05-01T14:00.5Z", None),
        ("2026-05-01T14Z", None),
        ("2026-05-01", None),
        ("2026-02-30T14:00Z", None),
        ("2026-05-01T25:00Z", None),
        ("2026-05-01T14:00:60Z", None),
        ("2026-05-01T14:00:00+24", None),
        ("2026-05-01T14:00:00+02:60", None),
        ("2026-05-01T14:00:00.1234567890Z", None),
        ("2026-05-01T14:00:00Z ", None),
        ("2026-05-01T14:00:00Z\n", None),
        ("", None),
        (None, None),
    ],
)
def test_a_time_has_a_zone(text: str | None, expected: int | None) -> None:
    around = ["2026-05-01T14:00:00Z", text, None, "2026-05-01T14:00:01Z"]
    found = milliseconds(pa.array(around, pa.string()))
    assert found.to_pylist() == [TWO, expected, None, TWO + 1_000]


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("Europe/Berlin", "2026-05-01T16:00:00.5", TWO + 500),
        ("Europe/Berlin", "2026-05-01T14:00:00Z", TWO),
        ("Europe/Berlin", "2026-03-29T02:30:00", None),  # clocks are put forward
        ("Europe/Berlin", "2026-10-25T02:30:00", 1_792_888_200_000),  # put back: the first
        ("Europe/Berlin", "9999-12-31T23:59:59", 253_402_297_199_000),
        ("America/New_York", "9999-12-31T23:59:59", None),
        ("Asia/Kathmandu", "2026-05-01T19:45", TWO),
        ("-05:30", "2026-05-01T08:30", TWO),
        ("UTC", "2026-05-01T14:00", TWO),
        ("UTC", "x", None),
    ],
)
def test_a_text_without_a_zone_has_that_which_is_named(
    zone: str, text: str, expected: int | None
) -> None:
    found = milliseconds(pa.array([text, "2026-05-01T14:00Z"]), zone_of(zone))
    assert found.to_pylist() == [expected, TWO]


def test_of_nothing_there_is_nothing() -> None:
    assert milliseconds(pa.array([], pa.string()), zone_of("UTC")).to_pylist() == []
    assert milliseconds(pa.array([None], pa.string()), zone_of("UTC")).to_pylist() == [None]


@pytest.mark.parametrize("name", ["", "Europe/Berlinn", "../Berlin", "+2", "+99:00", "Z"])
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        zone_of(name)


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001
    st.integers(-23 * 60, 23 * 60),
    st.sampled_from("T "),
)
def test_what_python_writes_is_read(time: datetime, offset: int, between: str) -> None:
    aware = time.replace(tzinfo=timezone(timedelta(minutes=offset)))
    expected = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert milliseconds(pa.array([aware.isoformat(between)])).to_pylist() == [expected]


@given(st.integers(0, 2**32))
def test_clocks_of_a_zone_show_what_python_says(seconds: int) -> None:
    zone = zone_of("Europe/Berlin")
    shown = datetime.fromtimestamp(seconds, zone)
    local = int(shown.replace(tzinfo=UTC).timestamp())
    (found,) = clock_offsets(pa.array([local]), zone).to_pylist()
    offset = shown.utcoffset()
    assert offset is not None
    # The hour that comes twice is the first one.
    assert found == offset.total_seconds() + (3_600 if shown.fold else 0)
