"""Seeds of several participants in every test run. More: ``make simulation SEEDS=300
ARGS="--federation"``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from simulation import dishonest, explore, market, mutants
from simulation.planted_bugs.participants import PARTICIPANTS
from simulation.planted_bugs.resales import RESALES

SEEDS = 12
SLICES = 3
FIRST = explore.first_seed()


@pytest.mark.parametrize("piece", range(SLICES))
def test_seeds(piece: int) -> None:
    seeds = range(FIRST + piece * SEEDS // SLICES, FIRST + (piece + 1) * SEEDS // SLICES)
    total = explore.explore(seeds, twice_every=4, draw=market.draw)
    assert total.failed == [], f'again: make simulation SEED={total.failed[0]} ARGS="--federation"'
    assert total.twice == 1
    assert total.probes["stage sold"] > 0


CANARIES = (
    "partners_claim_trims",
    "forged_answer_believed",
    "old_node_stops_at_the_move",
    "failed_seller_keeps_the_stage",
    "claim_above_the_meter_paid",
    "late_measurement_is_silence",
    "audit_counts_rows_alone",
    "sold_on_is_not_metered",
)


@pytest.mark.parametrize("name", CANARIES)
def test_a_planted_bug_is_found_by_the_checker_that_is_meant_for_it(name: str) -> None:
    mutant = next(each for each in (*PARTICIPANTS, *RESALES) if each.name == name)
    seed, _ = mutants.hunt(mutant, 5)
    assert seed is not None


def test_options_differ_between_seeds() -> None:
    drawn = [market.draw(seed) for seed in range(200)]
    assert {len(each.stages) for each in drawn} == {1, 2}
    assert {each.sold for each in drawn} == {"s0", "s1"}
    assert {each.delta for each in drawn} >= {0, 25}
    seen = Counter(each.dishonest for each in drawn)
    kinds = {*dishonest.KINDS, *dishonest.OF_RESALES, dishonest.MAKES_UP_EPOCHS}
    assert set(seen) == {"", *kinds}
    assert seen[""] > 100
    assert 30 < sum(each.is_resale for each in drawn) < 70
    lies = Counter(each.lie for each in drawn)
    assert set(lies) == {"", market.HOLDS_ALL, market.HOLDS_NOTHING}
    assert 100 < lies[""] < 170
