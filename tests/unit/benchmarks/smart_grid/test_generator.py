"""The smart grid's input has the challenge's layout and flaws, and depends on the seed alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks.smart_grid import generator
from benchmarks.smart_grid.generator import FIELDS, FIRST_S, LOAD, WORK, Plan, World, digest, layout

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


def test_numbers_of_plugs_and_households_repeat_in_other_houses() -> None:
    plugs = layout(1)
    assert plugs["plug_id"].n_unique() <= 14
    assert plugs["household_id"].n_unique() == 18


def test_a_seed_gives_the_same_input_and_another_another() -> None:
    assert digest(World(PLAN).blocks()) == digest(World(PLAN).blocks())
    assert digest(World(PLAN).blocks()) != digest(World(Plan(2, 2, 3, seed=2)).blocks())


def test_more_houses_leave_the_others_as_they_are() -> None:
    names = [name for name in FIELDS if name != "id"]
    few = World(PLAN).readings().select(names)
    more = World(Plan(3, 2, 3)).readings().filter(pl.col("house_id") < 2).select(names)
    assert few.equals(more)


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


def test_each_day_has_the_same_minutes() -> None:
    seconds = World(PLAN).readings()["timestamp"] - FIRST_S
    assert set(seconds // 86_400) == {0, 1}
    assert set(seconds % 86_400 // 60) == {0, 1, 2}


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


def test_most_readings_are_steady_and_loads_differ_between_plugs() -> None:
    loads = World(PLAN).readings().filter(property=LOAD).sort(*PLUG, "timestamp")
    change = loads["value"].diff().abs().fill_null(0)
    assert 0.5 < float((change <= 5).mean()) < 0.99  # type: ignore[arg-type]
    assert loads.group_by(PLUG).agg(pl.col("value").median())["value"].n_unique() > 10


def test_values_have_three_decimals() -> None:
    values = World(PLAN).readings()["value"].to_list()
    assert all(round(value, 3) == value for value in values)


@pytest.mark.parametrize("plan", [{"houses": 0}, {"houses": 41}, {"days": 0}, {"minutes": 1_441}])
def test_a_plan_out_of_range_is_refused(plan: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="from 1"):
        Plan(**plan)


def test_the_command_writes_the_challenges_seven_fields(tmp_path: Path) -> None:
    file = tmp_path / "readings.csv"
    assert generator.main(["--houses", "1", "--days", "1", "--minutes", "1", str(file)]) == 0
    first = file.read_text().splitlines()[0].split(",")
    assert len(first) == 7
    assert first[0] == "0"
    assert first[1] == str(FIRST_S)
    with pytest.raises(SystemExit):
        generator.main(["--houses", "99", str(file)])
