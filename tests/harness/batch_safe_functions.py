"""Functions of stages for each operator and expression on the batch-safe list, and some that are
not on it.
"""

from __future__ import annotations

from typing import Final

FUNCTIONS: Final = '''
from datetime import timedelta
from pathlib import Path
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Row, functions as F
from anabranch.stateful import BatchSafeProcessor, transform

FILE = Path(__file__).with_name("names.parquet")

def stateless(a, b):
    plus_one = F.udf(lambda v: v + 1, "bigint")
    square = F.arrow_udf(lambda v: pc.multiply(v, v), "bigint")
    a.createOrReplaceTempView("readings")
    some = a.sparkSession.sql("SELECT key, value, event_time FROM readings WHERE value % 3 != 0")
    each = some.select(
        "key",
        (F.col("value") * 2).alias("twice"),
        plus_one("value").alias("more"),
        square("value").alias("square"),
        F.explode(F.array("key", "value")).alias("each"),
        "event_time",
    )
    rows = each.unpivot(["key", "each", "event_time"], ["twice", "more", "square"], "what", "much")
    return rows.unionByName(
        b.select(
            "key",
            F.col("value").alias("each"),
            "event_time",
            F.lit("b").alias("what"),
            F.lit(0).cast("bigint").alias("much"),
        )
    )

def window(a):
    money = "CAST(value AS DECIMAL(12, 2)) * 0.37"
    g = a.where("value >= 0").groupBy(F.window("event_time", "300 milliseconds"), "key")
    return g.agg(
        F.count(F.lit(1)).alias("n"),
        F.sum("value").alias("total"),
        F.min("value").alias("low"),
        F.max("value").alias("high"),
        F.size(F.collect_set("value")).alias("distinct"),
        F.sort_array(F.collect_set("value")).cast("string").alias("members"),
        F.avg(F.col("value").cast("smallint")).alias("mean"),
        F.expr(f"sum({money})").cast("string").alias("price"),
        F.expr(f"avg({money})").cast("string").alias("mean_price"),
        F.bool_and(F.col("value") < 28).alias("all_below"),
        F.bool_or(F.col("value") > 28).alias("any_above"),
        F.bit_and("value").alias("all_bits"),
        F.bit_or("value").alias("any_bits"),
        F.bit_xor("value").alias("odd_bits"),
        F.count_if(F.col("value") > 10).alias("above"),
        F.col("window.end").alias("event_time"),
    ).drop("window")

def sliding(a):
    a.createOrReplaceTempView("readings")
    counts = a.groupBy(
        F.window("event_time", "400 milliseconds", "200 milliseconds"), "key"
    ).count()
    odd = a.sparkSession.sql(
        "SELECT window.end AS event_time, key, value % 2 AS odd, count(*) AS count FROM readings"
        " GROUP BY window(event_time, '300 milliseconds'), ROLLUP(key, value % 2)"
    )
    return counts.select(
        "key",
        F.lit(-1).cast("bigint").alias("odd"),
        "count",
        F.col("window.end").alias("event_time"),
    ).unionByName(odd)

def session_windows(a):
    """Sessions end in any bucket, at its bound too, and rows lie at their ends."""
    g = a.groupBy(F.session_window("event_time", "100 milliseconds"), "key").agg(
        F.count(F.lit(1)).alias("n"), F.sum("value").alias("total")
    )
    return g.select("key", "n", "total", F.col("session_window.end").alias("event_time"))

def window_of_windows(a):
    first = a.groupBy(F.window("event_time", "200 milliseconds"), "key").agg(
        F.sum("value").alias("total")
    )
    second = first.groupBy(F.window(F.window_time("window"), "400 milliseconds")).agg(
        F.max("total").alias("top"), F.count(F.lit(1)).alias("keys")
    )
    return second.select("top", "keys", F.col("window.end").alias("event_time"))

def deduplicate(a):
    a.createOrReplaceTempView("readings")
    query = "SELECT DISTINCT key, CAST(-1 AS BIGINT) AS value, event_time FROM readings"
    distinct = a.sparkSession.sql(query)
    return a.select("key", "value", "event_time").dropDuplicates().unionByName(distinct)

def join(a, b):
    spark = a.sparkSession
    later = b.select(
        F.col("key").alias("k"), F.col("value").alias("v"), F.col("event_time").alias("t")
    )
    near = F.expr(
        "key = k AND t BETWEEN event_time - INTERVAL 200 MILLISECONDS"
        " AND event_time + INTERVAL 200 MILLISECONDS"
    )
    both = a.join(later, near)
    both = both.select(
        F.lit("both").alias("name"),
        "key",
        "value",
        "v",
        F.greatest("event_time", "t").alias("event_time"),
    )
    FILE.exists() or pq.write_table(pa.table({"key": [0, 1], "of_file": ["nought", "one"]}), FILE)
    names = spark.createDataFrame(
        [(key, f"key {key}") for key in range(3)], "key BIGINT, name STRING"
    )
    tens = spark.sql("SELECT v FROM VALUES (10L), (20L) AS tens(v)")
    found = (
        a.join(F.broadcast(names), "key")
        .join(spark.read.parquet(str(FILE)), "key")
        .crossJoin(tens)
        .crossJoin(spark.sql("SELECT '!' AS end"))
    )
    found = found.join(spark.range(2), F.expr("value % 3 = id"))
    return both.unionByName(
        found.select(
            F.concat("name", "of_file", "end").alias("name"), "key", "value", "v", "event_time"
        )
    )

def twice(a):
    """One input, used four times: joined with itself, and two views of it put together."""
    a.createOrReplaceTempView("a")
    return a.sparkSession.sql(
        "SELECT 'pair' AS name, x.key, x.value, y.value AS v,"
        " greatest(x.event_time, y.event_time) AS event_time"
        " FROM a x JOIN a y ON x.key = y.key AND x.value < y.value AND y.event_time BETWEEN"
        " x.event_time - INTERVAL 200 MILLISECONDS AND x.event_time + INTERVAL 200 MILLISECONDS"
        " UNION ALL SELECT 'low', key, value, NULL, event_time FROM"
        " (SELECT * FROM a WHERE value < 20)"
        " UNION ALL SELECT 'odd', key, NULL, value, event_time FROM"
        " (SELECT * FROM a WHERE value % 2 = 1)"
    )

def with_clause(a):
    """Names of a WITH clause: used twice, by another name, and by a subquery."""
    a.createOrReplaceTempView("a")
    return a.sparkSession.sql(
        "WITH low AS (SELECT * FROM a WHERE value < 20), few AS (SELECT id FROM range(3)),"
        " counts AS (SELECT window, key, count(*) AS n FROM low"
        " GROUP BY window(event_time, '300 milliseconds'), key),"
        " most AS (SELECT window, max(n) AS n FROM counts GROUP BY window)"
        " SELECT 'most' AS name, key, c.n AS value, c.window.end AS event_time"
        " FROM counts c JOIN most m ON c.window = m.window AND c.n = m.n"
        " UNION ALL SELECT 'few', key, value, event_time FROM low"
        " WHERE key IN (SELECT id FROM few)"
    )

def generators(a):
    made = {
        "posexplode": "posexplode(array(key, value))",
        "inline": "inline(array(struct(key AS x, value AS y), struct(value AS x, key AS y)))",
        "stack": "stack(2, key, value, value, key)",
        "json_tuple": "json_tuple(to_json(struct(key, value)), 'key', 'value')",
    }
    each = [
        a.selectExpr("event_time", f"'{name}' AS name", f"{text} AS (x, y)").selectExpr(
            "event_time", "name", "CAST(x AS BIGINT) AS x", "CAST(y AS BIGINT) AS y"
        )
        for name, text in made.items()
    ]
    return each[0].unionByName(each[1]).unionByName(each[2]).unionByName(each[3])

def hard(a):
    """NaN, both zeros, nulls, nested values, and sums of which parts are beyond 64 bits."""
    number = (
        "CASE value % 5 WHEN 0 THEN double('NaN') WHEN 1 THEN 0.0D WHEN 2 THEN 0.0D * -1"
        " WHEN 3 THEN NULL ELSE value / 2 END"
    )
    most = "IF(value % 2 = 0, 9223372036854775807, -9223372036854775807)"
    rows = a.selectExpr(
        "key", "value", f"{number} AS d", f"CAST({most} AS DECIMAL(19, 0)) AS large", "event_time"
    )
    parts = {
        "low": "min(d + 0.0D)",
        "high": "max(d + 0.0D)",
        "top": "max(struct(d + 0.0D, value))",
        "least": "min(array(value % 3, key))",
        "total": "sum(large)",
        "members": "sort_array(collect_set(struct(key, array(value % 2))))",
        "numbers": "size(collect_set(d))",
        "given": "count(d)",
        "any": "bool_or(IF(value % 5 = 3, NULL, value > 28))",
    }
    windows = rows.groupBy(F.window("event_time", "300 milliseconds")).agg(
        *[F.expr(text).alias(name) for name, text in parts.items()]
    )
    text = ", ".join(f"string({name})" for name in parts)
    windows = windows.selectExpr(
        "'window' AS name", f"concat_ws('|', {text}) AS text", "window.end AS event_time"
    )
    zeros = a.selectExpr("key", "explode(array(0.0D, 0.0D * -1)) AS zero", "event_time")
    zeros.createOrReplaceTempView("zeros")
    kept = zeros.dropDuplicates().selectExpr(
        "'kept' AS name", "concat_ws('|', key, zero) AS text", "event_time"
    )
    distinct = a.sparkSession.sql(
        "SELECT 'distinct' AS name, concat_ws('|', key, zero) AS text, event_time"
        " FROM (SELECT DISTINCT key, zero, event_time FROM zeros)"
    )
    return windows.unionByName(kept).unionByName(distinct)

def pending(a):
    """Rows at once, and a window's when it closes: parts of open buckets."""
    windows = (
        a.groupBy(F.window("event_time", "200 milliseconds"))
        .count()
        .select(F.col("count").alias("key"), F.col("window.end").alias("event_time"))
    )
    return windows.unionByName(a.select("key", "event_time"))

def shown(a):
    g = a.groupBy(F.window("event_time", "300 milliseconds")).agg(
        F.collect_set("key").alias("keys"), F.size(F.collect_set("key")).alias("n")
    )
    return g.select(
        F.sort_array("keys").cast("string").alias("keys"),
        "n",
        F.col("window.end").alias("event_time"),
    )

def mean_of_longs(a):
    return (
        a.groupBy(F.window("event_time", "300 milliseconds"))
        .agg(F.avg("time").alias("mean"))
        .select("mean", F.col("window.end").alias("event_time"))
    )

def sum_of_floats(a):
    return (
        a.groupBy(F.window("event_time", "300 milliseconds"))
        .agg(F.sum(F.col("value") / F.lit(7.0)).alias("sum"))
        .select("sum", F.col("window.end").alias("event_time"))
    )

def by_bucket(a, b):
    """What is not batch-safe and has no timers."""
    sums = a.groupBy(F.window("event_time", "300 milliseconds")).agg(
        F.sum(F.col("value") / F.lit(7.0)).alias("x")
    )
    sums = sums.select(
        F.lit("sum").alias("name"),
        F.lit(0).cast("bigint").alias("key"),
        "x",
        F.col("window.end").alias("event_time"),
    )
    firsts = a.select(
        F.lit("first").alias("name"), "key", F.col("value").cast("double").alias("x"), "event_time"
    ).dropDuplicates(["key"])
    later = b.select(
        F.col("key").alias("k"), F.col("value").alias("v"), F.col("event_time").alias("t")
    )
    near = F.expr("key = k AND t BETWEEN event_time AND event_time + INTERVAL 200 MILLISECONDS")
    outer = a.join(later, near, "left")
    outer = outer.select(
        F.lit("outer").alias("name"),
        "key",
        F.coalesce("v", F.lit(-1)).cast("double").alias("x"),
        F.expr("event_time + INTERVAL 400 MILLISECONDS").alias("event_time"),
    )
    return sums.unionByName(firsts).unionByName(outer)

def outers(a, b):
    later = b.select(
        F.col("key").alias("k"), F.col("value").alias("v"), F.col("event_time").alias("t")
    )
    near = F.expr("key = k AND t BETWEEN event_time AND event_time + INTERVAL 200 MILLISECONDS")
    def of(how):
        rows = a.select("key", "value", "event_time").join(later, near, how)
        time = F.expr("coalesce(t, event_time) + INTERVAL 400 MILLISECONDS")
        return rows.select(
            F.lit(how).alias("name"),
            F.coalesce("value", F.lit(-1)).alias("value"),
            F.coalesce("v", F.lit(-1)).alias("v"),
            time.alias("event_time"),
        )
    return of("right").unionByName(of("full"))

def timeouts(a):
    """Counts a key's rows until none came for two buckets."""
    def count(key, frames, state):
        seen, last = state.getOption or (0, 0)
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame(
                {
                    "key": [key[0]],
                    "events": [seen],
                    "event_time": [pd.Timestamp(last + 200, unit="ms")],
                }
            )
            return
        for frame in frames:
            seen += len(frame)
            last = max(last, int(frame["event_time"].max().timestamp() * 1000))
        state.update((seen, last))
        state.setTimeoutTimestamp(max(last + 150, state.getCurrentWatermarkMs()))
    return a.groupBy("key").applyInPandasWithState(
        count,
        "key BIGINT, events BIGINT, event_time TIMESTAMP",
        "seen BIGINT, last BIGINT",
        "append",
        "EventTimeTimeout",
    )

def within(a):
    return a.select("key", "event_time").dropDuplicatesWithinWatermark(["key"])

def mean_of_ints(a):
    return (
        a.groupBy(F.window("event_time", "300 milliseconds"))
        .agg(F.avg(F.col("value").cast("int")).alias("mean"))
        .select("mean", F.col("window.end").alias("event_time"))
    )

def own_function(a):
    return a.mapInArrow(lambda batches: batches, a.schema)

class Sessions(BatchSafeProcessor):
    state_schema = "events BIGINT, total BIGINT"

    def row(self, key, row, state, timers):
        events, total = state or (0, 0)
        timers.set(row.event_time + timedelta(milliseconds=150))
        out = (
            [Row(key=key[0], events=-1, total=total * 10 + row.value, event_time=row.event_time)]
            if row.value % 5 == 0
            else []
        )
        return (events + 1, (total * 10 + row.value) % 1_000_003), out

    def timer(self, key, at, state, timers):
        return None, [Row(key=key[0], events=state[0], total=state[1], event_time=at)]

def sessions(a):
    return transform(
        a, ["key"], Sessions(), "key BIGINT, events BIGINT, total BIGINT, event_time TIMESTAMP"
    )
'''
