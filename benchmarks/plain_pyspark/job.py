"""The benchmark's two jobs on plain PySpark Structured Streaming with Spark's own Kafka connector.

Runs in the environment that ``environment.py`` makes (another PySpark than the project's). Prints
``ready`` once the query runs, then one JSON line per batch; stops on SIGTERM or SIGINT. Settings
follow the usual advice for two cores (few shuffle partitions, a cheap checkpoint file manager,
large batches); the options below are for trying others, which was not done systematically.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

RECORD = "time BIGINT, region INT, site INT, device INT, seq BIGINT, value INT, note STRING"
FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


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


def session(arguments: argparse.Namespace) -> SparkSession:
    """Start a Spark session on two cores with the connector on its class path. Its temporary files
    are beside the checkpoint, and removed with it.
    """
    temporary = Path(arguments.checkpoint).absolute().with_name("tmp")
    temporary.mkdir(parents=True, exist_ok=True)
    builder = (
        # In real-time mode every partition of the topic has a task that runs all the while.
        SparkSession.builder.master("local[4]" if arguments.real_time else "local[2]")
        .appName("plain-pyspark-benchmark")
        .config("spark.jars", arguments.jars)
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", f'"-Djava.io.tmpdir={temporary}"')
        .config("spark.local.dir", str(temporary))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(arguments.shuffle_partitions))
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGER)
    )
    if arguments.state == "rocksdb":
        builder = builder.config("spark.sql.streaming.stateStore.providerClass", ROCKSDB).config(
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true"
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def main() -> int:
    """Run one job until a signal. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", choices=("stateless", "windowed"), required=True)
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--jars", required=True, help="comma-separated")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--input", required=True, help="topic")
    parser.add_argument("--output", required=True, help="topic")
    parser.add_argument("--out-of-orderness-ms", type=int, required=True)
    parser.add_argument("--offsets-per-trigger", type=int, default=500_000)
    parser.add_argument("--shuffle-partitions", type=int, default=2)
    parser.add_argument(
        "--real-time", action="store_true", help="Spark's real-time mode (stateless)"
    )
    parser.add_argument("--state", choices=("hdfs", "rocksdb"), default="hdfs")
    arguments = parser.parse_args()
    stopping = threading.Event()

    spark = session(arguments)
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # after the session, which sets a handler of its own
        signal.signal(number, lambda *_: stopping.set())
    spark.streams.addListener(BatchPrinter())
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.kafka)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", arguments.input)
        .option("startingOffsets", "earliest")
        .options(
            **(
                {}  # real-time mode reads on and on within a batch
                if arguments.real_time
                else {"maxOffsetsPerTrigger": str(arguments.offsets_per_trigger)}
            )
        )
        .load()
    )
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
    query = (
        writer.format("kafka")
        .option("kafka.bootstrap.servers", arguments.kafka)
        .option("kafka.compression.type", "lz4")
        .option("topic", arguments.output)
        .option("checkpointLocation", arguments.checkpoint)
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
