"""Points in time as options and messages have them."""

from __future__ import annotations

import pytest

from anabranch.pipeline.times import format_time, parse_time_ms
from anabranch.protocol.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "found_ms"),
    [
        ("1700000000250", 1_700_000_000_250),
        ("2023-11-14T22:13:20.25Z", 1_700_000_000_250),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14 22:13:20", 1_700_000_000_000),
        ("0", 0),
    ],
)
def test_times(text: str, found_ms: int) -> None:
    assert parse_time_ms("--from", text) == found_ms
    assert parse_time_ms("--from", format_time(found_ms)) == found_ms


@pytest.mark.parametrize("text", ["yesterday", "", "-5", "99999999999999999", "1969-01-01"])
def test_invalid_times_are_rejected(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--from"):
        parse_time_ms("--from", text)
