"""Seeds in which shards are split, in every test run. More: ``make simulation SEEDS=300
ARGS="--splits"``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from simulation import explore, mutants, splits
from simulation.planted_bugs.splits import SPLITS
from simulation.split_world import draw

SEEDS = 24
FIRST = explore.first_seed()


def test_seeds() -> None:
    failed, probes = splits.explore(range(FIRST, FIRST + SEEDS))
    assert failed == [], f'again: make simulation SEED={failed[0]} ARGS="--splits"'
    for place in ("half begins", "split confirmed", "split withdrawn", "shard ends"):
        assert probes[place] > 0


CANARIES = (
    "rows_are_counted_and_not_compared",
    "few_buckets_prove_it",
    "late_scaler_begins_an_attempt",
    "half_stops_at_the_end",
    "results_that_lack_input_are_not_void",
    "shard_is_read_beyond_its_end",
    "records_after_the_end_count",
    "half_of_a_half_is_read_too_early",
    "no_deadline",
)


@pytest.mark.parametrize("name", CANARIES)
def test_a_planted_bug_is_found_by_the_checker_that_is_meant_for_it(name: str) -> None:
    mutant = next(each for each in SPLITS if each.name == name)
    seed, _ = mutants.hunt(mutant, 30)
    assert seed is not None


def test_options_differ_between_seeds() -> None:
    drawn = [draw(seed) for seed in range(200)]
    kinds = Counter((each.is_keyed, each.never_starts, each.half_pace > 2) for each in drawn)
    assert len(kinds) == 4
    assert {each.replicas for each in drawn} == {1, 2}
    assert sum(each.has_odd_clock for each in drawn) > 20
