"""Stateful functions of your own that give the same result however buckets are grouped into
batches.

Spark hands a ``transformWithState`` processor the rows of a batch in no promised order, and fires
timers only at the end of the batch. So what it does depends on where batches are cut.
``BatchSafeProcessor`` sorts a key's rows by time and fires the timers that are due between
them, as if every bucket had been a batch of its own. Use it through ``transform``::

    from datetime import timedelta

    from pyspark.sql import Row

    from anabranch.stateful import BatchSafeProcessor, transform


    class Sessions(BatchSafeProcessor):
        state_schema = "started TIMESTAMP, last TIMESTAMP, events BIGINT"

        def row(self, key, row, state, timers):
            started, _, events = state or (row.event_time, row.event_time, 0)
            timers.set(row.event_time + timedelta(minutes=5))
            return (started, row.event_time, events + 1), []

        def timer(self, key, at, state, timers):
            started, _, events = state
            return None, [Row(user=key[0], started=started, events=events, event_time=at)]


    def sessions(clicks):
        schema = "user STRING, started TIMESTAMP, events BIGINT, event_time TIMESTAMP"
        return transform(clicks, ["user"], Sessions(), schema)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_uses = 0


def take_uses() -> int:
    """Number of calls of ``transform`` since the last call of this function."""
    global _uses
    uses, _uses = _uses, 0
    return uses


def _aware(value: Any) -> Any:
    """A time with its zone. Spark hands those of rows to Python with it, and those of a state that
    comes from the batch before without; the zone is UTC here.
    """
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and not value.tzinfo else value


def _utc_ms(at: datetime) -> int:
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


class Timers:
    """The timer of one key: at most one, at an event time."""

    def __init__(self, at_ms: int | None) -> None:
        self.at_ms = at_ms

    def set(self, at: datetime) -> None:
        """Fire at ``at`` (event time), instead of an earlier setting."""
        self.at_ms = _utc_ms(at)

    def cancel(self) -> None:
        """Do not fire."""
        self.at_ms = None


class BatchSafeProcessor(StatefulProcessor):
    """Derive from this, set ``state_schema``, and write ``row`` and ``timer``.

    Both get and return the whole state of the key as a tuple (None: no state), so that nothing else
    can carry over from batch to batch. All times, of rows, state and timers, have the zone UTC.
    """

    state_schema: str = "value STRING"
    """Columns of the state, as a Spark schema."""

    @abstractmethod
    def row(
        self, key: tuple[Any, ...], row: Row, state: tuple[Any, ...] | None, timers: Timers
    ) -> tuple[tuple[Any, ...] | None, Iterable[Row]]:
        """One input row, in order of ``event_time``. Returns the new state and result rows,
        whose ``event_time`` is not before the row's.
        """

    @abstractmethod
    def timer(
        self, key: tuple[Any, ...], at: datetime, state: tuple[Any, ...] | None, timers: Timers
    ) -> tuple[tuple[Any, ...] | None, Iterable[Row]]:
        """The key's timer is due. Returns the new state and result rows, whose ``event_time``
        is not before ``at``.
        """

    def init(self, handle: Any) -> None:
        """Called by Spark once per task."""
        self._handle = handle
        self._state = handle.getValueState("state", self.state_schema)
        self._timer = handle.getValueState("timer", "at_ms BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Spark's entry: a key's rows of one batch."""
        state, timers = self._load()
        for row in sorted(rows, key=_order):
            state, made = self._fire(key, state, timers, before_ms=_utc_ms(row.event_time))
            yield from made
            state, results = self.row(key, row, state, timers)
            yield from results
        self._save(state, timers)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Spark's entry: a timer of the key is due."""
        state, timers = self._load()
        due_ms = expiredTimerInfo.getExpiryTimeInMs()
        state, made = self._fire(
            key, state, timers, before_ms=max(due_ms, timerValues.getCurrentWatermarkInMs()) + 1
        )
        yield from made
        self._save(state, timers)

    def close(self) -> None:
        """Called by Spark."""

    def _fire(
        self, key: Any, state: tuple[Any, ...] | None, timers: Timers, before_ms: int
    ) -> tuple[tuple[Any, ...] | None, list[Row]]:
        made: list[Row] = []
        while timers.at_ms is not None and timers.at_ms < before_ms:
            at_ms, timers.at_ms = timers.at_ms, None
            at = datetime.fromtimestamp(at_ms / 1000, UTC)
            state, results = self.timer(key, at, state, timers)
            made += results
        return state, made

    def _load(self) -> tuple[tuple[Any, ...] | None, Timers]:
        state = tuple(map(_aware, self._state.get())) if self._state.exists() else None
        self._saved_ms = self._timer.get()[0] if self._timer.exists() else None
        return state, Timers(self._saved_ms)

    def _save(self, state: tuple[Any, ...] | None, timers: Timers) -> None:
        if state is None:
            self._state.clear()
        else:
            self._state.update(state)
        if timers.at_ms != self._saved_ms:
            if self._saved_ms is not None:
                self._handle.deleteTimer(self._saved_ms)
            if timers.at_ms is None:
                self._timer.clear()
            else:
                self._handle.registerTimer(timers.at_ms)
                self._timer.update((timers.at_ms,))


def _order(row: Row) -> tuple[Any, ...]:
    """Event time first, then every column, nulls first."""
    values = row.asDict()
    return (
        values.pop("event_time"),
        *((value is not None, value if value is not None else 0) for value in values.values()),
    )


def transform(
    frame: DataFrame, keys: list[str], processor: BatchSafeProcessor, schema: str
) -> DataFrame:
    """Run ``processor`` on ``frame``, per key.

    Args:
        frame: With ``event_time``.
        keys: Grouping columns.
        processor: A ``BatchSafeProcessor``.
        schema: Columns of the result rows, as a Spark schema, with ``event_time TIMESTAMP``.
    """
    global _uses  # noqa: PLW0603
    _uses += 1
    return frame.groupBy(*keys).transformWithState(
        statefulProcessor=processor,
        outputStructType=schema,
        outputMode="Append",
        timeMode="EventTime",
        eventTimeColumnName="event_time",
    )
