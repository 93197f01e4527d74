"""How much longer a stage waits for an input that has gone through more stages than another."""

from __future__ import annotations

import pytest

from anabranch.protocol.limits import HOP_MS
from anabranch.protocol.stage.availability import Availability, Policy, waits_of
from anabranch.protocol.stage.input_lags import HOP_LONGEST_MS, LAG_SAMPLES, InputLags

SHALLOW_MS = 700


def test_il1_inputs_of_one_depth_have_no_lag() -> None:
    lags = InputLags({"a": 0, "b": 0}, SHALLOW_MS)
    lags.closed("a", 90_000)
    assert lags.beyond_expected_ms == 0


def test_the_median_of_what_was_measured_takes_the_place_of_the_constant() -> None:
    lags = InputLags({"raw": 0, "deep": 4}, SHALLOW_MS)
    assert lags.beyond_expected_ms == 0
    for took_ms in (1_500, 1_700, 5_000):
        lags.closed("deep", took_ms)
    assert lags.beyond_expected_ms == 1_000 - 4 * HOP_MS
    lags.closed("raw", 9_000)
    assert lags.beyond_expected_ms == 1_000 - 4 * HOP_MS


def test_a_short_failure_moves_nothing_and_slower_stages_do() -> None:
    lags = InputLags({"raw": 0, "deep": 1}, SHALLOW_MS)
    for _ in range(LAG_SAMPLES):
        lags.closed("deep", SHALLOW_MS + 100)
    for _ in range(LAG_SAMPLES // 2):
        lags.closed("deep", SHALLOW_MS + HOP_LONGEST_MS)
    assert lags.beyond_expected_ms == 100 - HOP_MS
    lags.closed("deep", SHALLOW_MS + HOP_LONGEST_MS)
    assert lags.beyond_expected_ms == HOP_LONGEST_MS - HOP_MS


def test_il2_il3_what_took_too_long_is_no_hop() -> None:
    lags = InputLags({"raw": 0, "deep": 1}, SHALLOW_MS)
    lags.closed("deep", SHALLOW_MS + HOP_LONGEST_MS + 1)
    assert lags.beyond_expected_ms == 0


@pytest.mark.parametrize("hop_ms", [200, 600, 1_000])
def test_a_raw_source_joined_with_a_stream_of_four_hops_fails_only_when_something_fails(
    hop_ms: int,
) -> None:
    """Buckets of 500 ms; the stream closes each four hops after the source did."""
    deep_ms, width_ms = 4 * hop_ms, 500
    expected = waits_of(3_000, SHALLOW_MS + 4 * HOP_MS, 4, 1)
    availability = Availability(
        ["raw", "deep"], expected, Policy.PROCESS, InputLags({"raw": 0, "deep": 4}, SHALLOW_MS)
    )
    over = []
    for now_ms in range(0, 100_000, 100):
        raw, deep = 1_000 + now_ms // width_ms, 1_000 + max(0, now_ms - deep_ms) // width_ms
        if now_ms >= 90_000:
            deep = 1_000 + (90_000 - deep_ms) // width_ms
        availability.observe(now_ms, raw, raw + 1)
        for name, upto in (("raw", raw), ("deep", deep)):
            availability.closed(name, upto, now_ms)
            availability.read_to_end(name, now_ms)
        if availability.first_over(deep + 1):
            over.append(now_ms)
    budget_ms = expected.first_ms - 4 * HOP_MS - SHALLOW_MS
    assert over
    begins_ms = (
        90_000 - deep_ms - width_ms
    )  # at the latest the timer of the first bucket that does not come
    assert begins_ms <= over[0] - deep_ms - SHALLOW_MS - budget_ms + 2 * width_ms <= 90_000
    assert over[0] > 90_000
    assert (
        availability.waits.first_ms - expected.first_ms
        == deep_ms + width_ms - SHALLOW_MS - 4 * HOP_MS
    )
