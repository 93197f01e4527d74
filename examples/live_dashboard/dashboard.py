"""Live answer in a terminal: ``python dashboard.py HOST:PORT``. Ctrl-C ends it.

It prints the whole answer after every change: a result that is undone disappears by itself, and its
correction takes its place. The program keeps no state and decides nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from rich.live import Live
from rich.table import Table

from anabranch.client import Row, live

SHOWN: Final = 8


def table(rows: Sequence[Row[dict[str, Any]]]) -> Table:
    """Return a table of the newest windows, newest first."""
    found = Table("window until", "machines", "kilowatts", "")
    for row in sorted(rows, key=lambda row: row.event_time, reverse=True)[:SHOWN]:
        state = "stable" if row.stable else f"tentative, without {', '.join(row.missing)}"
        found.add_row(
            f"{row.event_time:%H:%M:%S}",
            str(row.value["machines"]),
            f"{row.value['watts'] / 1_000:.1f}",
            state,
            style="" if row.stable else "yellow",
        )
    return found


def main(kafka: str) -> None:
    """Show the answer until Ctrl-C."""
    with live(kafka, "load.live") as answer, Live(table(answer.rows())) as screen:
        for _ in answer:
            screen.update(table(answer.rows()))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        print()
