"""Stateful functions of your own that give the same result however buckets are grouped into
batches.

Spark hands a ``transformWithState`` processor the rows of a batch in no promised order, and fires
timers only at the end of the batch. So what it does depends on where batches are cut.
``BatchSafeProcessor`` sorts a key's rows into the canonical order of a bucket and fires the timers
that are due between them, as if every bucket had been a batch of its own. Keys, rows and state
have one form in Python, whichever way Spark passed them. Use it through ``transform``::

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

import copy
import struct
from abc import abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import groupby
from operator import attrgetter, index
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from anabranch.codec.blocks import EVENT_TIME, canonical_order
from anabranch.codec.columns import in_order
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BITS: Final = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_EXACT: Final = Context(prec=76)
"""Decimal context in which the rounding of any number to a scale of Spark's is exact."""

_Convert = Callable[[Any], Any]

_uses = 0


def take_uses() -> int:
    """Return the number of calls of ``transform`` since the last call of this function."""
    global _uses
    uses, _uses = _uses, 0
    return uses


def _datetime(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError(f"a time is a datetime, not {value!r}")
    # pandas' datetime has nanoseconds besides, which Spark drops
    convert: Callable[..., datetime] | None = getattr(value, "to_pydatetime", None)
    return value if convert is None else convert(warn=False)


def _utc(value: Any) -> datetime:
    found = _datetime(value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _local(value: Any) -> datetime:
    return _datetime(value).replace(tzinfo=None)


def _date(value: Any) -> date:
    if not isinstance(value, date):
        raise TypeError(f"a DATE of the state is a date, not {value!r}")
    return value.date() if isinstance(value, datetime) else value


def _of_type(kind: type) -> _Convert:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"a column of the state takes {kind.__name__}, not {value!r}")
        return value

    return check


def _integer(bits: int) -> _Convert:
    def check(value: Any) -> int:
        found = index(value)
        if not -(1 << bits - 1) <= found < 1 << bits - 1:
            raise OverflowError(f"{found} does not fit a column of the state of {bits} bits")
        return found

    return check


def _decimal(kind: DecimalType) -> _Convert:
    unit = Decimal(1).scaleb(-kind.scale)

    def rounded(value: Any) -> Decimal:
        found = Decimal(value).quantize(unit, ROUND_HALF_UP, _EXACT)
        if not found.is_finite() or abs(found.scaleb(kind.scale, _EXACT)) >= 10**kind.precision:
            raise OverflowError(f"{value} does not fit a column {kind.simpleString()} of the state")
        return found

    return rounded


def _single(value: Any) -> float:
    (found,) = struct.unpack("f", struct.pack("f", value))
    return float(found)


def _leaf(kind: DataType) -> _Convert | None:
    """Return what makes of a value that a user's function returned the one that Spark gives back
    for it after a batch; None: they are the same.
    """
    by_type: dict[type[DataType], _Convert] = {
        TimestampType: _utc,
        TimestampNTZType: _local,
        DateType: _date,
        FloatType: _single,
        DoubleType: float,
        BinaryType: bytes,
        BooleanType: _of_type(bool),
        StringType: _of_type(str),
        **{each: _integer(bits) for each, bits in _BITS.items()},
    }
    if isinstance(kind, DecimalType):
        return _decimal(kind)
    return by_type.get(type(kind))


def _converter(
    kind: DataType,
    leaf: Callable[[DataType], _Convert | None] = _leaf,
    sequence: type[list[Any] | tuple[Any, ...]] = list,
) -> _Convert | None:
    """Return what brings values of type ``kind`` into the form that users' functions get: structs
    as Row, arrays as ``sequence``, maps as dict in the order of their keys. None: they have it.

    ``leaf`` says what is done to values that are not nested.
    """
    if isinstance(kind, StructType):
        names = kind.names
        make = Row(*names)
        parts = [_converter(field.dataType, leaf, sequence) for field in kind]

        def row(value: Any) -> Row:
            values = [value.get(name) for name in names] if isinstance(value, dict) else value
            return make(*(_apply(*pair) for pair in zip(parts, values, strict=True)))

        return _of_any(row)
    if isinstance(kind, ArrayType):
        item = _converter(kind.elementType, leaf, sequence)
        if item is None:  # nothing is done to any: a long array is copied at once
            return _of_any(sequence)
        return _of_any(lambda value: sequence(item(each) for each in value))
    if isinstance(kind, MapType):
        # a list is no key of a dict
        key, value_of = _converter(kind.keyType, leaf, tuple), _converter(kind.valueType, leaf)
        by_text = isinstance(kind.keyType, (StructType, ArrayType, FloatType, DoubleType))

        def pairs(value: Any) -> dict[Any, Any]:
            both = value.items() if isinstance(value, dict) else value
            made = [(_apply(key, k), _apply(value_of, v)) for k, v in both]
            return dict(in_order(made, by_text=by_text))

        return _of_any(pairs)
    found = leaf(kind)
    return None if found is None else _of_any(found)


def _of_any(convert: _Convert) -> _Convert:
    """Return ``convert`` for values that may be None, or numpy's."""

    def converted(value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.tolist()
        return None if value is None else convert(value)

    return converted


def _apply(convert: _Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _tuple_of(
    kinds: Iterable[DataType], leaf: Callable[[DataType], _Convert | None] = _leaf
) -> Callable[[Iterable[Any]], tuple[Any, ...]]:
    """Return what brings each of several values into the form of its type in ``kinds``."""
    converters = [_converter(kind, leaf) for kind in kinds]
    return lambda values: tuple(_apply(*pair) for pair in zip(converters, values, strict=True))


@dataclass(frozen=True, slots=True)
class Columns:
    """Types of what a processor works with, as far as they decide on order and form."""

    rows: StructType
    keys: tuple[str, ...]
    """Names of the columns of ``rows`` that rows are grouped by."""
    state: StructType

    def __post_init__(self) -> None:
        """Raise ConfigurationError if rows cannot be grouped and ordered by these columns."""
        names = self.rows.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(
                f"transform: the frame has more than one column {', '.join(twice)}: select or"
                " rename them first"
            )
        for name in self.keys:
            if why := _why_no_key(self.rows[name].dataType):
                raise ConfigurationError(
                    f"transform: rows cannot be grouped by {name}, which {why}"
                )

    @property
    def stored_as(self) -> str:
        """Form of the state in Spark's store where it differs from the state's own columns: a
        checkpoint of another form is of another function.
        """
        return "binary in base64" if any(map(_is_binary, self.state)) else ""

    @property
    def arrow(self) -> pa.Schema:
        """Arrow's types of ``rows``."""
        return to_arrow_schema(self.rows, timezone="UTC")


def _why_no_key(kind: DataType) -> str | None:
    """Say why values of ``kind`` do not tell groups apart; None: they do.

    Spark groups by bytes and then, in Python, by ``==``. Where these differ one group is handed
    over in several calls, or several groups in one.
    """
    if isinstance(kind, (FloatType, DoubleType)):
        return "holds floating-point numbers (NaN, -0.0): cast it to a decimal or to text"
    if isinstance(kind, StringType) and kind.collation != "UTF8_BINARY":
        return f"has the collation {kind.collation}: group by a copy with collation UTF8_BINARY"
    if isinstance(kind, ArrayType):
        return _why_no_key(kind.elementType)
    if isinstance(kind, StructType):
        return next(filter(None, (_why_no_key(field.dataType) for field in kind)), None)
    return None


def _row_leaf(kind: DataType) -> _Convert | None:
    """Return what is done to a value of a row that is not nested. Spark hands over all but the zone
    of times in one form.
    """
    return _utc if isinstance(kind, TimestampType) else None


def canonical_rows(rows: Iterable[Row], schema: pa.Schema) -> Iterator[Row]:
    """Give ``rows``, whose columns are those of ``schema``, in the canonical order of a bucket.

    Rows are put into columns only where event times are equal.
    """
    time = attrgetter(EVENT_TIME)
    for _, group in groupby(sorted(rows, key=time), key=time):
        tied = list(group)
        if len(tied) == 1:
            yield tied[0]
            continue
        columns = [pa.array([row[i] for row in tied], field.type) for i, field in enumerate(schema)]
        for position in canonical_order(pa.table(columns, schema.names)).to_pylist():
            yield tied[position]


def _utc_ms(at: datetime) -> int:
    """Return the first whole ms that is not before ``at``.

    So a timer never fires early, and one at the end of a bucket fires before every later row, as it
    does where a batch ends there.
    """
    return -((_EPOCH - _utc(at)) // timedelta(milliseconds=1))


def _as_stored(state: StructType) -> StructType:
    """Return the columns of a state as Spark stores them: binary ones as text, in base64.

    Spark writes binary values for Python one byte at a time, which takes it thirty times as long as
    the same in text.
    """
    return StructType(
        [
            StructField(field.name, StringType(), field.nullable) if _is_binary(field) else field
            for field in state
        ]
    )


def _is_binary(field: StructField) -> bool:
    return isinstance(field.dataType, BinaryType)


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
    """Derive from this, set ``state_schema``, and write ``row``, and ``timer`` if it sets timers.

    Both get and return the whole state of the key as a tuple (None: no state), so that nothing else
    can carry over from batch to batch.

    Values of keys, rows and state have one form, at any depth: a TIMESTAMP is a datetime with the
    zone UTC, a TIMESTAMP_NTZ one without zone, a struct a Row, an array a list (in the key of a map
    a tuple), a map a dict in the order of its keys, binary bytes. The state that a call returns is
    brought into the form that the types of its columns have before the next call gets it, as if a
    batch had ended in between.
    """

    state_schema: str | StructType = "value STRING"
    """Columns of the state, as a Spark schema."""

    columns: Columns | None = None
    """Types of rows, key and state; set by ``transform``."""

    @abstractmethod
    def row(
        self, key: tuple[Any, ...], row: Row, state: tuple[Any, ...] | None, timers: Timers
    ) -> tuple[tuple[Any, ...] | None, Iterable[Row]]:
        """Take one input row, in the canonical order of a bucket: by ``event_time``, then by all
        columns. Return the new state and result rows, whose ``event_time`` is not before the row's.
        """

    def timer(
        self,
        key: tuple[Any, ...],  # noqa: ARG002
        at: datetime,  # noqa: ARG002
        state: tuple[Any, ...] | None,  # noqa: ARG002
        timers: Timers,  # noqa: ARG002
    ) -> tuple[tuple[Any, ...] | None, Iterable[Row]]:
        """Handle the key's timer, which is due. Return the new state and result rows, whose
        ``event_time`` is not before ``at``.

        A class that sets no timers leaves this method out. Spark then keeps none for it, which
        saves it an eighth of what a small batch costs.
        """
        raise self._no_timers()

    def init(self, handle: Any) -> None:
        """Prepare for the rows of a task. Spark calls it."""
        if self.columns is None:
            raise LocalProtocolError(
                f"{type(self).__name__} does not know its columns: use it through"
                " anabranch.stateful.transform"
            )
        rows = self.columns.rows
        self._arrow = self.columns.arrow
        self._row_of = _tuple_of([field.dataType for field in rows], _row_leaf)
        self._make_row = Row(*rows.names)
        self._key_of = _tuple_of([rows[name].dataType for name in self.columns.keys])
        self._state_of = _tuple_of([field.dataType for field in self.columns.state])
        self._handle = handle
        self._state = handle.getValueState("state", _as_stored(self.columns.state))
        self._binary = [_is_binary(field) for field in self.columns.state]
        if self.is_timed():
            self._timer = handle.getValueState("timer", "at_ms BIGINT")

    def is_timed(self) -> bool:
        """Tell whether the class has a ``timer`` of its own, so that it may set timers."""
        return type(self).timer is not BatchSafeProcessor.timer

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Take a key's rows of one batch. Spark calls it."""
        key = self._key_of(key)
        state, timers = self._load()
        for each in canonical_rows(rows, self._arrow):
            state, made = self._fire(key, state, timers, before_ms=_utc_ms(each.event_time))
            yield from made
            row = self._make_row(*self._row_of(each))
            state, results = self.row(key, row, state, timers)
            yield from results
            state = self._formed(state)
        self._save(state, timers)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Fire the key's timer. Spark calls it when the timer is due."""
        key = self._key_of(key)
        state, timers = self._load()
        due_ms = expiredTimerInfo.getExpiryTimeInMs()
        state, made = self._fire(
            key, state, timers, before_ms=max(due_ms, timerValues.getCurrentWatermarkInMs()) + 1
        )
        yield from made
        self._save(state, timers)

    def close(self) -> None:
        """Do nothing. Spark calls it."""

    def _fire(
        self, key: Any, state: tuple[Any, ...] | None, timers: Timers, before_ms: int
    ) -> tuple[tuple[Any, ...] | None, list[Row]]:
        made: list[Row] = []
        while timers.at_ms is not None and timers.at_ms < before_ms:
            at_ms, timers.at_ms = timers.at_ms, None
            at = datetime.fromtimestamp(at_ms / 1000, UTC)
            state, results = self.timer(key, at, state, timers)
            made += results
            state = self._formed(state)
        return state, made

    def _no_timers(self) -> LocalProtocolError:
        return LocalProtocolError(
            f"{type(self).__name__} sets a timer, but has no method timer(key, at, state, timers),"
            " which is called when a timer is due: write one"
        )

    def _formed(self, state: Iterable[Any] | None) -> tuple[Any, ...] | None:
        return None if state is None else self._state_of(state)

    def _load(self) -> tuple[tuple[Any, ...] | None, Timers]:
        # Each call asks Java's side by a socket, so nothing is asked twice.
        saved = self._timer.get() if self.is_timed() else None
        self._saved_ms = None if saved is None else saved[0]
        return self._formed(self._read(self._state.get())), Timers(self._saved_ms)

    def _read(self, stored: tuple[Any, ...] | None) -> list[Any] | None:
        if stored is None:
            return None
        return [
            b64decode(value) if is_binary and value is not None else value
            for value, is_binary in zip(stored, self._binary, strict=True)
        ]

    def _save(self, state: tuple[Any, ...] | None, timers: Timers) -> None:
        if state is None:
            self._state.clear()
        else:
            self._state.update(
                tuple(
                    b64encode(value).decode() if is_binary and value is not None else value
                    for value, is_binary in zip(state, self._binary, strict=True)
                )
            )
        if timers.at_ms != self._saved_ms:
            if not self.is_timed():
                raise self._no_timers()
            if self._saved_ms is not None:
                self._handle.deleteTimer(self._saved_ms)
            if timers.at_ms is None:
                self._timer.clear()
            else:
                self._handle.registerTimer(timers.at_ms)
                self._timer.update((timers.at_ms,))


def transform(
    frame: DataFrame, keys: list[str], processor: BatchSafeProcessor, schema: str
) -> DataFrame:
    """Run ``processor`` on ``frame``, per key.

    Args:
        frame: Rows with the column ``event_time``.
        keys: Grouping columns.
        processor: Processor of the rows of one key.
        schema: Columns of the result rows, as a Spark schema, with ``event_time TIMESTAMP``.

    Raises:
        ConfigurationError: rows cannot be grouped by ``keys``, or two columns have one name.
    """
    global _uses  # noqa: PLW0603
    _uses += 1
    state = processor.state_schema
    if isinstance(state, str):
        state = StructType.fromDDL(state)
    processor = copy.copy(processor)  # another frame may have other columns
    processor.columns = Columns(frame.schema, tuple(keys), state)
    # With a time mode Spark makes and compiles the timers' encoder anew for each copy of the plan.
    return frame.groupBy(*keys).transformWithState(
        statefulProcessor=processor,
        outputStructType=schema,
        outputMode="Append",
        timeMode="EventTime" if processor.is_timed() else "None",
        eventTimeColumnName="event_time",
    )
