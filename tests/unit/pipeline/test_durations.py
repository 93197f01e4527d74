from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.pipeline.durations import (
    DURATION_MS_MAX,
    format_ms,
    parse_ms,
    readable_ms,
    time_in_words,
)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("3s", 3_000),
        ("1m", 60_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("0.5s", 500),
        (" 1 s ", 1_000),
        ("0s", 0),
    ],
)
def test_a_number_with_a_unit_is_a_duration(text: str, milliseconds: int) -> None:
    assert parse_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (250, '"250ms"'),
        (2.5, "no unit"),
        (True, "not a duration"),
        (None, "not a duration"),
        ("", "not a duration"),
        ("250", "not a duration"),
        ("ms", "not a duration"),
        ("-3s", "not a duration"),
        ("5 parsecs", "unknown unit 'parsecs'"),
        ("3S", "unknown unit 'S'; write 3s"),
        (" 3 minutes", "unknown unit 'minutes'; write 3m"),
        ("0.5ms", "whole number of milliseconds"),
        ("400d", "more than a year"),
        ("9" * 30 + "s", "not a duration"),
    ],
)
def test_anything_else_is_rejected_with_the_way_to_write_it(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_ms(value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (0, "0 has no unit; write a duration, from 1ms to 1d"),
        (1.5, '1.5 has no unit; write for example "1.5s"'),
        (100_000, '100000 has no unit; write for example "100000ms"'),
        ("2d", "'2d' is out of range; use from 1ms to 1d"),
    ],
)
def test_what_is_suggested_would_be_accepted(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        parse_ms(value, 1, 86_400_000)


@given(st.integers(0, DURATION_MS_MAX))
def test_what_is_formatted_is_read_back(milliseconds: int) -> None:
    assert parse_ms(format_ms(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (-1_500, "-1.5 s"),
        (99_900, "99.9 s"),
        (100_000, "2 min"),
        (7_199_000, "120 min"),
        (7_200_000, "2.0 h"),
        (172_799_999, "48.0 h"),
        (7_596_339_400, "88 d"),
    ],
)
def test_a_duration_is_shown_as_people_say_it(milliseconds: int, text: str) -> None:
    assert readable_ms(milliseconds) == text


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (None, "-"),
        (2_500, "2.5 s"),
        (1_756_555_200_123, "2025-08-30 12:00:00.123"),
        (10**18, str(10**18)),
    ],
)
def test_an_event_time_is_shown_in_words(moment: object, text: str) -> None:
    assert time_in_words(moment) == text
