"""How much load counts, and what it costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.contracts import AuditClauses
from anabranch.protocol.federation.metering import (
    Reading,
    counted,
    due_nano,
    is_dispute,
    overlap_ms,
    period_end_ms,
    period_of,
    within,
)

CLAUSES = AuditClauses(1_000, 50_000, 10_000, 60_000)


@pytest.mark.parametrize(
    ("seller", "buyer", "units", "dispute"),
    [
        (100, 100, 100, False),
        (105, 100, 105, False),
        (95, 100, 95, False),
        (106, 100, 100, True),
        (94, 100, 94, True),
        (None, 140, 140, False),
        (100, None, 100, False),
        (105, None, 105, False),
        (500, None, 105, False),
        (None, None, 0, False),
        (0, 0, 0, False),
        (1, 0, 0, True),
    ],
)
def test_fb3_the_table_of_what_counts(
    seller: int | None, buyer: int | None, units: int, dispute: bool
) -> None:
    """100 units were agreed, the tolerance is 5 %."""
    reading = Reading(seller, buyer)
    assert counted(reading, 100, 50_000) == units
    assert is_dispute(reading, 50_000) == dispute


def test_within_is_of_what_was_measured() -> None:
    assert within(105, 100, 50_000)
    assert not within(100, 105, 40_000)


@given(st.integers(0, 20_000), st.integers(0, 20_000), st.integers(100, 3_000))
def test_fb2_each_millisecond_of_a_movement_is_in_one_slot(
    started_ms: int, ran_ms: int, meter_ms: int
) -> None:
    ended_ms = started_ms + ran_ms
    slots = range(ended_ms // meter_ms + 1)
    assert sum(overlap_ms(slot, meter_ms, started_ms, ended_ms) for slot in slots) == ran_ms
    assert all(
        overlap_ms(slot, meter_ms, started_ms, None)
        >= overlap_ms(slot, meter_ms, started_ms, ended_ms)
        for slot in slots
    )


def test_fb2_each_slot_is_in_one_period() -> None:
    assert [period_of(slot, CLAUSES) for slot in (0, 59, 60, 119, 120)] == [0, 0, 1, 1, 2]
    assert period_end_ms(1, CLAUSES) == 120_000


def test_fb1_what_is_due_is_exact() -> None:
    assert due_nano(900, 10, 1_000) == 9_000 * 1_000
    assert due_nano(10**12, 10**9, 365 * 24 * 3_600_000) == 10**21 * 31_536_000_000
