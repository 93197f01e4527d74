from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.pipeline.durations import DURATION_MS_MAX, format_ms, parse_ms


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
        ("3S", "unknown unit"),
        ("0.5ms", "whole number of milliseconds"),
        ("400d", "more than a year"),
        ("9" * 30 + "s", "not a duration"),
    ],
)
def test_anything_else_is_rejected_with_the_way_to_write_it(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_ms(value)


@given(st.integers(0, DURATION_MS_MAX))
def test_what_is_formatted_is_read_back(milliseconds: int) -> None:
    assert parse_ms(format_ms(milliseconds)) == milliseconds
