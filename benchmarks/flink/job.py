"""The benchmark's two jobs in Flink SQL, on a cluster within this process.

Runs in the environment that ``environment.py`` makes. Prints ``ready`` once the job runs; stops on
SIGTERM or SIGINT.
"""

from __future__ import annotations

import sys
from typing import Final

from benchmarks.flink import cluster

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


def main() -> int:
    """Run one job until a signal. Return the exit code."""
    arguments = cluster.parse(__doc__, "job", JOBS)
    sink, query = JOBS[arguments.job]
    return cluster.run(arguments, (READINGS, sink), query)


if __name__ == "__main__":
    sys.exit(main())
