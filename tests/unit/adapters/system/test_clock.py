"""The system's clocks."""

from __future__ import annotations

import time

from anabranch.adapters.system.clock import SystemClock


def test_clocks_are_in_milliseconds() -> None:
    clock = SystemClock()
    before_s = time.time()
    now_ms = clock.now_ms()
    assert before_s * 1_000 - 1 <= now_ms <= time.time() * 1_000
    began = clock.monotonic_ms()
    clock.sleep_ms(20)
    assert 15 <= clock.monotonic_ms() - began < 2_000
    clock.sleep_ms(0)
    clock.sleep_ms(-5)
