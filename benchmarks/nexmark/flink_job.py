"""A query of Nexmark in Flink SQL, on a cluster within this process.

Runs in the environment of ``benchmarks.flink``. Prints ``ready`` once the job runs; stops on
SIGTERM or SIGINT. Settings are those of ``flink/job.py``.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from pyflink.common import Configuration, JobStatus
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.nexmark.flink_queries import EVENTS, QUERIES, SINK, VIEWS


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
    """Run one query until a signal. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--query", choices=sorted(QUERIES), required=True)
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
    columns, query = QUERIES[arguments.query]
    names = vars(arguments) | {
        "out_of_orderness_s": arguments.out_of_orderness_ms / 1000,
        "columns": columns,
    }
    for statement in (EVENTS, *VIEWS, SINK):
        tables.execute_sql(statement.format(**names))
    client = tables.execute_sql(f"INSERT INTO answers {query}").get_job_client()
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
