"""Inner join of two streams, bounded in time so that Spark can forget rows that can no longer
match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def paid(orders: DataFrame, payments: DataFrame, *, within: str = "10 minutes") -> DataFrame:
    """Return orders that were paid, with the amount overpaid. ``event_time`` is the payment's,
    which is the later one.
    """
    left = orders.select(
        "order", F.col("cents").alias("ordered"), F.col("event_time").alias("ordered_at")
    )
    right = payments.select(
        F.col("order").alias("paid_order"), F.col("cents").alias("paid"), "event_time"
    )
    in_time = F.expr(f"event_time >= ordered_at AND event_time <= ordered_at + INTERVAL {within}")
    joined = left.join(right, (F.col("order") == F.col("paid_order")) & in_time)
    return joined.select(
        "order",
        "ordered",
        "paid",
        (F.col("paid") - F.col("ordered")).alias("too_much"),
        "event_time",
    )
