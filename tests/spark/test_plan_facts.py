"""Tests of the facts that real Spark states about a plan, and their judgement."""

from __future__ import annotations

import random
import re
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from anabranch.adapters.spark import plan_facts
from anabranch.adapters.spark.known_names import SPARK
from anabranch.adapters.spark.plan_facts import late_operators, read_facts
from anabranch.adapters.spark.query import input_frame
from anabranch.adapters.spark.source_options import SourceOptions
from anabranch.codec.blocks import schema_text
from anabranch.protocol.stage.planner import PlanTraits, judge
from harness.spark_sessions import small_session

pytestmark = pytest.mark.integration

ABSTRACT = 0x400
"""A class's modifier in Java."""

DIFFERS = (
    " gives another result at every replica and after every restart: take event_time for the clock,"
    " and xxhash64 of a row's columns for chance or an id"
)
AES = "aes_encrypt without an initialisation vector of yours"
VECTOR_OF_ROW = "CAST(lpad(CAST(value AS STRING), 12, '0') AS BINARY)"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark as a node starts it, in an environment that asks for other sums."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("SPARK_ANSI_SQL_MODE", "false")
            session = stack.enter_context(small_session(tmp_path_factory.mktemp("scratch")))
        yield session


@pytest.fixture
def rows(session: SparkSession) -> DataFrame:
    """Return a stream with the columns timestamp and value."""
    return session.readStream.format("rate").load()


def traits(frame: DataFrame) -> PlanTraits:
    return judge(read_facts(frame, [], 0), SPARK)


def aggregated(rows: DataFrame, aggregate: str) -> PlanTraits:
    """Return the traits of this aggregate over windows."""
    windows = functions.window("timestamp", "1 second")
    grouped = rows.withWatermark("timestamp", "0 seconds").groupBy(windows)
    return traits(grouped.agg(functions.expr(aggregate).alias("x")))


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
        ("current_user()", "CurrentUser"),
        ("localtimestamp()", "LocalTimestamp"),
        ("input_file_name()", "InputFileName"),
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
        "sort_array(collect_set(CAST(value AS DOUBLE)))",
        "size(collect_set(-CAST(value AS DOUBLE)))",
        "min(CAST(value AS STRING))",
    ],
)
def test_aggregates_that_are_on_the_list_can(rows: DataFrame, aggregate: str) -> None:
    """Spark says of some of them that their result is not fixed, since the order of rows is not."""
    found = aggregated(rows, aggregate)
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
        ("min(-CAST(value AS DOUBLE))", "0.0 and -0.0"),
        ("max(round(CAST(value AS FLOAT)))", "0.0 and -0.0"),
        ("max(CAST(CAST(value AS STRING) AS DOUBLE))", "0.0 and -0.0"),
        ("max(coalesce(-0.0D, 1.0D))", "0.0 and -0.0"),
        ("max(struct(value, value * -1.0D))", "0.0 and -0.0"),
        ("max(array(CAST(value AS DOUBLE)))", "0.0 and -0.0"),
        ("sort_array(collect_set(value / -2.0D))", "0.0 and -0.0"),
        ("max_by(value, value)", "can tie"),
        ("mode(value)", "depends on the order"),
        ("collect_list(value)", "depends on the order"),
        ("first(value)", "aggregate First depends"),
    ],
)
def test_those_that_the_order_of_rows_decides_run_bucket_by_bucket(
    rows: DataFrame, aggregate: str, says: str
) -> None:
    found = aggregated(rows, aggregate)
    assert found.errors == ()
    (reason,) = found.reasons
    assert says in reason


