"""Tests of what stages may give up that are added late."""

from __future__ import annotations

import itertools

from simulation import drawing, explore, scenarios


def test_a_run_without_deletions_is_judged() -> None:
    """As when its faults are shrunk."""
    seed = next(each for each in itertools.count() if scenarios.of(each) == "added late")
    assert explore.once(seed, [], chosen=drawing.draw(seed)).wrong == []
