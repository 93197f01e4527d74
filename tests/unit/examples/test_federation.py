"""The federation's demo: its oracle, and its samples."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from examples.federation.demo import Sighting, oracle


def test_cars_count_once_in_a_window_and_pay_where_they_are_slow_and_many() -> None:
    jam = [Sighting("north", car % 6, 101, 20, 5_000 + car) for car in range(12)]
    free = [Sighting("south", car, 200, 80, 9_999) for car in range(9)]
    few = [Sighting("south", 1, 201, 5, 10_000)]
    assert oracle([*jam, *free, *few]) == Counter(
        {(10_000, 101, 6, 18): 1, (10_000, 200, 9, 0): 1, (15_000, 201, 1, 0): 1}
    )


SAMPLES = Path(__file__).resolve().parents[3] / "examples" / "federation" / "tests"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SAMPLES / name).read_text().splitlines()]


def test_the_samples_of_the_three_are_one_story() -> None:
    """A test on Spark runs the stages on each sample."""
    seen = []
    for region in ("north", "south"):
        speeds = f"{region}_speeds.jsonl"
        assert rows(f"billing/{speeds}") == rows(f"{region}/speeds.expected.jsonl")
        seen += [
            Sighting(region, row["car"], row["segment"], row["speed"], row["time"])
            for row in rows(f"{region}/sightings.jsonl")
        ]
    tolls = rows("billing/tolls.expected.jsonl")
    assert oracle(seen) == Counter(
        (row["event_time"], row["segment"], row["cars"], row["toll"]) for row in tolls
    )
    assert {row["toll"] for row in tolls} == {0, 2, 8}
