"""Number of rows that a running batch has read, by Spark's own count.

A plan that keeps whole keys does not say how many rows these have. Spark counts the rows that each
source gives to a batch, and has the whole count when the batch's last task has ended: before the
sink records the batch.

The classes are internal to Spark. If their interface changes the query fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCAN: Final = "MicroBatchScan"
"""Start of the name of a plan's node that reads a source."""


def rows_read(session: SparkSession, query: str, inputs: int) -> int | None:
    """Return how many rows the running batch of ``query`` has read; None if that is not known,
    because the function uses one of its ``inputs`` twice, or if the query does not run any more.
    """
    for running in session.streams.active:
        if running.name == query:
            execution = running._jsq.streamingQuery().lastExecution()  # noqa: SLF001 - Spark offers no other way
            leaves = execution.executedPlan().collectLeaves()
            nodes = [leaves.apply(number) for number in range(leaves.size())]
            scans = [node for node in nodes if node.nodeName().startswith(_SCAN)]
            if len(scans) != inputs:
                return None
            return sum(int(scan.longMetric("numOutputRows").value()) for scan in scans)
    return None