@pytest.mark.parametrize(
    ("aggregate", "kind", "most"),
    [
        ("sum", "BIGINT", 2**63 - 1),
        ("sum", "DECIMAL(38, 0)", 10**38 - 1),
        ("avg", "DECIMAL(38, 4)", 10**34 - 1),
    ],
)
def test_a_sum_that_overflows_is_an_error_and_no_other_number(
    session: SparkSession, aggregate: str, kind: str, most: int
) -> None:
    """Whatever the environment says."""
    query = f"SELECT {aggregate}(CAST('{most}' AS {kind})) AS total FROM range(4)"
    with pytest.raises(PySparkException, match=r"OVERFLOW|OUT_OF_RANGE"):
        session.sql(query).collect()


ZEROS = {
    "a column of the input": ("max(x)", True),
    "the same under another name": ("min(renamed)", True),
    "plus nought": ("max(y + 0.0)", True),
    "a column that is something plus nought": ("min(no_sign)", True),
    "a struct of such": ("max(struct(x, y + 0.0D, key))", True),
    "without its sign": ("max(abs(y))", True),
    "a column that is made": ("max(y)", False),
    "made in one part of a union": ("min(z)", False),
    "a struct of it": ("max(struct(x, y))", False),
    "a list of the input": ("max(xs)", False),
    "a list that is made": ("max(array(y))", False),
}


@pytest.mark.parametrize("case", ZEROS)
def test_zeros_of_a_column_are_one_unless_the_function_can_make_another(
    session: SparkSession, case: str
) -> None:
    """The columns of an input have one zero: tests/unit/adapters/test_reading.py."""
    aggregate, is_exact = ZEROS[case]
    schema = pa.schema(
        [
            ("key", pa.int64()),
            ("x", pa.float64()),
            ("xs", pa.list_(pa.float64())),
            ("event_time", pa.int64()),
        ]
    )
    options = SourceOptions(
        blocks={"a": "blocks"},
        query="",
        stream="a",
        kafka="",
        cluster="",
        socket="",
        schema=schema_text(schema),
        columns=("key", "x", "xs"),
        optional=(),
        width_ms=100,
        splits_max=1,
        is_own=True,
        ordered=False,
        kept_salt=0,
    )
    given = input_frame(session, "a", options, is_marked=True)
    made = given.selectExpr("*", "x AS renamed", "-x AS y", "x AS z")
    other = given.selectExpr("*", "x AS renamed", "-x AS y", "key * -1.0D AS z")
    windows = functions.window("event_time", "1 second")
    both = made.union(other).selectExpr("*", "y + 0.0 AS no_sign").groupBy(windows)
    found = traits(both.agg(functions.expr(aggregate).alias("most")))
    assert (found.errors, found.is_batch_safe) == ((), is_exact)
    assert all("0.0 and -0.0" in reason for reason in found.reasons)


CONSTANTS = {
    "Literal": "1",
    "CreateArray": "array()",
    "CreateMap": "map()",
    "CreateNamedStruct": "struct()",
    "Concat": "concat()",
    "Pi": "pi()",
    "EulerNumber": "e()",
    "SparkVersion": "version()",
    "CurrentCatalog": "current_catalog()",
    "CurrentDatabase": "current_database()",
    "CurrentTimeZone": "current_timezone()",
    "ResolvedCollation": "collate('a', 'UNICODE_CI')",
}
"""Expression of each class, by the class's name."""


@pytest.mark.parametrize("kind", CONSTANTS)
def test_pl1_what_is_the_same_everywhere_may_be_used(rows: DataFrame, kind: str) -> None:
    frame = rows.selectExpr(f"{CONSTANTS[kind]} AS x", "timestamp")
    assert kind in read_facts(frame, [], 0).childless
    found = traits(frame)
    assert (found.errors, found.reasons) == ((), ())


