"""``anabranch.stateful``: what can be said about it without Spark. On Spark:
tests/spark/test_batch_safety.py.
"""

from __future__ import annotations

import re
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from anabranch import stateful

DOCUMENT = Path(__file__).parents[2] / "docs" / "operators.md"
START = datetime(2026, 1, 1)  # noqa: DTZ001 - as Spark hands times to Python


def example() -> str:
    """The code in the module's own documentation."""
    return textwrap.dedent((stateful.__doc__ or "").partition("::\n\n")[2])


def names(code: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(code, "the example", "exec"), found)
    return found


def test_the_document_shows_the_same_example() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert [block.strip() for block in blocks] == [example().strip()]


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


class Value:
    """A value of Spark's state store, which gives times without a zone."""

    def __init__(self, value: tuple[Any, ...] | None = None) -> None:
        self.value = value

    def exists(self) -> bool:
        return self.value is not None

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None


class Handle:
    def __init__(self, state: tuple[Any, ...], at_ms: int) -> None:
        self.values = {"state": Value(state), "timer": Value((at_ms,))}

    def getValueState(self, name: str, _schema: str) -> Value:  # noqa: N802 - Spark's name
        return self.values[name]

    def registerTimer(self, _: int) -> None:  # noqa: N802 - Spark's name
        """Spark fires it later."""

    deleteTimer = registerTimer  # noqa: N815 - Spark's name


class Times(stateful.BatchSafeProcessor):
    """Gives how long ago, by whatever times it gets."""

    def row(self, key: Any, row: Row, state: Any, timers: stateful.Timers) -> tuple[Any, list[Row]]:
        return (row.event_time,), [Row(what="row", since=row.event_time - state[0])]

    def timer(
        self, key: Any, at: datetime, state: Any, timers: stateful.Timers
    ) -> tuple[Any, list[Row]]:
        return state, [Row(what="timer", since=at - state[0])]


def test_times_of_rows_state_and_timers_can_be_compared_wherever_batches_are_cut() -> None:
    utc, minute = START.replace(tzinfo=UTC), timedelta(minutes=1)
    processor = Times()
    processor.init(Handle((START,), stateful._utc_ms(START + minute)))
    rows = [Row(event_time=utc + n * minute) for n in (2, 3)]
    assert [tuple(each) for each in processor.handleInputRows(("k",), iter(rows), None)] == [
        ("timer", minute),
        ("row", 2 * minute),
        ("row", minute),
    ]
