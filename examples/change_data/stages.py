"""Orders with the row that their customer has in the database when the order comes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.functions import col, lit

from anabranch.stateful import BatchSafeProcessor, Timers, transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LAST = 2**63 - 1
"""Place of an order among the changes of the same millisecond: behind them."""


class CurrentRow(BatchSafeProcessor):
    """Keeps the row of a customer, and gives it to the orders."""

    state_schema = "name STRING, city STRING"

    def row(
        self,
        key: tuple[Any, ...],
        row: Row,
        state: tuple[Any, ...] | None,
        timers: Timers,  # noqa: ARG002 - nothing waits
    ) -> tuple[tuple[Any, ...] | None, Iterable[Row]]:
        """Take a change of the customer, or an order."""
        if row.number is None:
            return (None if row.op == "d" else (row.name, row.city)), []
        name, city = state or (None, None)
        named = Row(
            order=row.number,
            customer=key[0],
            name=name,
            city=city,
            cents=row.cents,
            event_time=row.event_time,
        )
        return state, [named]


def named_orders(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Return each order with the name and city of its customer; null: there is no such customer.

    Rows of one time are sorted by their columns, so the place comes first: changes of one row in
    the order in which the database made them, and then the orders.
    """
    none = lit(None)
    changes = customers.select(
        "place",
        col("id").alias("customer"),
        "op",
        "name",
        "city",
        none.cast("bigint").alias("number"),
        none.cast("bigint").alias("cents"),
        "event_time",
    )
    asked = orders.select(
        lit(LAST).alias("place"),
        "customer",
        none.cast("string").alias("op"),
        none.cast("string").alias("name"),
        none.cast("string").alias("city"),
        "number",
        "cents",
        "event_time",
    )
    schema = (
        "`order` BIGINT, customer BIGINT, name STRING, city STRING, cents BIGINT,"
        " event_time TIMESTAMP"
    )
    return transform(changes.unionByName(asked), ["customer"], CurrentRow(), schema)
