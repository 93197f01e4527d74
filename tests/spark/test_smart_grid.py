"""The stages of the smart grid give the oracle's results."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest
from pyspark import cloudpickle

from anabranch.adapters.spark.sample_run import SampleRun
from benchmarks.smart_grid.generator import Plan, World
from benchmarks.smart_grid.oracle import expected
from benchmarks.smart_grid.validator import judge, prediction_of, share_of
from examples.smart_grid import stages
from harness.spark_sessions import small_session

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleRun]:
    folder = tmp_path_factory.mktemp("smart-grid")
    cloudpickle.register_pickle_by_value(stages)
    with small_session(folder / "scratch", cores=2, state_partitions=2) as session:
        yield SampleRun(session, folder / "rows")
    cloudpickle.unregister_pickle_by_value(stages)


def test_the_stages_give_the_results_of_the_oracle(run: SampleRun) -> None:
    readings = World(Plan(houses=2, days=2, minutes=3)).readings()
    truth = expected(readings.iter_rows())
    at = pl.from_epoch(pl.col("timestamp"), time_unit="s").dt.replace_time_zone("UTC")
    table = readings.with_columns(at.dt.cast_time_unit("us").alias("event_time")).to_arrow()
    panes = run.frame(run.rows(stages.panes(run.frame(table, "event_time"))), "event_time")
    predictions = run.rows(stages.predictions(panes)).to_pylist()
    outliers = run.rows(stages.outliers(panes)).to_pylist()
    verdict = judge(
        truth,
        [prediction_of(row, int(row["event_time"].timestamp())) for row in predictions],
        [share_of(row) for row in outliers],
    )
    assert verdict.is_valid, "\n".join(verdict.lines())
    assert verdict.predictions.expected > 4_000
    assert {name.hours for name in truth.shares} == {1, 24}
