"""Stage with state and timers of its own."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row

from anabranch.stateful import BatchSafeProcessor, Timers, transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Found = tuple[tuple[Any, ...] | None, Iterable[Row]]


class Silence(BatchSafeProcessor):
    """Detector of machines that fall silent, and of their return."""

    state_schema = "last TIMESTAMP, is_silent BOOLEAN"

    def __init__(self, silent_s: int) -> None:
        self._wait = timedelta(seconds=silent_s)

    def row(
        self, key: tuple[Any, ...], row: Row, state: tuple[Any, ...] | None, timers: Timers
    ) -> Found:
        """Note a reading of the machine; report its return if it was silent."""
        last, is_silent = state or (row.event_time, False)
        timers.set(row.event_time + self._wait)
        seconds = round((row.event_time - last).total_seconds())
        back = Row(machine=key[0], what="back", seconds=seconds, event_time=row.event_time)
        return (row.event_time, False), [back] if is_silent else []

    def timer(
        self,
        key: tuple[Any, ...],
        at: datetime,
        state: tuple[Any, ...] | None,
        timers: Timers,  # noqa: ARG002 - it stays off until the machine is back
    ) -> Found:
        """Report that the machine has been silent for too long."""
        last = state[0] if state else at
        seconds = round((at - last).total_seconds())
        silent = Row(machine=key[0], what="silent", seconds=seconds, event_time=at)
        return (last, True), [silent]


def outages(beats: DataFrame, *, silent_s: int = 30) -> DataFrame:
    """Return each outage and its end."""
    schema = "machine STRING, what STRING, seconds BIGINT, event_time TIMESTAMP"
    return transform(beats, ["machine"], Silence(silent_s), schema)
