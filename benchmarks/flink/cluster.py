"""Flink SQL on a cluster within this process: command line, settings, and the run of one job.

Runs in the environment that ``environment.py`` makes.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterable

from pyflink.common import Configuration, JobStatus
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks import job_options


def parse(description: str | None, option: str, choices: Iterable[str]) -> argparse.Namespace:
    """Parse a job's command line; ``--OPTION`` chooses one of ``choices``."""
    parser = job_options.parser(description, option, choices)
    parser.add_argument("--connector", required=True, help="path of a jar")
    return parser.parse_args()


def _settings(arguments: argparse.Namespace) -> Configuration:
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


def run(arguments: argparse.Namespace, tables: Iterable[str], insert: str, **names: object) -> int:
    """Create ``tables`` and run ``insert`` until SIGTERM or SIGINT. Print ``ready`` once the job
    runs. Return the exit code: 1 if the job ended by itself.

    Args:
        arguments: The command line. The statements of ``tables`` name its options in braces, and
            the lateness as ``out_of_orderness_s``.
        tables: Statements that create tables and views.
        insert: Statement of the job, as it is.
        names: What the statements of ``tables`` name besides.
    """
    stopping = threading.Event()
    environment = TableEnvironment.create(
        EnvironmentSettings.new_instance()
        .in_streaming_mode()
        .with_configuration(_settings(arguments))
        .build()
    )
    # After the environment: Java replaces the handlers when it starts.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    lateness_s = arguments.out_of_orderness_ms / 1000
    given = vars(arguments) | {"out_of_orderness_s": lateness_s} | names
    for statement in tables:
        environment.execute_sql(statement.format(**given))
    client = environment.execute_sql(insert).get_job_client()
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
