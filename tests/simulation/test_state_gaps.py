"""Tests of what stages may give up that are added late."""

from __future__ import annotations

import itertools

from simulation import drawing, explore, scenarios


def test_a_run_without_deletions_is_judged() -> None:
    """Faults are left out one after the other while a run that failed is shrunk."""
    seed = next(each for each in itertools.count() if scenarios.of(each) == "added late")
    assert explore.once(seed, [], chosen=drawing.draw(seed)).wrong == []
