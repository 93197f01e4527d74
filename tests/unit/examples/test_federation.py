"""The oracle of the federation's demo."""

from __future__ import annotations

from collections import Counter

from examples.federation.demo import Sighting, oracle


def test_cars_count_once_in_a_window_and_pay_where_they_are_slow_and_many() -> None:
    jam = [Sighting("north", car % 6, 101, 20, 5_000 + car) for car in range(12)]
    free = [Sighting("south", car, 200, 80, 9_999) for car in range(9)]
    few = [Sighting("south", 1, 201, 5, 10_000)]
    assert oracle([*jam, *free, *few]) == Counter(
        {(10_000, 101, 6, 18): 1, (10_000, 200, 9, 0): 1, (15_000, 201, 1, 0): 1}
    )
