"""The phases of a failover, by a clock that the test moves."""

from __future__ import annotations

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.processing.failover import Failover


def test_each_phase_is_what_passed_since_the_one_before() -> None:
    clock = VirtualClock()
    made = Failover(clock, 1_700)
    for phase, ms in (("copy", 40), ("epoch", 300), ("steps", 0)):
        clock.advance(ms)
        made.passed(phase)
    clock.advance(900)
    assert made.first_batch(650) == {
        "silence": 1_700,
        "copy": 40,
        "epoch": 300,
        "steps": 0,
        "query": 250,
        "first_batch": 650,
    }


def test_a_batch_that_took_longer_than_the_rest_leaves_nothing_to_the_query() -> None:
    made = Failover(VirtualClock(), 0)
    assert made.first_batch(5) == {"silence": 0, "query": 0, "first_batch": 5}
