"""Clock and randomness that tests control."""

from __future__ import annotations

import re

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock


def test_time_stands_still_unless_it_is_told_to_pass() -> None:
    clock = VirtualClock(1_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000, 0)
    clock.sleep_ms(5)
    clock.advance(10)
    clock.sleep_ms(-1)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_015, 15)


def test_the_wall_clock_jumps_without_time_passing() -> None:
    clock = VirtualClock(1_000)
    clock.jump(-300)
    assert (clock.now_ms(), clock.monotonic_ms()) == (700, 0)
    with pytest.raises(ValueError, match="jump"):
        clock.advance(-1)


def test_the_same_seed_gives_the_same_tokens() -> None:
    one = SeededEntropy(1)
    two = SeededEntropy(1)
    other = SeededEntropy(2)
    tokens = [one.token() for _ in range(100)]
    assert tokens == [two.token() for _ in range(100)]
    assert len({*tokens, other.token()}) == 101
    assert all(re.fullmatch("[0-9a-f]{16}", token) for token in tokens)
