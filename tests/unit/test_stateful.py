"""``anabranch.stateful``: what can be said about it without Spark. On Spark:
tests/spark/test_batch_safety.py.
"""

from __future__ import annotations

import math
import re
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from anabranch import stateful
from anabranch.adapters.spark.python_functions import describe
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError

DOCUMENT = Path(__file__).parents[2] / "docs" / "operators.md"
START = datetime(2026, 1, 1)  # noqa: DTZ001 - as Spark hands times to Python


def example() -> str:
    """Return the code in the module's own documentation."""
    return textwrap.dedent((stateful.__doc__ or "").partition("::\n\n")[2])


def names(code: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(code, "the example", "exec"), found)
    return found


def test_the_document_shows_the_same_example() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert blocks[0].strip() == example().strip()


def test_the_example_runs() -> None:
    found = names(example())
    processor, timers = found["Sessions"](), stateful.Timers(None)
    state, made = processor.row(("ann",), Row(user="ann", event_time=START), None, timers)
    state, more = processor.row(
        ("ann",), Row(user="ann", event_time=START + timedelta(minutes=1)), state, timers
    )
    assert [*made, *more] == []
    assert timers.at_ms == stateful._utc_ms(START + timedelta(minutes=6))
    state, made = processor.timer(("ann",), START + timedelta(minutes=6), state, timers)
    assert state is None
    assert made == [
        Row(user="ann", started=START, events=2, event_time=START + timedelta(minutes=6))
    ]


def test_the_example_gives_the_columns_that_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    found = names(example())
    calls: list[tuple[Any, ...]] = []
    found["transform"] = lambda *arguments: calls.append(arguments)
    found["sessions"]("clicks")
    ((frame, keys, processor, schema),) = calls
    assert (frame, keys) == ("clicks", ["user"])
    _, made = processor.timer(("ann",), START, (START, START, 1), stateful.Timers(None))
    assert list(made[0].asDict()) == [column.split()[0] for column in schema.split(", ")]


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in the zone that workers run in: Spark hands over times of a state in the local one."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class Value:
    """A value of Spark's state store: it gives back what Spark's types make of what was put in."""

    def __init__(self, schema: StructType) -> None:
        self.schema = schema
        self.value: Any = None

    def get(self) -> tuple[Any, ...] | None:
        return None if self.value is None else tuple(self.schema.fromInternal(self.value))

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = self.schema.toInternal(value)

    def clear(self) -> None:
        self.value = None


class Handle:
    """The part of Spark's handle that processors use, for one key."""

    def __init__(self) -> None:
        self.timers: set[int] = set()
        self.held: dict[str, Value] = {}

    def getValueState(self, name: str, schema: StructType | str) -> Value:  # noqa: N802 - Spark's name
        if isinstance(schema, str):
            assert schema == "at_ms BIGINT"
            schema = StructType([StructField("at_ms", LongType())])
        return self.held.setdefault(name, Value(schema))

    def registerTimer(self, at_ms: int) -> None:  # noqa: N802 - Spark's name
        self.timers.add(at_ms)

    def deleteTimer(self, at_ms: int) -> None:  # noqa: N802 - Spark's name
        self.timers.discard(at_ms)


@dataclass
class Due:
    """Spark's TimerValues and ExpiredTimerInfo."""

    watermark_ms: int
    at_ms: int = 0

    def getCurrentWatermarkInMs(self) -> int:  # noqa: N802 - Spark's name
        return self.watermark_ms

    def getExpiryTimeInMs(self) -> int:  # noqa: N802 - Spark's name
        return self.at_ms


