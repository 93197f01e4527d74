"""Restart delays grow, are bounded, and start over after a healthy run."""

from __future__ import annotations

from anabranch.protocol.restarting import DELAY_MAX_MS, HEALTHY_AFTER_MS, STAGE_FAILED_DELAY_MAX_MS, Backoff


def test_delays_double_from_half_a_second_to_thirty() -> None:
    backoff = Backoff()
    delays = [backoff.after_end(1_000) for _ in range(9)]
    assert delays == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert delays[-1] == DELAY_MAX_MS


def test_a_failing_stage_gets_up_to_a_minute() -> None:
    backoff = Backoff()
    assert [backoff.after_end(0, STAGE_FAILED_DELAY_MAX_MS) for _ in range(40)][-1] == STAGE_FAILED_DELAY_MAX_MS == 60_000


def test_a_healthy_minute_starts_over() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.after_end(HEALTHY_AFTER_MS - 1)
    assert backoff.after_end(HEALTHY_AFTER_MS) == 500
    assert backoff.after_end(0) == 1_000
