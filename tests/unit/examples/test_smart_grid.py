"""The functions and processors of the smart grid give the oracle's results, without Spark: what
Spark gathers into a row is gathered here.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import Row

from anabranch.stateful import BatchSafeProcessor, Timers
from benchmarks.smart_grid.generator import FIELDS, Plan, World
from benchmarks.smart_grid.oracle import Expected, expected
from benchmarks.smart_grid.validator import Verdict, judge, prediction_of, share_of
from examples.smart_grid import stages

PLAN = Plan(houses=2, days=3, minutes=3, seed=2)
SAMPLE = Path(stages.__file__).parent / "tests/sample"
_HOUSE = Row("places", "totals_mw", "readings", "slice", "ahead", "event_time")
_STEP = Row("stop", "plugs", "sizes", "loads_mw", "counts", "event_time")
_BITS = 20


class Runner:
    """State and results of a processor by key."""

    def __init__(self, processor: BatchSafeProcessor) -> None:
        self._processor = processor
        self._states: dict[tuple[int, ...], tuple[Any, ...] | None] = {}
        self.results: list[dict[str, Any]] = []

    def take(self, key: tuple[int, ...], row: Row) -> None:
        state, results = self._processor.row(key, row, self._states.get(key), Timers(None))
        self._states[key] = state
        self.results += [each.asDict() for each in results]


@pytest.fixture(scope="module")
def readings() -> pl.DataFrame:
    return World(PLAN).readings()


@pytest.fixture(scope="module")
def truth(readings: pl.DataFrame) -> Expected:
    return expected(readings.iter_rows())


def verdict_on(readings: pl.DataFrame, truth: Expected) -> Verdict:
    """Run the input through both processors, and judge."""
    distinct = {
        (second, house, household, plug, round(value * 1_000))
        for _, second, value, kind, plug, household, house in readings.iter_rows()
        if kind == stages.LOAD
    }
    loads: dict[int, dict[tuple[int, int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for second, house, household, plug, load in sorted(distinct):
        loads[second // 30 * 30][house, household, plug].append(load)
    predictions, outliers = Runner(stages.Predictions()), Runner(stages.Outliers())
    steps: dict[tuple[int, int], list[tuple[int, Counter[int]]]] = defaultdict(list)
    for start in sorted(loads):
        at = datetime.fromtimestamp(start + 30, UTC)
        houses: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for (house, household, plug), found in loads[start].items():
            place = (household << _BITS) + plug
            houses[house].append((place, sum(found), len(found)))
            for hours, step_s in stages.WINDOWS:
                pane = (house << 2 * _BITS) + place, Counter(found)
                steps[start // step_s * step_s + step_s, hours].append(pane)
        for house, plugs in houses.items():
            for minutes in stages.SLICES_MIN:
                number = start // (60 * minutes)
                for ahead in (0, stages.AHEAD):
                    key = (house, minutes, (number + ahead) % (1_440 // minutes))
                    predictions.take(
                        key, _HOUSE(*zip(*sorted(plugs), strict=True), number, ahead, at)
                    )
    for stop, hours in sorted(steps):
        outliers.take((hours,), step_of(stop, steps[stop, hours]))
    return judge(
        truth,
        [
            prediction_of(each, int(row["event_time"].timestamp()))
            for row in predictions.results
            for each in of_plugs(row)
        ],
        [share_of(row) for row in outliers.results],
    )


def step_of(stop: int, panes: list[tuple[int, Counter[int]]]) -> Row:
    """Return a step of these panes, each of a plug with the numbers of its loads."""
    return _STEP(
        stop,
        [plug for plug, _ in panes],
        [len(counts) for _, counts in panes],
        [load for _, counts in panes for load in counts],
        [count for _, counts in panes for count in counts.values()],
        datetime.fromtimestamp(stop, UTC),
    )


def of_plugs(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Make a row of each place, as Spark does."""
    for place, load_mw in zip(row["places"], row["loads_mw"], strict=True):
        household, plug = (None, None) if place < 0 else divmod(place, 1 << _BITS)
        yield {**row, "household_id": household, "plug_id": plug, "load_mw": load_mw}


def test_each_result_is_right(readings: pl.DataFrame, truth: Expected) -> None:
    verdict = verdict_on(readings, truth)
    assert verdict.is_valid, "\n".join(verdict.lines())
    assert verdict.predictions.expected > 5_000
    assert verdict.shares.expected > 10


@pytest.mark.parametrize(
    ("name", "value", "is_of_predictions"),
    [
        ("AHEAD", 1, True),
        ("HISTORY_DAYS", 1, True),
        ("_HOUR_S", 60, False),
        ("WINDOWS", ((1, 60), (24, 720)), False),
    ],
)
def test_another_rule_is_found(
    name: str,
    value: object,
    *,
    is_of_predictions: bool,
    readings: pl.DataFrame,
    truth: Expected,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, name, value)
    if name == "_HOUR_S":  # the reported window would be refused: take the oracle's for its length
        real = stages._OUTLIERS
        monkeypatch.setattr(
            stages,
            "_OUTLIERS",
            lambda hours, house, _, stop, *rest: real(
                hours, house, stop - hours * 3_600, stop, *rest
            ),
        )
    verdict = verdict_on(readings, truth)
    assert verdict.predictions.is_valid is not is_of_predictions
    assert verdict.shares.is_valid is is_of_predictions


