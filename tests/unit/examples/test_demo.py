from __future__ import annotations

from dataclasses import replace

import pytest

from examples.toll_road.comparing import Comparison, Refusals
from examples.toll_road.demo import Outcome, report

GOOD = Outcome(
    records_in=10,
    refusals=Refusals(1, 1, 0, 0, 0),
    outputs={"tolls": Comparison(3, 3, 0, 0, 0, 0)},
    latency_p50_ms=5,
    latency_p99_ms=9,
    memory_peak_bytes=2**30,
    generator_behind_ms=0,
    killed=[],
    left_processes=[],
    seconds=1.0,
)


def test_good_only_if_nothing_is_wrong() -> None:
    assert GOOD.is_good()


@pytest.mark.parametrize(
    "outcome",
    [
        replace(GOOD, outputs={}),
        replace(GOOD, outputs={"tolls": Comparison(3, 2, 1, 0, 0, 0)}),
        replace(GOOD, outputs={"tolls": Comparison(3, 4, 0, 1, 0, 0)}),
        replace(GOOD, outputs={"tolls": Comparison(3, 3, 0, 0, 1, 0)}),
        replace(GOOD, outputs={"tolls": Comparison(3, 3, 0, 0, 0, 1)}),
        replace(GOOD, outputs={**GOOD.outputs, "toll_notices": Comparison(3, 2, 1, 0, 0, 0)}),
        replace(GOOD, refusals=Refusals(1, 0, 1, 0, 0)),
        replace(GOOD, refusals=Refusals(1, 2, 0, 1, 0)),
        replace(GOOD, refusals=Refusals(1, 1, 0, 0, 1)),
        replace(GOOD, left_processes=[4711]),
    ],
)
def test_any_deviation_is_not_good(outcome: Outcome) -> None:
    assert not outcome.is_good()


def test_the_table_has_a_row_per_finding() -> None:
    assert report(GOOD).row_count == 12
    assert report(replace(GOOD, latency_p50_ms=None, latency_p99_ms=None)).row_count == 12
