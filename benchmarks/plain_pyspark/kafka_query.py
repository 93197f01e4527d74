"""Plain PySpark Structured Streaming between two topics: command line, session, Spark's own Kafka
connector at both ends, and the run of one query.

Runs in the environment that ``environment.py`` makes (another PySpark than the project's). Settings
follow the usual advice for two cores: few shuffle partitions, a cheap checkpoint file manager,
large batches.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from benchmarks import job_options

FILE_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def parser(description: str | None, option: str, choices: Iterable[str]) -> argparse.ArgumentParser:
    """Return the parser of a job's command line; ``--OPTION`` chooses one of ``choices``."""
    made = job_options.parser(description, option, choices)
    made.add_argument("--jars", required=True, help="comma-separated")
    made.add_argument("--offsets-per-trigger", type=int, default=500_000)
    made.add_argument("--shuffle-partitions", type=int, default=2)
    return made


def start_session(
    arguments: argparse.Namespace, *, threads: int = 2, settings: Mapping[str, str] | None = None
) -> tuple[SparkSession, threading.Event]:
    """Start a Spark session with the connector on its class path. Return it, and the event that
    SIGTERM and SIGINT set.

    Args:
        arguments: The command line. The session's temporary files are beside the checkpoint, and
            removed with it.
        threads: Number of tasks that run at the same time.
        settings: Spark's settings besides.
    """
    temporary = arguments.checkpoint.absolute().with_name("tmp")
    temporary.mkdir(parents=True, exist_ok=True)
    spark = (
        SparkSession.builder.master(f"local[{threads}]")
        .appName("plain-pyspark")
        .config("spark.jars", arguments.jars)
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", f'"-Djava.io.tmpdir={temporary}"')
        .config("spark.local.dir", str(temporary))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(arguments.shuffle_partitions))
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGER)
        .config(map=dict(settings or {}))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    stopping = threading.Event()
    # After the session, which sets a handler of its own.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    return spark, stopping


def read_records(
    spark: SparkSession, arguments: argparse.Namespace, *, is_cut: bool = True
) -> DataFrame:
    """Return the committed records of the input topic. ``is_cut``: into batches of
    ``--offsets-per-trigger`` at most.
    """
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.kafka)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", arguments.input)
        .option("startingOffsets", "earliest")
    )
    if is_cut:
        reader = reader.option("maxOffsetsPerTrigger", str(arguments.offsets_per_trigger))
    return reader.load()


def run(
    spark: SparkSession,
    stopping: threading.Event,
    arguments: argparse.Namespace,
    writer: DataStreamWriter,
) -> int:
    """Write the results of ``writer`` to the output topic until ``stopping`` is set, then stop the
    session. Print ``ready`` once the query runs. Return the exit code: 1 if it ended by itself.
    """
    query = (
        writer.format("kafka")
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
