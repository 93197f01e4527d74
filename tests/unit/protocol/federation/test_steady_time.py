"""The time by which an agent waits goes on, whatever the wall clock does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.steady_time import SteadyTime

HOUR_MS = 3_600_000


def test_it_is_the_wall_clock_s_while_that_goes_on() -> None:
    time = SteadyTime()
    assert [time.at(wall_ms, wall_ms - 500) for wall_ms in (1_000, 1_001, 1_002, 9_000)] == [
        1_000,
        1_001,
        1_002,
        9_000,
    ]


def test_after_a_clock_is_set_back_it_goes_at_half_the_speed_until_they_meet() -> None:
    time = SteadyTime()
    assert time.at(HOUR_MS, 0) == HOUR_MS
    found = [time.at(at_ms, at_ms) for at_ms in range(1, 2_001)]
    assert found == sorted(found)
    assert found[-1] == HOUR_MS + 1_000, "however often it is asked"
    assert time.at(2 * HOUR_MS - 1, 2 * HOUR_MS - 1) == 2 * HOUR_MS
    assert time.at(2 * HOUR_MS, 2 * HOUR_MS) == 2 * HOUR_MS
    assert time.at(2 * HOUR_MS + 7, 2 * HOUR_MS + 7) == 2 * HOUR_MS + 7


@given(
    st.lists(
        st.tuples(st.integers(0, 5_000), st.integers(-100_000, 100_000)), min_size=2, max_size=40
    )
)
def test_wt1_wt2_wt3_any_clock(steps: list[tuple[int, int]]) -> None:
    time = SteadyTime()
    known = list[tuple[int, int]]()
    monotonic_ms = 0
    wall_ms = 10**9
    for passes_ms, jump_ms in steps:
        monotonic_ms += passes_ms
        wall_ms += passes_ms + jump_ms
        at_ms = time.at(wall_ms, monotonic_ms)
        assert at_ms >= wall_ms
        for before_ms, since_ms in known:
            assert 2 * (at_ms - before_ms) + 1 >= monotonic_ms - since_ms
            assert at_ms >= before_ms
        if at_ms > wall_ms:
            before_ms, since_ms = known[-1]
            assert at_ms - before_ms <= (monotonic_ms - since_ms + 1) // 2 + 1
        known.append((at_ms, monotonic_ms))
