"""Tables of the commands. They are never cut off at the terminal's width: a shortened name, amount
or error is useless, above all in a pipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

_WIDTH_MAX: Final = 1_000


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a plain table. Cells are escaped: other participants may have written their texts."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column)
    for row in rows:
        made.add_row(*(escape(cell) for cell in row))
    return made


def print_whole(shown: Table) -> None:
    """Print a table as wide as its content, also where that is wider than the terminal."""
    wide = Console(width=_WIDTH_MAX)
    needed = Measurement.get(wide, wide.options, shown).maximum
    Console(width=max(Console().width, needed)).print(shown)
