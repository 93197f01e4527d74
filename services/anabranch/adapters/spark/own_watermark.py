"""Watermark of a batch set to the batch's own end, so that the batch emits the results that it
completes, and not the next one.

Spark moves the watermark at the end of a batch. But to build a batch it first asks every input for
its next offset, and only then reads the watermark for it
(``MicroBatchExecution.constructNextBatch``). So while an input gets its plan, this module sets the
watermark to the end of that plan. Spark judges late rows by the watermark of the previous batch,
and all rows of a plan are above that; windows end, state expires and timers fire by the batch's
own.

Spark writes the watermark to its log together with the plan, and a batch that runs again after a
crash takes both from there: it requests no plan, so nothing moves the watermark further. A query
starts with the watermark of its last commit, which is the end of that plan.

The classes are internal to Spark. If their interface changes the query fails; if their behaviour
changes its batch is rejected (``protocol.stage.planner.check_watermark``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.protocol.errors import LocalProtocolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def watermark_of(session: SparkSession, query: str, width_ms: int) -> Callable[[int], None]:
    """Return the function that sets the watermark of the running query ``query`` to the end of a
    bucket. It is valid for this run of the query.

    Spark registers a query before it asks its inputs for anything, so the query is found even while
    Python still waits for it to start.

    Raises:
        LocalProtocolError: no such query runs.
    """
    for running in session.streams.active:
        if running.name == query:
            tracker = running._jsq.streamingQuery().watermarkTracker()  # noqa: SLF001 - Spark offers no other way
            return lambda bucket: tracker.setWatermark(bucket * width_ms)
    message = f"Spark runs no query with the name {query}"
    raise LocalProtocolError(message)
