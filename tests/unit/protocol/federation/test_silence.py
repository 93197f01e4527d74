"""Whether a seller works, by what both sides have measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.metering import Reading
from anabranch.protocol.federation.movements import Movement, MovementState
from anabranch.protocol.federation.silence import (
    MEASURED_AFTER_MS,
    SILENT_SLOTS,
    SellerSilence,
    patience_ms,
    promised_ms,
)
from harness.markets import CONTRACT

METER_MS = CONTRACT.audit.meter_ms
RUNS = Movement("m", MovementState.RUNNING, "north.a", 10, 900, 1, started_ms=500)
PROMISED_MS = 3_000 + SILENT_SLOTS * METER_MS
PATIENCE_MS = PROMISED_MS + MEASURED_AFTER_MS


def test_fi1_who_measures_nothing_for_longer_than_measuring_takes_is_silent() -> None:
    assert (promised_ms(CONTRACT), patience_ms(CONTRACT)) == (PROMISED_MS, PATIENCE_MS)
    made = SellerSilence()
    assert not made.is_silent(RUNS, CONTRACT, 500 + PATIENCE_MS)
    assert made.is_silent(RUNS, CONTRACT, 501 + PATIENCE_MS)
    made.measured("m", 4_000, Reading(seller=10))
    made.measured("m", 3_000, Reading(seller=10))
    made.measured("other", 9_000, Reading(seller=10))
    assert made.silent_ms(RUNS, 6_000) == 2_000
    assert not made.is_silent(RUNS, CONTRACT, 4_000 + PATIENCE_MS)
    made.measured("m", 6_000, Reading(buyer=10))
    assert made.is_silent(RUNS, CONTRACT, 4_001 + PATIENCE_MS), "its buyer's word is not its own"


def test_fi2_zeros_of_both_are_idleness_and_zeros_of_the_seller_alone_are_not() -> None:
    made = SellerSilence()
    made.measured("m", 2_000, Reading(seller=10, buyer=10))
    for end_ms in range(3_000, 9_000, 1_000):
        made.measured("m", end_ms, Reading(seller=0))
        assert not made.is_idle(RUNS, CONTRACT, end_ms + PATIENCE_MS)
    for end_ms in range(3_000, 9_000, 1_000):
        made.measured("m", end_ms, Reading(seller=0, buyer=0))
    assert not made.is_silent(RUNS, CONTRACT, 2_001 + PATIENCE_MS)
    assert made.is_idle(RUNS, CONTRACT, 2_001 + PATIENCE_MS)
    assert not made.is_idle(RUNS, CONTRACT, 2_000 + PATIENCE_MS)


def test_fi2_what_either_says_was_made_is_work() -> None:
    made = SellerSilence()
    made.measured("m", 5_000, Reading(seller=10, buyer=0))
    assert not made.is_idle(RUNS, CONTRACT, 5_000 + PATIENCE_MS)
    made.measured("m", 6_000, Reading(seller=0))
    made.measured("m", 6_000, Reading(seller=0, buyer=10))
    assert not made.is_idle(RUNS, CONTRACT, 6_000 + PATIENCE_MS)
    assert made.is_idle(RUNS, CONTRACT, 6_001 + PATIENCE_MS)


def test_a_zero_that_nobody_answered_in_time_stands() -> None:
    made = SellerSilence()
    made.measured("m", 4_000, Reading(seller=0))
    made.measured("m", 6_000, Reading(seller=0))
    made.settled(5_000)
    made.measured("m", 6_000, Reading(seller=0, buyer=0))
    assert not made.is_idle(RUNS, CONTRACT, 4_000 + PATIENCE_MS)
    assert made.is_idle(RUNS, CONTRACT, 4_001 + PATIENCE_MS)


@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 5), st.sampled_from([None, 0, 3])), max_size=40
    )
)
def test_fi2_a_seller_that_measures_what_it_made_is_never_idle(
    readings: list[tuple[int, int, int | None]],
) -> None:
    made, latest = SellerSilence(), 0
    for slot, seller, buyer in readings:
        made.measured("m", slot * METER_MS, Reading(seller=seller, buyer=buyer))
        latest = max(latest, slot * METER_MS)
        assert not made.is_idle(RUNS, CONTRACT, latest + PATIENCE_MS)
