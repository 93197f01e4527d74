"""Table of the current answer of the toll road's live topic, which updates itself.

    anabranch up -f examples/toll_road/pipeline.yaml           # in one terminal; prints the ADDRESS
    python -m demo.traffic --kafka ADDRESS  # traffic, in another
    python -m examples.toll_road.live_view --kafka ADDRESS     # this, in a third

Tentative results are marked with the streams that they lack; when the input is back the marks
disappear, and the numbers change to the corrected ones.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from rich.live import Live
from rich.table import Table

from anabranch.client import Kind, LiveRecord, LiveView, follow

_ROWS: Final = 20
_STABLE_BUCKETS_KEPT: Final = 1_000


def state_of(view: LiveView) -> str:
    """Describe in one line up to when the answer is stable, up to when it is known, and what it
    lacks.
    """
    stable, known = (
        datetime.fromtimestamp(ms / 1_000, UTC).strftime("%H:%M:%S.%f")[:-5]
        for ms in (view.stable_ms, view.shown_ms)
    )
    if not view.in_failure:
        return f"stable up to {stable}"
    return (
        f"stable up to {stable}, tentative up to {known}, without"
        f" {', '.join(view.missing) or 'nothing'}"
    )


def newest(records: Iterable[LiveRecord], count: int) -> list[LiveRecord]:
    """Return the latest records, newest first."""
    named = [record for record in records if record.id is not None]
    return sorted(
        named,
        key=lambda record: (record.id is not None and record.id.bucket, record.key or b""),
        reverse=True,
    )[:count]


def table_of(view: LiveView, count: int = _ROWS) -> Table:
    """Return a table with the newest toll of each segment."""
    records = newest(view.by_key().values(), count)
    table = Table(title="Tolls now", caption=state_of(view))
    columns: dict[str, None] = {}
    values = [json.loads(record.value or b"{}") for record in records]
    for value in values:
        columns.update(dict.fromkeys(value))
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("")
    for record, value in zip(records, values, strict=True):
        mark = (
            f"tentative, without {', '.join(record.missing)}"
            if record.kind is Kind.TENTATIVE
            else ""
        )
        table.add_row(
            *(str(value.get(column, "")) for column in columns),
            mark,
            style="yellow" if mark else None,
        )
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Show the table until Ctrl-C."""
    parser = argparse.ArgumentParser(description="The current tolls, stable and tentative.")
    parser.add_argument("--kafka", required=True, metavar="ADDRESS", help="the broker, HOST:PORT")
    parser.add_argument("--topic", default="tolls.live", help="the live topic (default tolls.live)")
    given = parser.parse_args(arguments)
    with Live(Table(title="Tolls now"), refresh_per_second=4) as shown:
        try:
            for view in follow(given.kafka, given.topic, buckets_kept=_STABLE_BUCKETS_KEPT):
                shown.update(table_of(view))
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
