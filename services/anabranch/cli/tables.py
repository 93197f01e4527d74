"""Tables, whole: a cut-off name, amount or error is of no use, in a pipe least of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

_WIDTH_MAX: Final = 1_000


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A plain one. What stands in it may have been written by others: it is shown as it is."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column)
    for row in rows:
        made.add_row(*(escape(cell) for cell in row))
    return made


def print_whole(shown: Table) -> None:
    """Never narrower than its content."""
    wide = Console(width=_WIDTH_MAX)
    needed = Measurement.get(wide, wide.options, shown).maximum
    Console(width=max(Console().width, needed)).print(shown)
