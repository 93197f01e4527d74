"""The smart grid's input has the challenge's layout and flaws, and depends on the seed alone."""

from __future__ import annotations

import polars as pl
import pytest

from benchmarks.smart_grid.generator import FIELDS, LOAD, WORK, Plan, World, digest, layout

PLAN = Plan(houses=2, days=2, minutes=3)
PLUG = ["house_id", "household_id", "plug_id"]


@pytest.mark.parametrize("seed", [1, 7, 4711])
def test_the_layout_is_that_of_the_challenge(seed: int) -> None:
    plugs = layout(seed)
    by_house = plugs.group_by("house_id").agg(
        pl.len(), pl.col("household_id").n_unique().alias("households")
    )
    assert plugs.height == 2_125 == plugs.unique().height
    assert sorted(by_house["house_id"]) == list(range(40))
    assert (by_house["len"].min(), by_house["len"].max()) == (7, 141)
    assert by_house["households"].max() == 18
    assert plugs.group_by("house_id", "household_id").len()["len"].max() <= 14  # type: ignore[operator]


def test_a_seed_gives_the_same_input_and_another_another() -> None:
    assert digest(World(PLAN).blocks()) == digest(World(PLAN).blocks())
    assert digest(World(PLAN).blocks()) != digest(World(Plan(2, 2, 3, seed=2)).blocks())


def test_readings_come_in_order_with_gaps_and_repetitions() -> None:
    readings = World(PLAN).readings()
    plugs = readings.select(PLUG).unique().height
    whole = plugs * 2 * 3 * 60
    names = [name for name in FIELDS if name != "id"]
    distinct = readings.select(names).unique().height
    assert readings["id"].to_list() == list(range(readings.height))
    assert 0.92 * whole < distinct < 0.99 * whole
    assert 0.005 * whole < readings.height - distinct < 0.015 * whole
    behind = readings["timestamp"].cum_max() - readings["timestamp"]
    assert behind.max() == 1, "a repeated reading comes in the next second"


def test_a_plug_measures_load_and_work_in_turn_and_work_is_the_sum_of_loads() -> None:
    readings = World(Plan(houses=1, days=1, minutes=60)).readings()
    by_kind = dict(readings.group_by("property").len().iter_rows())
    assert by_kind[LOAD] / by_kind[WORK] == pytest.approx(1, rel=0.02)
    work_kwh, load_kw = 0.0, 0.0
    for _, plug in readings.sort("timestamp").group_by(PLUG):
        work = plug.filter(property=WORK)["value"]
        assert (work.diff().drop_nulls() >= 0).all()
        work_kwh += work[-1]
        load_kw += float(plug.filter(property=LOAD)["value"].mean()) / 1_000  # type: ignore[arg-type]
    assert work_kwh > 1
    assert work_kwh == pytest.approx(load_kw, rel=0.05), "one hour"
