"""Processor time of the parts of a run, and the overload that they allow."""

from __future__ import annotations

import os

import pytest

from benchmarks.smart_grid.parts import (
    EDGES_SHARE,
    FACTOR_LEAST,
    FACTOR_MOST,
    OWN,
    STAGES,
    edges_us,
    overload_factor,
    part_times,
    per_reading,
)
from demo.deployment import Row

SPENT = {OWN: 2.0, "delivery": 0.5, "ingestion": 3.0, STAGES[0]: 6.0, STAGES[1]: 2.0}


def test_a_service_is_a_part_and_a_stage_two() -> None:
    rows = [
        Row("ingestion", "readings", os.getpid(), "ready", None),
        Row("processing", "panes.0", os.getpid(), "ready", None),
        Row("delivery", "predictions", None, "starting", None),
    ]
    found = part_times(rows)
    assert set(found) >= {OWN, "ingestion", STAGES[1]}
    assert found["ingestion"] > 0
    assert "delivery" not in found


def test_a_part_that_was_not_there_before_has_spent_all_of_its_time() -> None:
    found = per_reading({OWN: 1.0}, {OWN: 3.0, "delivery": 0.5}, 1_000_000)
    assert found == {OWN: 2.0, "delivery": 0.5}


def test_with_a_live_topic_delivery_works_twice() -> None:
    assert edges_us(SPENT) == 6.0


@pytest.mark.parametrize(
    ("readings_per_s", "factor"),
    [
        (2 * EDGES_SHARE * 1e6 / 6.0 / 1.5, 1.5),
        (1_000.0, FACTOR_MOST),
        (1_000_000.0, FACTOR_LEAST),
    ],
)
def test_the_overload_leaves_cores_to_the_stages(readings_per_s: float, factor: float) -> None:
    assert overload_factor(SPENT, readings_per_s, cores=2) == pytest.approx(factor)


def test_parts_that_cost_nothing_bound_nothing() -> None:
    assert overload_factor({}, 1_000.0, cores=1) == FACTOR_MOST
