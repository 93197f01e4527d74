"""``codec.time_units``: the unit that is meant is named, and nothing else is."""

from __future__ import annotations

import pytest

from anabranch.codec.time_units import wrong_unit

NOW_MS = 1_777_644_000_000


@pytest.mark.parametrize(
    ("time_ms", "unit", "says"),
    [
        (NOW_MS, "ms", ""),
        (0, "ms", ""),
        (3_600_000, "ms", ""),
        (3_600_000, "us", ""),
        (500_000_000_000, "ms", ""),
        (
            NOW_MS // 1_000,
            "ms",
            "event times are about 1970-01-21T13:47Z; with unit: s they would be about 2026-05-01",
        ),
        (NOW_MS // 1_000, "us", "with unit: ms they would be about 2026-05-01T14:00Z"),
        (NOW_MS // 1_000, "ns", "with unit: us they would be about 2026-05-01T14:00Z"),
        (NOW_MS * 1_000, "s", "event times are about 1777644000000000 ms; with unit: ms they"),
        (NOW_MS * 1_000, "ms", "with unit: us they would be about 2026-05-01T14:00Z"),
        (NOW_MS * 1_000_000, "s", "with unit: us they would be about"),
        (NOW_MS * 10**9, "s", "with unit: ns they would be about"),
        (NOW_MS // 1_000, "s", "1970-01-21T13:47Z: s is not the unit of the field"),
        (NOW_MS * 1_000, "ns", "ns is not the unit of the field"),
        (NOW_MS // 1_000, None, "another unit than the field's type says"),
    ],
)
def test_a_time_that_is_a_thousand_times_off_is_named(
    time_ms: int, unit: str | None, says: str
) -> None:
    found = wrong_unit(time_ms, unit)
    assert says in found
    assert bool(found) == bool(says)
