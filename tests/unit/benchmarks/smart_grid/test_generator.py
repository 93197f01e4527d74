"""The smart grid's input depends on the seed alone."""

from __future__ import annotations

from benchmarks.smart_grid.generator import Plan, World, digest


def test_a_seed_gives_the_same_input_and_another_another() -> None:
    first, again, other = (
        digest(World(Plan(houses=2, days=2, minutes=3, seed=seed)).blocks()) for seed in (1, 1, 2)
    )
    assert first == again != other
