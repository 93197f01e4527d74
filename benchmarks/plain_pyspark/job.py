"""The benchmark's two jobs on plain PySpark Structured Streaming with Spark's own Kafka connector.

Runs in the environment that ``environment.py`` makes (another PySpark than the project's). Prints
``ready`` once the query runs, then one JSON line per batch; stops on SIGTERM or SIGINT. The options
are for trying other settings, which was not done systematically.
"""

from __future__ import annotations

import json
import sys
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from benchmarks.plain_pyspark import kafka_query

RECORD: Final = "time BIGINT, region INT, site INT, device INT, seq BIGINT, value INT, note STRING"
ROCKSDB: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Settings of a session that keeps its state in RocksDB."""


class BatchPrinter(StreamingQueryListener):  # type: ignore[misc]  # untyped in PySpark
    """Prints what each batch took."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to say: ``ready`` is printed by ``main``."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """One line per batch that had something to do."""
        progress = event.progress
        line = {
            "batch": progress.batchId,
            "start": progress.timestamp,
            "rows": progress.numInputRows,
            "ms": dict(progress.durationMs),
        }
        print(json.dumps(line), flush=True)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to say."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to say: ``main`` raises the query's error."""


def stateless(readings: DataFrame) -> DataFrame:
    """Key and value of the result records of the stateless job."""
    result = readings.where(F.col("value") % 2 == 0).select(
        "time", "seq", "region", (F.col("value").cast("long") * 3 + 1).alias("scaled")
    )
    return result.select(F.to_json(F.struct("*")).alias("value"))


def windowed(readings: DataFrame, out_of_orderness_ms: int) -> DataFrame:
    """Key and value of the result records of the windowed job."""
    timed = readings.withColumn("event_time", F.timestamp_millis("time")).withWatermark(
        "event_time", f"{out_of_orderness_ms} milliseconds"
    )
    windows = timed.groupBy(
        F.window("event_time", "10 seconds").alias("window"), "region", "site", "device"
    ).agg(F.count("*").alias("records"), F.sum("value").alias("total"))
    result = windows.select(
        "region",
        "site",
        "device",
        F.unix_millis("window.start").alias("window_start"),
        "records",
        "total",
    )
    return result.select(
        F.to_json(F.struct("region", "site", "device")).alias("key"),
        F.to_json(F.struct("*")).alias("value"),
    )


def main() -> int:
    """Run one job until a signal. Return the exit code."""
    parser = kafka_query.parser(__doc__, "job", ("stateless", "windowed"))
    parser.add_argument(
        "--real-time", action="store_true", help="Spark's real-time mode (stateless)"
    )
    parser.add_argument("--state", choices=("hdfs", "rocksdb"), default="hdfs")
    arguments = parser.parse_args()
    spark, stopping = kafka_query.start_session(
        arguments,
        # In real-time mode every partition of the topic has a task that runs all the while.
        threads=4 if arguments.real_time else 2,
        settings=ROCKSDB if arguments.state == "rocksdb" else {},
    )
    spark.streams.addListener(BatchPrinter())
    # Real-time mode has no end of a batch at which it could be cut.
    records = kafka_query.read_records(spark, arguments, is_cut=not arguments.real_time)
    readings = records.select(F.from_json(F.col("value").cast("string"), RECORD).alias("r")).select(
        "r.*"
    )
    result = (
        stateless(readings)
        if arguments.job == "stateless"
        else windowed(readings, arguments.out_of_orderness_ms)
    )
    writer = (
        result.writeStream.outputMode("update").trigger(realTime="10 seconds")
        if arguments.real_time
        else result.writeStream.outputMode("append")
    )
    return kafka_query.run(spark, stopping, arguments, writer)


if __name__ == "__main__":
    sys.exit(main())
