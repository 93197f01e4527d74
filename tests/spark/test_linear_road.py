"""The stages of Linear Road give the right answers, to the validator's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from anabranch.adapters.spark.known_names import SPARK
from anabranch.adapters.spark.plan_facts import read_facts
from anabranch.adapters.spark.query import apply_functions, functions_of
from anabranch.adapters.spark.sample_run import SampleRun
from anabranch.pipeline.file import load
from anabranch.protocol.stage import planner
from benchmarks.linear_road.__main__ import FORMS
from benchmarks.linear_road.answers import parse
from benchmarks.linear_road.feeder import event_time_ms
from benchmarks.linear_road.generator import Mode, Plan, generate
from benchmarks.linear_road.receiver import line_of
from benchmarks.linear_road.stream import Expected, World
from benchmarks.linear_road.validator import Counts, Judging, Verdict, judge, truth
from examples.linear_road import stages
from harness.spark_sessions import small_session

pytestmark = pytest.mark.integration
START_MS = 1_700_000_040_000
OF_THE_SAMPLES = "operator StreamingRelation is not on the batch-safe list"
"""Judgement on the files that a sample run reads, which are no input of a stage."""
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


def inputs(world: World) -> dict[str, pa.Table]:
    """Return the sources of ``world`` as a stage gets them."""
    return {
        "traffic": timed(world.stream, event_time_ms(START_MS)),
        "history": timed(world.history.cast(pl.Int32), pl.lit(START_MS - 59_999)),
    }


def judged(expected: Expected, *outputs: pa.Table) -> Verdict:
    rows = [row for output in outputs for row in output.to_pylist()]
    rows.sort(key=lambda row: row["event_time"])
    lines = [line for row in rows if (line := line_of(row, 0)) is not None]
    return judge(expected, parse(lines), Judging(None, is_strict=True))


def with_state(run: SampleRun, world: World) -> list[pa.Table]:
    """Return the answers of the example's stages."""
    tables = inputs(world)
    roads = run.rows(stages.roads(run.frame(tables["traffic"], "event_time")))
    accounts = stages.accounts(
        run.frame(roads, "event_time"),
        run.frame(tables["traffic"], "event_time"),
        run.frame(tables["history"], "event_time"),
        groups=3,
    )
    return [roads, run.rows(accounts)]


def with_windows_and_joins(run: SampleRun, world: World) -> list[pa.Table]:
    """Return the answers of the relational form."""
    pipeline = load(FORMS["relational"].path)
    tables = inputs(world)
    for name, stage in pipeline.stages.items():
        frames = {each: run.frame(tables[each], "event_time") for each in stage.reads}
        frame = apply_functions(functions_of(stage, pipeline), stage, frames)
        traits = planner.judge(read_facts(frame, [], 0), SPARK)
        assert (set(traits.reasons), traits.errors) == ({OF_THE_SAMPLES}, ()), name
        tables[name] = run.rows(frame)
    return [tables[output.stage] for output in pipeline.outputs.values()]


def assert_right(
    form: Callable[[SampleRun, World], list[pa.Table]], run: SampleRun, plan: Plan
) -> None:
    """Assert that a form of the stages gives all answers to an input that has some of each kind."""
    world = generate(plan)
    expected = truth(world.stream, world.history)
    verdict = judged(expected, *form(run, world))
    assert verdict.is_valid, "\n".join(verdict.lines())
    assert expected.charges.height > 5
    assert expected.accidents.height > 20
    assert expected.expenditures.height > 3


@pytest.mark.parametrize(
    "plan",
    [*PLANS[:2], pytest.param(PLANS[2], marks=pytest.mark.nightly)],
    ids=[plan.mode.value for plan in PLANS],
)
def test_each_answer_is_right(run: SampleRun, plan: Plan) -> None:
    assert_right(with_state, run, plan)


@pytest.mark.nightly
def test_windows_and_joins_are_right_for_traffic_within_their_bounds(run: SampleRun) -> None:
    assert_right(with_windows_and_joins, run, Plan(1, 7, 1, Mode.HOT))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("plan", "tolls", "accidents"),
    [
        (Plan(mode=Mode.BORDER), Counts(missing=1_440, wrong=0, duplicate=0), 22),
        (Plan(1, 15, 1, Mode.DIRTY), Counts(missing=1_471, wrong=1_820, duplicate=278), 10_947),
    ],
    ids=["border", "dirty"],
)
def test_windows_and_joins_are_wrong_where_their_bounds_do_not_hold(
    run: SampleRun, plan: Plan, tolls: Counts, accidents: int
) -> None:
    world = generate(plan)
    expected = truth(world.stream, world.history)
    found = judged(expected, *with_windows_and_joins(run, world)).counts
    for name in ("missing", "wrong", "duplicate"):
        assert getattr(found["tolls"], name) == getattr(tolls, name), name
    assert found["accidents"].missing == accidents
