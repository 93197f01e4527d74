"""What buckets and boundaries cost: sizes by the real codec, and delays of chains in virtual
time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.dpc.serialising import SPREAD, bucket_delays, calm, sizes
from experiments.dpc.virtual import Costs

pytestmark = pytest.mark.no_cover  # the lines are those of an experiment

PACED = Costs(batch_ms=214, pace_ms=800, spread=SPREAD)


def test_a_block_costs_the_same_whatever_it_holds() -> None:
    one, many = sizes(10, "four numbers"), sizes(1_000, "four numbers")
    assert one[0] == 320
    assert one[1] - one[0] == pytest.approx(many[1] - many[0], abs=64)
    assert one[2] == pytest.approx(many[2], abs=4)


def mean_ms(nodes: int, costs: Costs, width_ms: int = 100) -> float:
    delays = bucket_delays(calm(nodes, costs, width_ms))
    return sum(delays) / len(delays)


def test_slots_halve_what_a_node_adds_and_cost_no_batch() -> None:
    first = mean_ms(1, PACED)
    before, kept = (calm(4, replace(PACED, keeps_slots=each)) for each in (False, True))
    adds = [sum(found) / len(found) - first for found in map(bucket_delays, (before, kept))]
    assert 3 * 214 * 0.9 < adds[1] < 0.67 * adds[0]
    batches = [sum(each.batches for each in running.replicas) for running in (before, kept)]
    assert batches[1] <= batches[0]


def test_the_width_of_a_bucket_is_kept() -> None:
    running = calm(1, Costs(batch_ms=10), 200)
    assert running.pipeline.bucket_ms == 200
    assert max(bucket_delays(running)) <= 40
