"""Restart delays grow, are bounded, and start over after a healthy run."""

from __future__ import annotations

from anabranch.protocol.control.restarting import (
    DELAY_MAX_MS,
    ENGINE_ENDS_MAX,
    ENGINE_ENDS_TOGETHER_MS,
    HEALTHY_AFTER_MS,
    STAGE_FAILED_DELAY_MAX_MS,
    Backoff,
    EngineEnd,
    remembered,
    suspects,
)


def test_delays_double_from_half_a_second_to_thirty() -> None:
    backoff = Backoff()
    delays = [backoff.after_end(1_000) for _ in range(9)]
    assert delays == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert delays[-1] == DELAY_MAX_MS


def test_a_failing_stage_gets_up_to_a_minute() -> None:
    backoff = Backoff()
    assert (
        [backoff.after_end(0, of_function=True) for _ in range(40)][-1]
        == STAGE_FAILED_DELAY_MAX_MS
        == 60_000
    )


def test_a_healthy_minute_starts_over() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.after_end(HEALTHY_AFTER_MS - 1)
    assert backoff.after_end(HEALTHY_AFTER_MS) == 500
    assert backoff.after_end(0) == 1_000


def test_of_ends_of_an_engine_the_last_that_belong_together_are_remembered() -> None:
    ends = tuple(EngineEnd(number, (str(number),)) for number in range(9))
    assert remembered(ends, EngineEnd(10, ())) == (
        *ends[-(ENGINE_ENDS_MAX - 1) :],
        EngineEnd(10, ()),
    )
    late = EngineEnd(ENGINE_ENDS_TOGETHER_MS + 8, ())
    assert remembered(ends, late) == (ends[8], late)
    assert remembered([EngineEnd(99, ())], EngineEnd(10, ())) == (EngineEnd(10, ()),), (
        "a clock that went back"
    )


def test_who_ran_each_time_is_suspected() -> None:
    both, one = EngineEnd(1, ("a", "b")), EngineEnd(2, ("b", "c"))
    assert suspects([both]) == ()
    assert suspects([both, one]) == ("b",)
    assert suspects([both, both]) == ("a", "b")
    assert suspects([both, one, EngineEnd(3, ("a",))]) == ()
