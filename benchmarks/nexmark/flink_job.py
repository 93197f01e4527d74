"""A query of Nexmark in Flink SQL, on a cluster within this process.

Runs in the environment of ``benchmarks.flink``. Prints ``ready`` once the job runs; stops on
SIGTERM or SIGINT.
"""

from __future__ import annotations

import sys

from benchmarks.flink import cluster
from benchmarks.nexmark.flink_queries import EVENTS, QUERIES, SINK, VIEWS


def main() -> int:
    """Run one query until a signal. Return the exit code."""
    arguments = cluster.parse(__doc__, "query", QUERIES)
    columns, query = QUERIES[arguments.query]
    tables = (EVENTS, *VIEWS, SINK)
    return cluster.run(arguments, tables, f"INSERT INTO answers {query}", columns=columns)


if __name__ == "__main__":
    sys.exit(main())
