"""The stages of Linear Road give the right answers, to the validator's rules."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from anabranch.adapters.spark.sample_run import SampleRun
from benchmarks.linear_road.answers import parse
from benchmarks.linear_road.feeder import event_time_ms
from benchmarks.linear_road.generator import Mode, Plan, generate
from benchmarks.linear_road.receiver import line_of
from benchmarks.linear_road.stream import Expected
from benchmarks.linear_road.validator import Judging, Verdict, judge, truth
from examples.linear_road import stages
from harness.spark_sessions import small_session

pytestmark = pytest.mark.integration
START_MS = 1_700_000_040_000
PLANS = [Plan(mode=Mode.BORDER), Plan(2, 5, 3, Mode.DIRTY), Plan(3, 6, 2, Mode.HOT)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleRun]:
    folder = tmp_path_factory.mktemp("linear-road")
    cloudpickle.register_pickle_by_value(stages)
    with small_session(folder / "scratch", cores=2, state_partitions=2) as session:
        yield SampleRun(session, folder / "rows")
    cloudpickle.unregister_pickle_by_value(stages)


def timed(table: pl.DataFrame, time: pl.Expr) -> pa.Table:
    at = pl.from_epoch(time, time_unit="ms").dt.replace_time_zone("UTC")
    return table.with_columns(at.alias("event_time")).to_arrow()


def judged(run: SampleRun, plan: Plan) -> tuple[Expected, Verdict]:
    world = generate(plan)
    expected = truth(world.stream, world.history)
    traffic = timed(world.stream, event_time_ms(START_MS))
    history = timed(world.history.cast(pl.Int32), pl.lit(START_MS - 59_999))
    roads = run.rows(stages.roads(run.frame(traffic, "event_time")))
    answers = run.rows(
        stages.accounts(
            run.frame(roads, "event_time"),
            run.frame(traffic, "event_time"),
            run.frame(history, "event_time"),
            groups=3,
        )
    )
    rows = [*roads.to_pylist(), *answers.to_pylist()]
    rows.sort(key=lambda row: row["event_time"])
    lines = [line for row in rows if (line := line_of(row, 0)) is not None]
    return expected, judge(expected, parse(lines), Judging(None, is_strict=True))


@pytest.mark.parametrize(
    "plan",
    [*PLANS[:2], pytest.param(PLANS[2], marks=pytest.mark.nightly)],
    ids=[plan.mode.value for plan in PLANS],
)
def test_each_answer_is_right(run: SampleRun, plan: Plan) -> None:
    expected, verdict = judged(run, plan)
    assert verdict.is_valid, "\n".join(verdict.lines())
    assert expected.charges.height > 5
    assert expected.accidents.height > 20
    assert expected.expenditures.height > 3