def test_pl1_so_may_what_a_row_gives_and_what_the_user_is_trusted_for(rows: DataFrame) -> None:
    rows.createOrReplaceTempView("rows")
    sql = rows.sparkSession.sql
    numbered = "(SELECT id, row_number() OVER (ORDER BY id) AS n FROM range(3))"
    sums = "(SELECT id, sum(id) OVER (ORDER BY id) AS n FROM range(3))"
    frames = [
        sql("SELECT * FROM rows WHERE EXISTS (SELECT 1 FROM range(3) WHERE id = value)"),
        sql(f"SELECT * FROM rows JOIN {numbered} ON id = value"),
        sql(f"SELECT * FROM rows JOIN {sums} ON id = value"),
        rows.select(functions.udf(lambda: 3, "int", useArrow=False)().alias("x")),
        rows.select(functions.expr("transform(array(value), v -> v + nullif(v, 2))").alias("x")),
        rows.select(functions.expr("nullif(value + 1, 2)").alias("x")),
    ]
    assert [traits(frame).errors for frame in frames] == [()] * len(frames)
    found = set().union(*(read_facts(frame, [], 0).childless for frame in frames))
    assert sorted(SPARK.childless - found - set(CONSTANTS)) == []


def test_pl1_a_class_that_is_not_sparks_has_its_whole_name(session: SparkSession) -> None:
    """The whole name is on no list."""
    assert plan_facts._name(session._jvm.java.lang.Object()) == "java.lang.Object"
    frame = session.range(1)._jdf.queryExecution().analyzed()
    assert plan_facts._name(frame) == "Range"


class Running:
    def eval(self, value: int) -> Iterator[tuple[int]]:
        yield (value,)


def test_pl1_a_table_function_of_the_user_may_remember_rows(rows: DataFrame) -> None:
    table = functions.udtf(Running, returnType="total: bigint").asDeterministic()
    rows.sparkSession.udtf.register("running", table)
    rows.createOrReplaceTempView("rows")
    found = traits(rows.sparkSession.sql("SELECT * FROM rows, LATERAL running(value)"))
    assert found.errors == ()
    assert any(each.startswith("generator PythonUDTF is not on the") for each in found.reasons)


LOOKED_THROUGH = {
    # read from the clock, the session's user, the file or the task: not on the list of constants
    "CurrentBatchTimestamp",
    "CurrentDate",
    "CurrentPath",
    "CurrentTimestamp",
    "CurrentTimestampNanos",
    "CurrentUser",
    "InputFileBlockLength",
    "InputFileBlockStart",
    "InputFileName",
    "LocalTimestamp",
    "LocalTimestampNanos",
    "MonotonicallyIncreasingID",
    "Now",
    "SparkPartitionID",
    "Uuid",
    # a variable of the session, and generators: with no case here
    "VariableReference",
    "Collations",
    "SQLKeywords",
    # not in an analysed plan, or of queries that are not streams
    "BoundReference",
    "CursorReference",
    "DistributedSequenceID",
    "ForeignKeyConstraint",
    "GetColumnByOrdinal",
    "GetViewColumnByNameAndOrdinal",
    "LambdaVariable",
    "LateralColumnAliasReference",
    "NamedParameter",
    "OuterScopeReference",
    "PosParameter",
    "PrettyAttribute",
    "PrimaryKeyConstraint",
    "ScalarSubqueryReference",
    "TranspiledUDFParameter",
    "UniqueConstraint",
}
"""Spark's other expressions without children, but for those that are not resolved yet."""


def test_pl1_all_of_sparks_expressions_without_children_were_looked_through(
    session: SparkSession,
) -> None:
    """Another version of Spark may have more of them: each is rejected until it is on a list."""
    jvm = session.sparkContext._gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def class_of(name: str) -> Any:
        return jvm.java.lang.Class.forName(name, False, loader)

    leaf = class_of("org.apache.spark.sql.catalyst.expressions.LeafExpression")
    jars = Path(pyspark.__file__).parent / "jars"
    found = set()
    for jar in sorted(jars.glob("spark-*.jar")):
        for entry in zipfile.ZipFile(jar).namelist():
            name = entry.removesuffix(".class").replace("/", ".")
            if not re.fullmatch(
                r"org\.apache\.spark\.sql\..*\.[A-Z]\w+\.class", entry.replace("/", ".")
            ):
                continue
            try:
                one = class_of(name)
                if leaf.isAssignableFrom(one) and not one.getModifiers() & ABSTRACT:
                    found.add(name.rpartition(".")[2])
            except Py4JJavaError:  # its own dependencies are not installed
                continue
    found = {name for name in found if not name.startswith(("Unresolved", "Resolved"))}
    assert sorted(found - SPARK.childless) == sorted(LOOKED_THROUGH)


