"""``anabranch.stateful``: what can be said about it without Spark. On Spark:
tests/spark/test_batch_safety.py.
"""

from __future__ import annotations

import re
import textwrap
from datetime import datetime, timedelta
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
    asked: list[tuple[Any, ...]] = []
    found["transform"] = lambda *arguments: asked.append(arguments)
    found["sessions"]("clicks")
    ((frame, keys, processor, schema),) = asked
    assert (frame, keys) == ("clicks", ["user"])
    _, made = processor.timer(("ann",), START, (START, START, 1), stateful.Timers(None))
    assert list(made[0].asDict()) == [column.split()[0] for column in schema.split(", ")]
