"""The queries of Nexmark give the right answers as stages, and may take many buckets at once."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa
import pytest

from anabranch.adapters.spark.known_names import SPARK
from anabranch.adapters.spark.plan_facts import read_facts
from anabranch.adapters.spark.query import apply_functions, functions_of
from anabranch.adapters.spark.sample_run import SampleRun
from anabranch.pipeline.file import load
from anabranch.protocol.stage import planner
from benchmarks.nexmark.generator import Events, Plan, generate
from benchmarks.nexmark.oracle import ORACLES
from benchmarks.nexmark.queries import path_of
from benchmarks.nexmark.verdict import judge
from harness.spark_sessions import small_session

pytestmark = pytest.mark.integration
PLAN = Plan(30_000, 1_700_000_045_000, rate=2_500)
"""Two windows of ten seconds, in few events, so that the test is short."""
OF_THE_SAMPLES = "operator StreamingRelation is not on the batch-safe list"
"""Judgement on the files that a sample run reads, which are no input of a stage."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleRun]:
    folder = tmp_path_factory.mktemp("nexmark")
    with small_session(folder / "scratch", cores=2) as session:
        yield SampleRun(session, folder / "rows")


@pytest.fixture(scope="module")
def events() -> Events:
    return generate(PLAN)


def table_of(events: Events) -> pa.Table:
    """Return the events as a stage gets them."""
    kinds = {"person": events.persons, "auction": events.auctions, "bid": events.bids}
    tables = [
        table.select("number", "at", pl.struct(pl.exclude("number", "at")).alias(kind))
        for kind, table in kinds.items()
    ]
    at = pl.from_epoch("at", time_unit="ms").dt.replace_time_zone("UTC")
    rows = pl.concat(tables, how="diagonal").sort("number").drop("number")
    return rows.with_columns(at.alias("event_time")).to_arrow()


@pytest.mark.parametrize(
    "query",
    [
        "q5",
        "q8",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ORACLES if each not in "q5 q8"),
    ],
)
def test_a_query_gives_the_answers_of_the_oracle(
    run: SampleRun, events: Events, query: str
) -> None:
    pipeline = load(path_of(query))
    tables = {"events": table_of(events)}
    for name, stage in pipeline.stages.items():
        inputs = {
            argument: run.frame(tables[each], "event_time")
            for each, argument in zip(stage.reads, stage.arguments, strict=True)
        }
        frame = apply_functions(functions_of(stage, pipeline), stage, inputs)
        traits = planner.judge(read_facts(frame, [], 0), SPARK)
        assert (set(traits.reasons), traits.errors) == ({OF_THE_SAMPLES}, ())
        tables[name] = run.rows(frame)
    (output,) = pipeline.outputs.values()
    got = pl.from_arrow(tables[output.stage])
    assert isinstance(got, pl.DataFrame)
    verdict = judge(ORACLES[query](events), got)
    assert verdict.is_right, verdict
    assert verdict.expected > 1