WINDOWS = "SELECT window.end AS e, max(value) AS x FROM rows GROUP BY window(timestamp, '1 second')"
RECURSIVE = "RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a WHERE n < 3)"


@pytest.mark.parametrize(
    "query",
    [
        "WITH a AS (SELECT * FROM rows WHERE value > 3) SELECT * FROM a",
        "WITH a AS (SELECT * FROM rows), b AS (SELECT * FROM a) SELECT * FROM a UNION TABLE b",
        f"WITH a AS ({WINDOWS}) SELECT l.x, r.x FROM a l JOIN a r ON l.e = r.e AND l.x < r.x",
        "SELECT * FROM (WITH a AS (SELECT * FROM rows) SELECT * FROM a) WHERE value > 3",
        "SELECT * FROM rows WHERE value IN (WITH a AS (SELECT id FROM range(3)) SELECT id FROM a)",
        "WITH a AS (SELECT * FROM rows), b AS (SELECT rand() FROM rows) SELECT * FROM a",
        (
            "WITH a AS (SELECT CAST(value AS DOUBLE) + 0.0D AS x FROM rows)"
            " SELECT max(l.x) FROM a l UNION ALL SELECT max(r.x) FROM a r"
        ),
    ],
)
def test_pl1_a_with_clause_is_what_it_stands_for(rows: DataFrame, query: str) -> None:
    """The last one needs to know that no number is -0.0, of each use of the name."""
    rows.withWatermark("timestamp", "0 seconds").createOrReplaceTempView("rows")
    found = traits(rows.sparkSession.sql(query))
    assert (found.errors, found.reasons) == ((), ())


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("WITH a AS (SELECT first(value) FROM rows) SELECT * FROM a", "aggregate First depends"),
        (
            "SELECT * FROM rows WHERE value = (WITH a AS (SELECT first(1)) TABLE a)",
            "aggregate First depends",
        ),
        (
            "WITH a AS (SELECT sum(CAST(value AS DOUBLE)) AS x FROM rows) SELECT l.x FROM a l",
            "adds floating-point numbers",
        ),
        (f"WITH {RECURSIVE} SELECT rows.* FROM rows JOIN a ON n = value", "operator UnionLoop is"),
        ("WITH a AS (SELECT value + rand() FROM rows) SELECT * FROM a", f"Rand{DIFFERS}"),
    ],
)
def test_pl1_nothing_is_hidden_in_a_with_clause(rows: DataFrame, query: str, says: str) -> None:
    rows.withWatermark("timestamp", "0 seconds").createOrReplaceTempView("rows")
    found = traits(rows.sparkSession.sql(query))
    assert any(says in reason for reason in (*found.reasons, *found.errors))


def test_an_input_that_only_an_unused_name_reads_is_not_used(rows: DataFrame) -> None:
    marker = plan_facts.OBSERVED + "rows"
    rows.observe(marker, functions.count(functions.lit(1))).createOrReplaceTempView("rows")
    query = "WITH a AS (SELECT * FROM rows) SELECT * FROM {}"
    unused = [
        read_facts(rows.sparkSession.sql(query.format(name)), ["rows"], 0).inputs_unused
        for name in ("a", "range(3)")
    ]
    assert unused == [(), ("rows",)]


def timed(rows: DataFrame, name: str) -> DataFrame:
    """Return a stream with a watermark: the columns NAME_at and NAME."""
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
