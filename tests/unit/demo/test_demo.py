from __future__ import annotations

import os
from dataclasses import replace

import pytest

from demo.comparing import Comparison, Rejections
from demo.machine_watch import MachineWatch
from demo.process_tree import TreeMeter
from demo.reporting import TOLLS_MIN, Outcome
from demo.stalls import LATE_MS, Apart, Stall
from demo.story import FailureReport
from harness.waiting import wait_until

GOOD = Outcome(
    records_in=10,
    records_min=10,
    tolls=TOLLS_MIN,
    rejections=Rejections(1, 1, 0, 0, 0),
    outputs={"tolls": Comparison(3, 3, 0, 0, 0, 0)},
    changed=[],
    latency_p50_ms=5,
    latency_p99_ms=9,
    memory_peak_bytes=2**30,
    generator_behind_ms=0,
    killed=[],
    left_processes=[],
    seconds=1.0,
)


FAILURE = FailureReport(
    cut="ingestion/reports_2",
    cut_ms=20_000,
    max_delay_ms=3_000,
    usual_p50_ms=500,
    usual_max_ms=700,
    longest_ms=3_000,
    first_tentative_ms=2_900,
    stable_again_ms=None,
    tentative=2,
    undone=2,
    corrected=3,
    failures=1,
    undos=1,
    rec_dones=1,
    answer=Comparison(3, 3, 0, 0, 0, 0),
)


def test_good_only_if_nothing_is_wrong() -> None:
    assert GOOD.is_good()
    assert replace(GOOD, failure=FAILURE).is_good()


@pytest.mark.parametrize(
    "outcome",
    [
        replace(GOOD, outputs={}),
        replace(GOOD, outputs={"tolls": Comparison(0, 0, 0, 0, 0, 0)}),
        replace(GOOD, records_in=9),
        replace(GOOD, records_in=0, records_min=0),
        replace(GOOD, tolls=TOLLS_MIN - 1),
        replace(GOOD, changed=["tolls, partition 0: its follower saw something else"]),
        replace(GOOD, rejections=Rejections(0, 0, 0, 0, 0)),
        replace(GOOD, outputs={"tolls": Comparison(3, 2, 1, 0, 0, 0)}),
        replace(GOOD, outputs={"tolls": Comparison(3, 4, 0, 1, 0, 0)}),
        replace(GOOD, outputs={"tolls": Comparison(3, 3, 0, 0, 1, 0)}),
        replace(GOOD, outputs={"tolls": Comparison(3, 3, 0, 0, 0, 1)}),
        replace(GOOD, outputs={**GOOD.outputs, "toll_notices": Comparison(3, 2, 1, 0, 0, 0)}),
        replace(GOOD, rejections=Rejections(1, 0, 1, 0, 0)),
        replace(GOOD, rejections=Rejections(1, 2, 0, 1, 0)),
        replace(GOOD, rejections=Rejections(1, 1, 0, 0, 1)),
        replace(GOOD, left_processes=[4711]),
        replace(GOOD, failure=replace(FAILURE, longest_ms=3_701)),
        replace(GOOD, failure=replace(FAILURE, broken=("the topic shows one cut as 2 failures",))),
        replace(GOOD, failure=replace(FAILURE, longest_ms=None)),
        replace(GOOD, failure=replace(FAILURE, usual_max_ms=None)),
        replace(GOOD, failure=replace(FAILURE, usual_max_ms=6_001, longest_ms=6_500)),
        replace(GOOD, failure=replace(FAILURE, tentative=0)),
        # a stall leaves delays unjudged, and excuses none that is judged
        replace(GOOD, failure=replace(FAILURE, longest_ms=3_701, apart_since=Apart(9, 8, 900))),
    ],
)
def test_any_deviation_is_not_good(outcome: Outcome) -> None:
    assert not outcome.is_good()


@pytest.mark.parametrize(
    "failure",
    [
        replace(FAILURE, longest_ms=None, apart_since=Apart(9, 9, 900)),
        replace(FAILURE, usual_p50_ms=None, usual_max_ms=None, apart_before=Apart(9, 9, 900)),
        replace(FAILURE, tentative=0, is_held_up=True),
    ],
)
def test_delays_in_a_stall_are_neither_a_failure_nor_a_pass(failure: FailureReport) -> None:
    assert replace(GOOD, failure=failure).is_good()
    assert not replace(GOOD, failure=replace(failure, broken=("it came twice",))).is_good()


def test_a_watch_finds_the_time_in_which_the_machine_stood_still() -> None:
    """Every other reading is that of a wake-up, and one of these is late."""
    readings = [0, 20, 1_000, 1_025, 2_000, 3_400, 4_000, 4_000 + 20 + LATE_MS - 1]
    watch = MachineWatch(TreeMeter(os.getpid()), lambda: readings.pop(0) if readings else 9_000)
    watch.start()
    wait_until(lambda: not readings, 30, "all were read")
    watch.stop()
    assert watch.stalls() == [Stall(2_020, 3_400)]
