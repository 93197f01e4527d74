"""What real Spark says of a plan, and what follows."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from anabranch.adapters.spark.known_names import SPARK
from anabranch.adapters.spark.plan_facts import late_operators, read_facts
from anabranch.protocol.stage.planner import PlanTraits, judge

pytestmark = pytest.mark.integration


DIFFERS = (
    " gives another result at every replica and after every restart: take event_time for the clock,"
    " and xxhash64 of a row's columns for chance or an id"
)
AES = "aes_encrypt without an initialisation vector of yours"
VECTOR_OF_ROW = "CAST(lpad(CAST(value AS STRING), 12, '0') AS BINARY)"


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
        ("transform(array(value), v -> v + rand())", "Rand"),
        ("TIMESTAMP 'now'", "TIMESTAMP 'now'"),
        ("date 'Tomorrow'", "date 'Tomorrow'"),
        ("timestamp < ' yesterday UTC'", "the time ' yesterday UTC'"),
        ("TRY_CAST('to' || 'day' AS DATE)", "the time 'today'"),
        ("to_timestamp('now')", "the time 'now'"),
        ("to_date('today')", "the time 'today'"),
        ("aes_encrypt('a', '0000111122223333')", AES),
        ("aes_encrypt('a', '0000111122223333', 'CBC', 'PKCS')", AES),
        (f"aes_encrypt('a', '0000111122223333', 'GCM', 'DEFAULT', {VECTOR_OF_ROW})", AES),
    ],
)
def test_expressions_whose_result_is_not_fixed_cannot_run(
    rows: DataFrame, expression: str, name: str
) -> None:
    found = traits(rows.selectExpr("value", f"{expression} AS x", "timestamp"))
    assert found.errors == (f"{name}{DIFFERS}",)


def test_nor_can_functions_that_say_so_of_themselves(rows: DataFrame) -> None:
    udf = functions.udf(drawn, "bigint", useArrow=False)
    assert traits(rows.select(udf("value"))).errors == ()
    found = traits(rows.where(functions.lit(1) + udf.asNondeterministic()("value") > 1))
    assert found.errors == (f"drawn{DIFFERS}",)


@pytest.mark.parametrize(
    "expression",
    [
        "aes_encrypt('a', '0000111122223333', 'ECB')",
        "aes_encrypt('a', '0000111122223333', 'GCM', 'DEFAULT', unhex('000000000000000000000000'))",
        "TIMESTAMP '2026-01-01'",
        "DATE 'epoch'",
        "timestamp < '2026-01-01'",
        "CAST('now' AS BINARY)",
        "to_timestamp(CAST(value AS STRING))",
    ],
)
def test_expressions_whose_result_is_fixed_can(rows: DataFrame, expression: str) -> None:
    assert traits(rows.selectExpr(f"{expression} AS x", "timestamp")).errors == ()


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ("value > (SELECT max(id) FROM range(3) WHERE id < rand())", "Rand"),
        ("value IN (SELECT id FROM range(3) WHERE current_date() > '2026-01-01')", "CurrentDate"),
        ("EXISTS (SELECT 1 FROM range(3) WHERE id = value AND uuid() > 'a')", "Uuid"),
        (
            "value > (SELECT max(id) FROM range(3) WHERE id IN (SELECT id * rand() FROM range(2)))",
            "Rand",
        ),
    ],
)
def test_nor_can_those_of_subqueries(rows: DataFrame, condition: str, name: str) -> None:
    rows.createOrReplaceTempView("rows")
    found = traits(rows.sparkSession.sql(f"SELECT * FROM rows WHERE {condition}"))
    assert found.errors == (f"{name}{DIFFERS}",)


def test_aggregates_of_subqueries_are_read(rows: DataFrame) -> None:
    rows.createOrReplaceTempView("rows")
    query = "SELECT * FROM rows WHERE value > (SELECT first(id) FROM range(3))"
    assert not traits(rows.sparkSession.sql(query)).is_batch_safe


@pytest.mark.parametrize(
    "aggregate",
    [
        "size(collect_set(value))",
        "sort_array(collect_set(value))",
        "count(*)",
        "sum(value)",
        "avg(CAST(value AS SMALLINT))",
        "try_sum(CAST(value AS INT))",
        "max(CAST(value AS DOUBLE))",
        "min(CAST(value AS STRING))",
    ],
)
def test_aggregates_that_are_on_the_list_can(rows: DataFrame, aggregate: str) -> None:
    """Spark says of some of them that their result is not fixed, since the order of rows is not."""
    grouped = rows.withWatermark("timestamp", "0 seconds").groupBy(
        functions.window("timestamp", "1 second")
    )
    found = traits(grouped.agg(functions.expr(aggregate).alias("x")))
    assert (found.errors, found.is_batch_safe) == ((), True)


@pytest.mark.parametrize(
    ("aggregate", "says"),
    [
        ("avg(CAST(value AS INT))", "adds floating-point numbers"),
        ("avg(value)", "adds floating-point numbers"),
        ("try_sum(value)", "overflows"),
        ("try_avg(CAST(value AS DECIMAL(38, 2)))", "overflows"),
        ("min(collate(CAST(value AS STRING), 'UTF8_LCASE'))", "collation"),
        ("max(struct(value, collate(CAST(value AS STRING), 'UNICODE_CI')))", "collation"),
        ("max_by(value, value)", "can tie"),
        ("mode(value)", "depends on the order"),
        ("collect_list(value)", "depends on the order"),
    ],
)
def test_those_that_the_order_of_rows_decides_run_bucket_by_bucket(
    rows: DataFrame, aggregate: str, says: str
) -> None:
    grouped = rows.withWatermark("timestamp", "0 seconds").groupBy(
        functions.window("timestamp", "1 second")
    )
    found = traits(grouped.agg(functions.expr(aggregate).alias("x")))
    assert found.errors == ()
    (reason,) = found.reasons
    assert says in reason


def test_one_that_is_not_runs_bucket_by_bucket(rows: DataFrame) -> None:
    grouped = rows.withWatermark("timestamp", "0 seconds").groupBy(
        functions.window("timestamp", "1 second")
    )
    found = traits(grouped.agg(functions.first("value").alias("x")))
    assert (found.errors, found.is_batch_safe) == ((), False)


def timed(rows: DataFrame, name: str) -> DataFrame:
    """A stream with a watermark: the columns NAME_at and NAME."""
    frame = rows.selectExpr(f"timestamp AS {name}_at", f"value AS {name}")
    return frame.withWatermark(f"{name}_at", "0 seconds")


JOINS = {
    "within 10 s": (
        "a = b AND b_at BETWEEN a_at - INTERVAL 4 SECONDS AND a_at + INTERVAL 10 SECONDS"
    ),
    "one side": "a = b AND b_at >= a_at AND b_at < a_at + INTERVAL 10 SECONDS",
    "same time": "a = b AND a_at = b_at",
    "no bound": "a = b",
}


@pytest.mark.parametrize(
    ("join", "late_ms"),
    [("within 10 s", 10_001), ("one side", 10_000), ("same time", 0), ("no bound", 0)],
)
def test_pl4_a_window_behind_a_join_is_late_by_what_the_join_keeps(
    rows: DataFrame, join: str, late_ms: int
) -> None:
    joined = timed(rows, "a").join(timed(rows, "b"), functions.expr(JOINS[join]))
    windows = joined.groupBy(functions.window("a_at", "2 seconds")).count()
    assert late_operators(joined) == ()
    assert late_operators(windows) == ((("Aggregate", late_ms),) if late_ms else ())
    assert bool(traits(windows).errors) == bool(late_ms)


def test_pl4_what_gives_rows_as_it_reads_them_may_follow_a_join(rows: DataFrame) -> None:
    near = functions.expr(JOINS["one side"])
    joined = timed(rows, "a").join(timed(rows, "b"), near).drop("b_at")
    third = timed(rows, "c")
    within = functions.expr("a = c AND c_at BETWEEN a_at AND a_at + INTERVAL 3 SECONDS")
    assert late_operators(joined.dropDuplicates()) == ()
    assert late_operators(joined.union(joined).selectExpr("a + b", "a_at")) == ()
    assert late_operators(joined.join(third, within)) == ()
    assert late_operators(joined.join(third, within, "left")) == (("Join", 10_000),)
    assert late_operators(joined.select("a", "a_at").distinct()) == ()


def test_pl4_delays_of_joins_add_up(rows: DataFrame) -> None:
    joined = timed(rows, "a").join(timed(rows, "b"), functions.expr(JOINS["one side"])).drop("b_at")
    within = functions.expr("a = c AND c_at >= a_at AND c_at < a_at + INTERVAL 3 SECONDS")
    again = joined.join(timed(rows, "c"), within)
    windows = again.groupBy(functions.window("c_at", "2 seconds")).count()
    assert late_operators(windows) == (("Aggregate", 13_001),)


def test_pl4_joined_windows_are_as_early_as_windows(rows: DataFrame) -> None:
    counts = [
        timed(rows, name).groupBy(functions.window(f"{name}_at", "2 seconds")).count()
        for name in "ab"
    ]
    joined = counts[0].join(counts[1], "window")
    again = joined.groupBy(functions.window(functions.window_time("window"), "4 seconds")).count()
    assert late_operators(again) == ()
