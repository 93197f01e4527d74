"""The benchmark's two jobs in Flink SQL, on a cluster within this process.

Runs in the environment that ``environment.py`` makes. Prints ``ready`` once the job runs; stops on
SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from typing import Final

from pyflink.common import Configuration, JobStatus
from pyflink.table import EnvironmentSettings, TableEnvironment

READINGS: Final = """
CREATE TABLE readings (
  `time` BIGINT, region INT, site INT, device INT, seq BIGINT, `value` INT, note STRING,
  event_time AS TO_TIMESTAMP_LTZ(`time`, 3),
  WATERMARK FOR event_time AS event_time - INTERVAL '{out_of_orderness_s}' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = '{input}',
  'properties.bootstrap.servers' = '{kafka}',
  'properties.group.id' = 'benchmark',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
)
"""

SINK: Final = """
  'connector' = 'kafka',
  'topic' = '{output}',
  'properties.bootstrap.servers' = '{kafka}',
  'properties.compression.type' = 'lz4',
  'sink.delivery-guarantee' = 'at-least-once',
"""

JOBS: Final = {
    "stateless": (
        "CREATE TABLE results (`time` BIGINT, seq BIGINT, region INT, scaled BIGINT) WITH ("
        + SINK
        + "'format' = 'json')",
        """
        INSERT INTO results
        SELECT `time`, seq, region, CAST(`value` AS BIGINT) * 3 + 1
        FROM readings WHERE MOD(`value`, 2) = 0
        """,
    ),
    "windowed": (
        "CREATE TABLE results (region INT, site INT, device INT, window_start BIGINT,"
        " records BIGINT, total BIGINT) WITH ("
        + SINK
        + "'key.format' = 'json', 'key.fields' = 'region;site;device', 'value.format' = 'json')",
        """
        INSERT INTO results
        SELECT region, site, device,
               1000 * UNIX_TIMESTAMP(DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss')),
               COUNT(*), SUM(CAST(`value` AS BIGINT))
        FROM TABLE(
          TUMBLE(TABLE readings, DESCRIPTOR(event_time), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end, region, site, device
        """,
    ),
}


def settings(arguments: argparse.Namespace) -> Configuration:
    """Return the usual settings for two cores: a slot for each, object reuse, a checkpoint every
    ten seconds, state in memory.
    """
    configuration = Configuration()
    for name, value in {
        "pipeline.jars": f"file://{arguments.connector}",
        "pipeline.object-reuse": "true",
        "parallelism.default": "2",
        "table.local-time-zone": "UTC",
        "state.backend.type": "hashmap",
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.dir": f"file://{arguments.checkpoint}",
    }.items():
        configuration.set_string(name, value)
    return configuration


def main() -> int:
    """Run one job until a signal. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", choices=sorted(JOBS), required=True)
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--connector", required=True, help="path of a jar")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--input", required=True, help="topic")
    parser.add_argument("--output", required=True, help="topic")
    parser.add_argument("--out-of-orderness-ms", type=int, required=True)
    arguments = parser.parse_args()
    stopping = threading.Event()
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance()
        .in_streaming_mode()
        .with_configuration(settings(arguments))
        .build()
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    names = vars(arguments) | {"out_of_orderness_s": arguments.out_of_orderness_ms / 1000}
    sink, query = JOBS[arguments.job]
    tables.execute_sql(READINGS.format(**names))
    tables.execute_sql(sink.format(**names))
    client = tables.execute_sql(query).get_job_client()
    is_ready = False
    while not stopping.wait(0.2):
        status = client.get_job_status().result()
        if status == JobStatus.RUNNING and not is_ready:
            is_ready = True
            print("ready", flush=True)
        elif status not in (JobStatus.CREATED, JobStatus.RUNNING):
            print(f"the job ended by itself: {status}", file=sys.stderr, flush=True)
            return 1
    client.cancel().result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
