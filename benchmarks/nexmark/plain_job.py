"""A query of Nexmark on plain PySpark Structured Streaming with Spark's own Kafka connector.

Runs in the environment of ``benchmarks.plain_pyspark``. Prints ``ready`` once the query runs; stops
on SIGTERM or SIGINT. Settings are those of ``plain_pyspark/job.py``.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from benchmarks.nexmark.plain_queries import EVENT, QUERIES, VIEWS

FILE_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def session(jars: str, checkpoint: Path) -> SparkSession:
    """Start a Spark session on two cores with the connector on its class path. Its temporary files
    are beside the checkpoint.
    """
    temporary = checkpoint.absolute().with_name("tmp")
    temporary.mkdir(parents=True, exist_ok=True)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("plain-pyspark-nexmark")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", f'"-Djava.io.tmpdir={temporary}"')
        .config("spark.local.dir", str(temporary))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGER)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    return spark


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--query", choices=sorted(QUERIES), required=True)
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--jars", required=True, help="comma-separated")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--input", required=True, help="topic")
    parser.add_argument("--output", required=True, help="topic")
    parser.add_argument("--out-of-orderness-ms", type=int, required=True)
    parser.add_argument("--offsets-per-trigger", type=int, default=500_000)
    arguments = parser.parse_args()
    stopping = threading.Event()
    spark = session(arguments.jars, arguments.checkpoint)
    # After the session, which sets a handler of its own.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.kafka)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", arguments.input)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(arguments.offsets_per_trigger))
        .load()
    )
    query = (
        answers(spark, arguments.query, records, arguments.out_of_orderness_ms)
        .writeStream.outputMode("append")
        .format("kafka")
        .option("kafka.bootstrap.servers", arguments.kafka)
        .option("kafka.compression.type", "lz4")
        .option("topic", arguments.output)
        .option("checkpointLocation", str(arguments.checkpoint))
        .start()
    )
    print("ready", flush=True)
    while query.isActive and not stopping.wait(0.2):
        pass
    if not stopping.is_set():
        print(f"the query ended by itself: {query.exception()}", file=sys.stderr, flush=True)
        return 1
    query.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