NESTED = StructType(
    [
        StructField("at", TimestampType()),
        StructField("number", DoubleType()),
        StructField("local", TimestampNTZType()),
    ]
)
COLUMNS = StructType(
    [
        StructField("user", StringType()),
        StructField("since", TimestampType()),
        StructField("number", DoubleType()),
        StructField("single", FloatType()),
        StructField("struct", NESTED),
        StructField("list", ArrayType(ArrayType(LongType()))),
        StructField("map", MapType(StringType(), TimestampType())),
        StructField("by_struct", MapType(NESTED, DoubleType())),
        StructField("price", DecimalType(10, 2)),
        StructField("day", DateType()),
        StructField("bytes", BinaryType()),
        StructField("flag", BooleanType()),
        StructField("clock", TimeType()),
        StructField("wait", DayTimeIntervalType()),
        StructField("nothing", NullType()),
        StructField("event_time", TimestampType()),
    ]
)
STATE = StructType(
    [*COLUMNS.fields, StructField("rows", ArrayType(COLUMNS)), StructField("n", LongType())]
)
UTC_START = START.replace(tzinfo=UTC)


def as_users_write(row: Row) -> tuple[Any, ...]:
    """Return the values of ``row`` in other forms that a function may return them in."""
    changed: dict[str, Any] = row.asDict() | {
        "since": row.since.replace(tzinfo=None),
        "struct": row.struct and row.struct.asDict(),
        "list": row.list and tuple(row.list),
        "map": row.map and dict(reversed(row.map.items())),
        "price": row.price and np.int64(row.price),
        "bytes": row.bytes and bytearray(row.bytes),
    }
    return tuple(changed.values())


class Recorder(stateful.BatchSafeProcessor):
    """Records every call, and puts all that it was given into its state."""

    state_schema = STATE

    def __init__(self) -> None:
        self.calls: list[str] = []

    def row(self, key: Any, row: Row, state: Any, timers: stateful.Timers) -> tuple[Any, list[Row]]:
        self.calls.append(repr(("row", key, row, state)))
        rows, n = state[-2:] if state else ([], 0)
        if n % 3 == 0:
            timers.set(row.event_time + timedelta(microseconds=150_400))
        return (*as_users_write(row), [*rows, row][-2:], n + 1), []

    def timer(
        self, key: Any, at: datetime, state: Any, timers: stateful.Timers
    ) -> tuple[Any, list[Row]]:
        self.calls.append(repr(("timer", key, at, state)))
        if state[-1] % 2:
            timers.set(at + timedelta(milliseconds=70))
        return (*state[:-1], state[-1] + 1), []


class Forgets(stateful.BatchSafeProcessor):
    """Sets a timer that it has no method for."""

    state_schema = "n BIGINT"
    after = timedelta(seconds=1)

    def row(self, key: Any, row: Row, state: Any, timers: stateful.Timers) -> tuple[Any, list[Row]]:
        if row.n:
            timers.set(row.event_time + self.after)
        return ((state or (0,))[0] + 1,), []


def prepared(processor: stateful.BatchSafeProcessor) -> tuple[Handle, stateful.BatchSafeProcessor]:
    number = StructField("n", LongType())
    columns = StructType([number, StructField("event_time", TimestampType())])
    processor.columns = stateful.Columns(columns, ("n",), StructType([number]))
    handle = Handle()
    processor.init(handle)
    return handle, processor


def test_spark_keeps_no_timers_for_a_class_without_timer() -> None:
    handle, processor = prepared(Forgets())
    for _ in range(2):
        rows = iter([Row("n", "event_time")(0, START)])
        assert list(processor.handleInputRows((0,), rows, Due(0))) == []
    assert not processor.is_timed()
    assert Recorder().is_timed()
    assert {name: value.get() for name, value in handle.held.items()} == {"state": (2,)}


@pytest.mark.parametrize("rows", [1, 2], ids=["due later", "due between two rows"])
def test_a_timer_that_has_no_method_is_refused(rows: int) -> None:
    _, processor = prepared(Forgets())
    given = [Row("n", "event_time")(1, START + timedelta(minutes=i)) for i in range(rows)]
    with pytest.raises(LocalProtocolError, match="Forgets sets a timer, but has no method timer"):
        list(processor.handleInputRows((1,), iter(given), Due(0)))


