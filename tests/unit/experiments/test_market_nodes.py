"""Tables of three owners on real nodes, from samples."""

from __future__ import annotations

import pytest

from experiments.market.nodes import OWNERS, Sample, is_rush, nodes_table, waiting


def samples(*north: float) -> list[Sample]:
    return [
        Sample(10 * number, {"north": load, "south": 0.2, "west": 0.0}, "north.0")
        for number, load in enumerate(north)
    ]


def test_a_rush_of_south_lies_within_that_of_north() -> None:
    assert [at_s for at_s in range(200) if is_rush("south", at_s)] == [*range(60, 110)]
    assert all(is_rush("north", at_s) for at_s in range(60, 110))


def test_waiting_is_that_of_a_queue_and_grows_above_the_capacity() -> None:
    assert waiting(samples(0.5, 0.5), "north") == pytest.approx(2)
    assert waiting(samples(0.8), "north") == pytest.approx(4)
    assert waiting(samples(1.0), "north") < waiting(samples(1.5), "north")


def test_settled_sums_and_what_waiting_was_saved_are_the_gain() -> None:
    text = nodes_table(samples(0.8, 0.9), samples(0.8, 0.5), {"north": -2_000_000, "west": 10**6})
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line]
    assert rows[3] == ["10", "90", "50", "20", "20", "0", "0", "north.0"]
    assert rows[-3:] == [
        ["north", "13.00", "5.00", "-2.00", "6.00"],
        ["south", "0.50", "0.50", "0.00", "0.00"],
        ["west", "0.00", "0.00", "1.00", "1.00"],
    ]
    assert [row[0] for row in rows[-3:]] == [*OWNERS]