def test_medians_of_counted_values() -> None:
    groups = np.array([7, 3, 3, 7, 3])
    values = np.array([5, 10, 20, 5, 40])
    counts = np.array([1, 1, 2, 2, 1])
    found, twice = stages.medians(groups, values, counts)
    assert found.tolist() == [3, 7]
    assert twice.tolist() == [40, 10]  # of 10 20 20 40, and of 5 5 5
    assert stages.medians(groups[:0], values[:0], counts[:0])[1].tolist() == []


@pytest.mark.parametrize("size", range(1, 7))
def test_medians_are_those_of_numpy(size: int) -> None:
    values = np.random.default_rng(size).integers(0, 9, size)
    counts = np.random.default_rng(size + 1).integers(1, 4, size)
    _, twice = stages.medians(np.zeros(size, "i8"), values, counts)
    assert twice.tolist() == [2 * np.median(np.repeat(values, counts))]


def readings_of(*rows: tuple[int, int, float, int]) -> pa.Table:
    """Return readings of plugs of one household, as (plug, second, value, property)."""
    plug, second, value, kind = zip(*rows, strict=True)
    same = [0] * len(rows)
    return pa.table(
        {
            "house_id": pa.array(same, pa.int32()),
            "household_id": pa.array(same, pa.int32()),
            "plug_id": pa.array(plug, pa.int32()),
            "timestamp": pa.array(second, pa.int64()),
            "value": pa.array(value, pa.float64()),
            "property": pa.array(kind, pa.int32()),
        }
    )


def classes(rows: pa.Table) -> list[int]:
    """Return 2 for a load that changed, 1 for another, 0 for work."""
    return [min(2, each) for each in stages.changed(rows)]


def test_what_changed_is_left_out_plug_by_plug() -> None:
    """One reading of each plug would cost the stages behind as much as all of them."""
    readings = World(Plan(houses=40, days=1, minutes=1)).readings()
    readings = readings.with_columns(matters=pl.Series(stages.changed(readings.to_arrow())))
    plug = ["house_id", "household_id", "plug_id"]
    changed = readings.filter(pl.col("matters") >= 2)
    assert changed.group_by(plug).agg(pl.col("matters").n_unique())["matters"].max() == 1
    most = changed.sort("matters", descending=True).head(changed.height // 4)
    plugs, all_plugs = (each.select(plug).unique().height for each in (most, changed))
    assert 0.15 < plugs / all_plugs < 0.35


def test_a_load_matters_if_it_left_the_last_one_that_did_by_more_than_5_w() -> None:
    rows = readings_of(
        (0, 0, 100.0, 1),  # the first
        (0, 1, 105.0, 1),  # exactly 5 W: steady
        (0, 2, 105.5, 1),  # 5.5 W from the first, not from the last
        (0, 3, 101.0, 1),
        (0, 4, 100.0, 1),
        (1, 1, 105.0, 1),  # another plug
        (0, 5, 900.0, 0),  # work
    )
    assert classes(rows) == [2, 1, 2, 1, 2, 2, 0]


def test_the_order_of_the_rows_does_not_matter() -> None:
    rows = readings_of((0, 2, 200.0, 1), (0, 0, 100.0, 1), (0, 1, 100.0, 1))
    assert classes(rows) == [2, 2, 1]
    assert classes(rows.slice(0, 0)) == []


def test_most_steady_readings_may_go() -> None:
    readings = World(Plan(houses=1, days=1, minutes=1)).readings().to_arrow()
    matters = np.asarray(stages.changed(readings))
    kept = (matters >= 2).sum() / (matters > 0).sum()
    assert 0.02 < kept < 0.5


def sample(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file of the example's sample case."""
    text = (SAMPLE / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_the_sample_expects_what_the_oracle_does() -> None:
    found = expected(tuple(row[name] for name in FIELDS) for row in sample("readings"))
    predictions = [
        prediction_of(row, row["event_time"] // 1_000) for row in sample("predictions.expected")
    ]
    verdict = judge(found, predictions, map(share_of, sample("outliers.expected")))
    assert verdict.is_valid, "\n".join(verdict.lines())


@pytest.mark.parametrize(
    "numbers", [[7], [7, 7], [-1, 254], [-1, 255], [0, 1 << 40], [-(1 << 63), (1 << 63) - 1]]
)
def test_packed_numbers_come_back(numbers: list[int]) -> None:
    assert stages._unpacked(stages._packed(np.array(numbers, "i8"))).tolist() == numbers


def test_packed_numbers_are_as_narrow_as_their_differences() -> None:
    far = 1_378_058_400 + np.arange(0, 3_600, 30)
    assert len(stages._packed(far)) == 16 + 2 * len(far)


@pytest.mark.parametrize("far", [0, 1 << 61])
def test_a_step_is_put_in_its_places(far: int) -> None:
    random = np.random.default_rng(1)

    def entries(size: int) -> tuple[Any, ...]:
        plugs, loads = random.integers(0, 9, size), random.integers(0, 9, size) * (1 + far // 8)
        order = np.lexsort((loads, plugs))
        return plugs[order], loads[order], random.integers(0, 9, size), random.integers(1, 9, size)

    for sizes in ((0, 1), (1, 3), (40, 20)):
        old, new = entries(sizes[0]), entries(sizes[1])
        merged = list(zip(*stages._merged(old, new), strict=True))
        assert sorted(merged) == sorted(
            each for part in (old, new) for each in zip(*part, strict=True)
        )
        assert [each[:2] for each in merged] == sorted(each[:2] for each in merged)
