"""Lets a batch run under its own boundary, so that the results of what it completes come out with
it and not with the next batch.

Spark moves the watermark at the end of a batch. But of a batch to be made it first asks every input
for its next offset, and only then takes the watermark for it
(``MicroBatchExecution.constructNextBatch``). So while an input is given its plan, the watermark is
set to the end of that plan. Rows are late by the watermark of the batch before, and all rows of a
plan are above that; windows end, state goes and timers fire by the batch's own.

Spark writes the watermark to its log together with the plan, and a batch that is run again after a
crash takes both from there: it sends no request, so nothing is set beyond it. A query begins with
the watermark of its last commit, which is the end of that plan.

The classes are internal to Spark. Where they are not as they were the query ends with an error;
where they do something else, its batch is rejected (``protocol.stage.planner.check_watermark``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.protocol.errors import LocalProtocolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def watermark_of(session: SparkSession, query: str, width_ms: int) -> Callable[[int], None]:
    """What sets the watermark of the running query with the name ``query`` to the end of a bucket.
    Good as long as this run of the query.

    Spark registers a query before it asks its inputs for anything: it is found while Python still
    waits for it to start.

    Raises:
        LocalProtocolError: no such query runs.
    """
    for running in session.streams.active:
        if running.name == query:
            tracker = running._jsq.streamingQuery().watermarkTracker()  # noqa: SLF001 - Spark offers no other way
            return lambda bucket: tracker.setWatermark(bucket * width_ms)
    message = f"Spark runs no query with the name {query}"
    raise LocalProtocolError(message)
