"""The stage functions give what the oracle gives, on real Spark with all reports at once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from demo import oracle
from demo.traffic import COLUMNS, Report, Traffic, plan
from examples.market import demo as market
from examples.market import oracle as market_oracle
from examples.market import stages as market_stages
from examples.toll_road import stages

pytestmark = pytest.mark.integration
START_MS = 1_700_000_000_000
WINDOW_MS = 10_000
EDGES = (START_MS + 10_000, START_MS + 20_000)
"""Reports exactly at the bounds of windows, which traffic alone need not have."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={folder}")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def reports() -> pl.DataFrame:
    traffic = Traffic(START_MS, START_MS + 30_000, rate=1_500, expressways=3, seed=3)
    rows = [record.report for record in plan(traffic) if not record.rejected]
    rows += [Report(time, 1, 20, 0, 0, 0, 50, 50 * 5280) for time in EDGES]
    return pl.DataFrame(rows, schema=list(COLUMNS), orient="row")


@pytest.fixture(scope="module")
def inputs(
    spark: SparkSession, reports: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """One DataFrame per expressway, as a stage gets them: int columns and event time as a
    timestamp.
    """
    path: Path = tmp_path_factory.mktemp("reports") / "reports.parquet"
    reports.with_columns(pl.col(name).cast(pl.Int32) for name in COLUMNS[1:]).write_parquet(path)
    frame = (
        spark.read.parquet(str(path)).withColumn("event_time", F.timestamp_millis("time")).cache()
    )
    return {f"reports_{number}": frame.where(f"xway = {number}") for number in range(3)}


def rows_of(frame: Any, columns: list[str]) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def test_tolls_are_those_of_the_oracle(inputs: dict[str, Any], reports: pl.DataFrame) -> None:
    expected = oracle.tolls(oracle.segment_statistics(reports, WINDOW_MS), 20, 40)
    assert (expected["toll"] > 0).sum() > 50, "the traffic makes no tolls: the test shows nothing"
    statistics = stages.segment_statistics(window="10 seconds", **inputs)
    found = stages.tolls(statistics, free_vehicles=20, free_speed=40)
    assert found.columns == [*expected.columns, "event_time"]
    assert rows_of(found, expected.columns) == sorted(expected.rows())


def test_statistics_have_the_time_of_the_windows_end(
    inputs: dict[str, Any], reports: pl.DataFrame
) -> None:
    expected = oracle.segment_statistics(reports, WINDOW_MS)
    found = stages.segment_statistics(window="10 seconds", **inputs)
    assert found.columns == [
        "xway",
        "dir",
        "seg",
        "window_end_ms",
        "average_speed",
        "vehicles",
        "reports",
        "event_time",
    ]
    assert rows_of(found, expected.columns) == sorted(expected.rows())
    assert found.where("unix_millis(event_time) != window_end_ms").count() == 0
    assert isinstance(found.first()["event_time"], datetime)


def test_notices_are_those_of_the_oracle(inputs: dict[str, Any], reports: pl.DataFrame) -> None:
    expected = oracle.toll_notices(
        reports, oracle.tolls(oracle.segment_statistics(reports, WINDOW_MS), 20, 40), WINDOW_MS
    )
    assert expected.filter(pl.col("time").is_in(list(EDGES))).height == len(EDGES)
    tolls = stages.segment_tolls(window="10 seconds", free_vehicles=20, free_speed=40, **inputs)
    found = stages.toll_notices(segment_tolls=tolls, window="10 seconds", **inputs)
    assert found.columns == [*expected.columns, "event_time"]
    assert rows_of(found, expected.columns) == sorted(expected.rows())
    assert found.where("unix_millis(event_time) != time").count() == 0


def test_the_query_of_figure_1_gives_what_its_oracle_gives(spark: SparkSession) -> None:
    choice, regions = random.Random(3), ("north", "south")
    seen = [
        replace(market.draw(choice, region), time_ms=START_MS + 20 * number)
        for number in range(2_500)
        for region in regions
    ]
    seen_at = [(each.end_ms(), each.car, each.segment, each.speed > 0) for each in seen]
    places = {at[:3] for at in seen_at if not at[3]} - {at[:3] for at in seen_at if at[3]}
    assert len(places) > 5, "each car that stands moves, too: the test does not show who pays"
    columns = ["car", "kind", "segment", "speed", "time"]
    found, streams = Counter[market_oracle.Row](), []
    for region in regions:
        here = [
            (each.car, each.kind, each.segment, each.speed, each.time_ms)
            for each in seen
            if each.region == region
        ]
        sightings = spark.createDataFrame(here, columns).withColumn(
            "event_time", F.timestamp_millis("time")
        )
        sent = market_stages.dispatches(sightings)
        found.update(timed_rows_of(sent, ["car", "truck", "segment"]))
        streams.append((market_stages.speeds(sightings), market_stages.moving_cars(sightings)))
    assert found == market_oracle.dispatches(seen)
    assert len(found) > 20, "nothing breaks down: the test shows nothing"
    (north_speeds, north_cars), (south_speeds, south_cars) = streams
    tolls = market_stages.tolls(
        north_speeds, south_speeds, north_cars, south_cars, free_cars=3, slow=40
    )
    billed = Counter(timed_rows_of(tolls, ["car", "segment", "toll"]))
    assert billed == market_oracle.tolls(seen)
    assert min(row[3] for row in billed) == 0 < max(row[3] for row in billed)


def timed_rows_of(frame: Any, columns: list[str]) -> list[Any]:
    at_ms = F.unix_millis("event_time")
    return [tuple(row) for row in frame.select(at_ms, *columns).collect()]
