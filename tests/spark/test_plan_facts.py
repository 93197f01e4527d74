"""What real Spark says of a plan, and what follows."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from anabranch.adapters.spark.known_names import SPARK
from anabranch.adapters.spark.plan_facts import read_facts
from anabranch.protocol.stage.planner import PlanTraits, judge

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def rows() -> Iterator[DataFrame]:
    """A stream with the columns timestamp and value."""
    session = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    yield session.readStream.format("rate").load()
    session.stop()


def traits(frame: DataFrame) -> PlanTraits:
    return judge(read_facts(frame, [], 0), SPARK)


def drawn(value: int) -> int:
    return value + random.randrange(3)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("rand()", "Rand"),
        ("1 + randn(7)", "Randn"),
        ("randstr(5, 1)", "RandStr"),
        ("upper(randstr(5))", "RandStr"),
        ("uniform(1, 10, 0)", "Uniform"),
        ("uuid()", "Uuid"),
        ("reflect('java.util.UUID', 'randomUUID')", "CallMethodViaReflection"),
        ("shuffle(array(value, 1))", "Shuffle"),
        ("current_time()", "CurrentTime"),
        ("current_timestamp()", "CurrentTimestamp"),
    ],
)
def test_expressions_whose_result_is_not_fixed_cannot_run(
    rows: DataFrame, expression: str, name: str
) -> None:
    found = traits(rows.selectExpr("value", f"{expression} AS x", "timestamp"))
    assert found.errors == (
        f"{name} gives another result at every replica and after every restart",
    )


def test_nor_can_functions_that_say_so_of_themselves(rows: DataFrame) -> None:
    udf = functions.udf(drawn, "bigint", useArrow=False)
    assert traits(rows.select(udf("value"))).errors == ()
    found = traits(rows.where(functions.lit(1) + udf.asNondeterministic()("value") > 1))
    assert found.errors == ("drawn gives another result at every replica and after every restart",)


@pytest.mark.parametrize(
    "aggregate",
    ["size(collect_set(value))", "sort_array(collect_set(value))", "count(*)", "sum(value)"],
)
def test_aggregates_that_are_on_the_list_can(rows: DataFrame, aggregate: str) -> None:
    """Spark says of some of them that their result is not fixed, since the order of rows is not."""
    grouped = rows.withWatermark("timestamp", "0 seconds").groupBy(
        functions.window("timestamp", "1 second")
    )
    found = traits(grouped.agg(functions.expr(aggregate).alias("x")))
    assert (found.errors, found.is_batch_safe) == ((), True)


def test_one_that_is_not_runs_bucket_by_bucket(rows: DataFrame) -> None:
    grouped = rows.withWatermark("timestamp", "0 seconds").groupBy(
        functions.window("timestamp", "1 second")
    )
    found = traits(grouped.agg(functions.first("value").alias("x")))
    assert (found.errors, found.is_batch_safe) == ((), False)
