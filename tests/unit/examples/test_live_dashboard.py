"""Test of the example's view of a live answer."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from anabranch.client import Row
from examples.live_dashboard.dashboard import SHOWN, table

NOON = datetime(2026, 9, 1, 12, tzinfo=UTC)


def row(window: int, *, missing: tuple[str, ...] = ()) -> Row[dict[str, Any]]:
    time = NOON + timedelta(seconds=2 * window)
    value = {"machines": 3, "watts": 10_250 + 1_000 * window}
    return Row(f"{window}.0", time, None, value, not missing, missing)


def shown(*rows: Row[dict[str, Any]]) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=80)
    console.print(table(rows))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    return [re.split(r"\s*│\s*", line.strip("│ ")) for line in lines if line.startswith("│")]


def test_tentative_windows_name_what_they_lack_and_stable_ones_say_so() -> None:
    assert shown(row(0), row(1, missing=("hall_b",))) == [
        ["12:00:02", "3", "11.2", "tentative, without hall_b"],
        ["12:00:00", "3", "10.2", "stable"],
    ]


def test_the_newest_windows_are_shown() -> None:
    found = shown(*(row(window) for window in range(SHOWN + 3)))
    assert len(found) == SHOWN
    assert found[0][0] == "12:00:20"