def calls(batches: Sequence[tuple[int, list[dict[str, Any]]]]) -> list[str]:
    """Run ``batches`` (end of the last bucket in ms, rows) as Spark does, and return the calls."""
    processor = Recorder()
    processor.columns = stateful.Columns(COLUMNS, ("user", "since"), STATE)
    handle = Handle()
    processor.init(handle)
    arrow = to_arrow_schema(COLUMNS, timezone="UTC")
    for end_ms, rows in batches:
        columns = [[row[name] for row in rows] for name in arrow.names]
        batch = pa.table([pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)], arrow)
        made = [
            Row(*arrow.names)(*(column[i].as_py() for column in batch.columns))
            for i in range(batch.num_rows)
        ]
        if made:
            list(processor.handleInputRows(("ann", UTC_START), iter(made), Due(end_ms)))
        due_ms = set[int]()
        while fired := sorted(at_ms for at_ms in handle.timers - due_ms if at_ms <= end_ms):
            due_ms.add(fired[0])
            key = Row("user", "since")("ann", START)  # as Spark hands it over with a timer
            list(processor.handleExpiredTimer(key, Due(end_ms), Due(end_ms, fired[0])))
            handle.timers.discard(fired[0])
            due_ms.clear()
    return processor.calls


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


NUMBERS = st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5])
MOMENTS = st.sampled_from([UTC_START, UTC_START + timedelta(microseconds=1)])
BUCKET_MS = 100
START_MS = stateful._utc_ms(UTC_START)
INNER = st.fixed_dictionaries(
    {"at": maybe(MOMENTS), "number": maybe(NUMBERS), "local": maybe(st.just(START))}
)
COLUMN_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "number": maybe(NUMBERS),
    "single": maybe(NUMBERS),
    "struct": maybe(INNER),
    "list": maybe(st.lists(maybe(st.lists(maybe(st.integers(0, 1)), max_size=2)), max_size=2)),
    "map": maybe(
        st.lists(
            st.tuples(st.sampled_from("ab"), maybe(MOMENTS)),
            max_size=2,
            unique_by=lambda p: p[0],
        )
    ),
    "by_struct": maybe(
        st.lists(
            st.tuples(INNER, maybe(NUMBERS)),
            max_size=2,
            unique_by=lambda p: repr(sorted(p[0].items())).replace("-0.0", "0.0"),
        )
    ),
    "price": maybe(st.sampled_from([Decimal("1.00"), Decimal("-1.50")])),
    "day": maybe(st.sampled_from([date(2026, 1, 1), date(2025, 1, 1)])),
    "bytes": maybe(st.sampled_from([b"", b"a"])),
    "flag": maybe(st.booleans()),
    "clock": maybe(st.sampled_from([clock_time(1), clock_time(0, 0, 1)])),
    "wait": maybe(st.sampled_from([timedelta(0), timedelta(1)])),
    "event_time": st.integers(1, 150).map(
        lambda ms: UTC_START + timedelta(milliseconds=ms // 50 * 50 + 1)
    ),
}


BASE: dict[str, Any] = dict.fromkeys(COLUMNS.names) | {"user": "ann", "since": UTC_START}
COLUMN = st.sampled_from(["number", *COLUMN_VALUES]).flatmap(
    lambda name: COLUMN_VALUES[name].map(lambda value: {name: value})
)
ROWS = st.tuples(COLUMN, COLUMN, COLUMN_VALUES["event_time"]).map(
    lambda parts: BASE | parts[0] | parts[1] | {"event_time": parts[2]}
)
"""Rows that differ in few columns, and so often tie in all columns but these."""


