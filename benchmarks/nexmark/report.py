"""Page with the figures of a run: docs/experiments/nexmark.md between its two marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.nexmark.session import Figures
from benchmarks.nexmark.systems import SYSTEMS

BEGIN: Final = "<!-- figures: written by make nexmark -->"
END: Final = "<!-- end of figures -->"


def table(figures: Sequence[Figures]) -> list[str]:
    """Return the lines of the table: a row for each query, the median session of each system."""
    rows = [
        "| query | " + " | ".join(f"{system}: events/s per core" for system in SYSTEMS) + " |"
        " seconds, in that order | others' cores | answers | right |",
        "|---" * (len(SYSTEMS) + 5) + "|",
    ]
    for query in sorted({each.query for each in figures}):
        cells, seconds = [], []
        of_query = [each for each in figures if each.query == query]
        for system in SYSTEMS:
            mine = sorted((f for f in of_query if f.system == system), key=lambda f: f.per_core)
            if not mine:
                cells.append("-")
                seconds.append("-")
                continue
            median = mine[len(mine) // 2]
            cells.append(f"{median.per_core:,.0f}".replace(",", " "))
            seconds.append(f"{median.seconds:.0f}")
        others = [f.others_cpu_s / f.seconds for f in of_query if f.seconds]
        wrong = sorted({f.system for f in of_query if not f.verdict.is_right})
        rows.append(
            f"| {query} | {' | '.join(cells)} | {', '.join(seconds)} |"
            f" {min(others, default=0):.1f} to {max(others, default=0):.1f} |"
            f" {of_query[0].verdict.expected} |"
            f" {'all' if not wrong else 'not ' + ', '.join(wrong)} |"
        )
    return rows


def write(page: Path, text: Sequence[str]) -> None:
    """Replace what is between the marks of ``page``.

    Raises:
        ValueError: the page does not have both marks.
    """
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no line {BEGIN if not begin else END}: add it")
    page.write_text("\n".join([before + begin, "", *text, "", end]) + after)
