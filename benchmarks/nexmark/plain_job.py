"""A query of Nexmark on plain PySpark Structured Streaming with Spark's own Kafka connector.

Runs in the environment of ``benchmarks.plain_pyspark``. Prints ``ready`` once the query runs; stops
on SIGTERM or SIGINT.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from benchmarks.nexmark.plain_queries import EVENT, QUERIES, VIEWS
from benchmarks.plain_pyspark import kafka_query


def answers(spark: SparkSession, query: str, records: DataFrame, lateness_ms: int) -> DataFrame:
    """Return the answers to ``query`` as JSON texts in the column ``value``."""
    rows = records.select(F.from_json(F.col("value").cast("string"), EVENT).alias("e"))
    events = rows.select("e.*").withColumn("event_time", F.timestamp_millis("at"))
    events.withWatermark("event_time", f"{lateness_ms} milliseconds").createTempView("events")
    for name, sql in VIEWS.items():
        spark.sql(sql).createTempView(name)
    return spark.sql(QUERIES[query]).select(F.to_json(F.struct("*")).alias("value"))


def main() -> int:
    """Run one query until a signal. Return the exit code."""
    arguments = kafka_query.parser(__doc__, "query", QUERIES).parse_args()
    spark, stopping = kafka_query.start_session(arguments)
    records = kafka_query.read_records(spark, arguments)
    result = answers(spark, arguments.query, records, arguments.out_of_orderness_ms)
    return kafka_query.run(spark, stopping, arguments, result.writeStream.outputMode("append"))


if __name__ == "__main__":
    sys.exit(main())