def bucket_of(row: dict[str, Any]) -> int:
    return -(-(stateful._utc_ms(row["event_time"]) - START_MS) // BUCKET_MS)


@given(st.lists(ROWS, max_size=8), st.data())
@settings(deadline=None, max_examples=150)
def test_the_calls_depend_neither_on_the_cut_of_batches_nor_on_the_order_of_arrival(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    last = 8
    expected = calls([(START_MS + last * BUCKET_MS, rows)])
    ends = [*sorted(data.draw(st.sets(st.integers(1, last - 1)))), last]
    shuffled = data.draw(st.permutations(rows))
    shuffled = [
        row | {name: row[name] and row[name][::-1] for name in ("map", "by_struct")}
        for row in shuffled
    ]
    batches = [
        (START_MS + end * BUCKET_MS, [row for row in shuffled if start < bucket_of(row) <= end])
        for start, end in pairwise([0, *ends])
    ]
    assert calls(batches) == expected


def test_values_that_a_call_returns_have_the_form_of_their_columns_in_the_next_call() -> None:
    form = stateful._tuple_of([field.dataType for field in COLUMNS])
    empty = dict.fromkeys(COLUMNS.names)
    given_back: dict[str, tuple[Any, Any]] = {
        "since": (pd.Timestamp("2026-01-01T01:00+01:00"), UTC_START),
        "number": (np.float64(2), 2.0),
        "single": (0.1, float(np.float32(0.1))),
        "struct": ((START, 1, UTC_START), Row(at=UTC_START, number=1.0, local=START)),
        "list": (((1, np.int64(2)), None), [[1, 2], None]),
        "map": ({"b": START, "a": None}, {"a": None, "b": UTC_START}),
        "price": (Decimal("1.005"), Decimal("1.01")),
        "day": (START, date(2026, 1, 1)),
        "bytes": (bytearray(b"a"), b"a"),
        "event_time": (START, UTC_START),
    }
    formed = form((empty | {name: value for name, (value, _) in given_back.items()}).values())
    assert repr(formed) == repr(
        tuple((empty | {name: right for name, (_, right) in given_back.items()}).values())
    )
    assert repr(form(formed)) == repr(formed)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (LongType(), 1.0),
        (LongType(), 2**63),
        (ByteType(), 128),
        (StringType(), 1),
        (BooleanType(), 1),
        (TimestampType(), date(2026, 1, 1)),
        (DateType(), "2026-01-01"),
        (DecimalType(3, 2), Decimal(10)),
        (DecimalType(3, 2), Decimal("nan")),
    ],
)
def test_what_spark_would_store_as_another_value_is_an_error(kind: DataType, value: Any) -> None:
    with pytest.raises((TypeError, OverflowError)):
        stateful._tuple_of([kind])([value])


@pytest.mark.parametrize(
    "kind",
    [
        DoubleType(),
        ArrayType(FloatType()),
        StructType([StructField("x", DoubleType())]),
        StringType("UTF8_LCASE"),
    ],
)
def test_keys_that_do_not_tell_groups_apart_are_rejected(kind: DataType) -> None:
    rows = StructType([StructField("key", kind), StructField("event_time", TimestampType())])
    with pytest.raises(ConfigurationError, match="cannot be grouped by key"):
        stateful.Columns(rows, ("key",), STATE)


def test_arrays_in_keys_of_maps_are_tuples() -> None:
    form = stateful._tuple_of([MapType(ArrayType(LongType()), ArrayType(LongType()))])
    assert form([[([2], [1]), ([1, None], None)]]) == ({(1, None): None, (2,): [1]},)


def test_two_columns_of_one_name_are_rejected() -> None:
    rows = StructType([StructField("event_time", TimestampType())] * 2)
    with pytest.raises(ConfigurationError, match="more than one column event_time"):
        stateful.Columns(rows, (), STATE)


def test_a_processor_that_was_not_given_to_transform_says_so() -> None:
    with pytest.raises(LocalProtocolError, match=r"anabranch\.stateful\.transform"):
        Recorder().init(Handle())


def test_state_that_was_stored_otherwise_is_of_another_function() -> None:
    """Binary values were once stored as they are: Spark's store would refuse them as text, with an
    error that names no way on, or take them for it.
    """

    def described(kind: DataType, stored_as: str | None = None) -> str:
        processor = Forgets()
        processor.columns = stateful.Columns(COLUMNS, (), StructType([StructField("s", kind)]))
        if stored_as is not None:
            processor.columns = SimpleNamespace(stored_as=stored_as)  # type: ignore[assignment]
        return describe(MethodType(print, SimpleNamespace(_stateful_processor=processor)))

    assert described(LongType()) == described(LongType(), "")
    assert described(BinaryType()) != described(BinaryType(), "")
    assert described(BinaryType()) == described(BinaryType(), "binary in base64")
