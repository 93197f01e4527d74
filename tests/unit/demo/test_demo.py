from __future__ import annotations

from dataclasses import replace

import pytest

from demo.comparing import Comparison, Rejections
from demo.reporting import TOLLS_MIN, Outcome
from demo.story import FailureReport

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
    ],
)
def test_any_deviation_is_not_good(outcome: Outcome) -> None:
    assert not outcome.is_good()
