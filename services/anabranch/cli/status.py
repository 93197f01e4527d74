"""The command ``anabranch status``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from anabranch.cli.options import File, StateDir
from anabranch.cli.signals import stop_events
from anabranch.cli.tables import print_whole
from anabranch.local import state_file
from anabranch.pipeline.durations import readable_ms, time_in_words
from anabranch.protocol.errors import ConfigurationError, headline

if TYPE_CHECKING:
    from anabranch.local.status import Row


_WATCH_S: Final = 1.0
_STATE_STYLES: Final = {
    "running": "green",
    "waiting": "yellow",
    "starting": "cyan",
    "restarting": "yellow",
    "silent": "red",
    "failed": "red",
    "paused": "magenta",
}


def status(
    file: File = None,
    state_dir: StateDir = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON list of objects, one per process.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh every second, until Ctrl-C.")
    ] = False,
) -> None:
    """Show each process, and each replica on a node: its state, last bucket, lag and restarts, the
    input that is missing from its results, and what it waits for.

    A `silent` process exists but does not answer: it is very busy. A `paused` process was stopped
    (`anabranch drill pause`). Exit code 1 when nothing runs.

        anabranch status --watch

        anabranch status --json | jq '.[] | select(.state == "failed") | .error'

        anabranch status --json | jq '.[].detail.stages[]? | {stage, replica, state, lag_ms, error}'
    """
    from anabranch.local.status import rows_of

    directory = state_file.directory_of(state_dir, file)
    if watch and as_json:
        raise ConfigurationError("--watch is for people, --json for programs: give one of them")
    if watch:
        _watch(directory, file)
        return
    rows = rows_of(directory)
    if as_json:
        typer.echo(json.dumps(rows or [], indent=1))
    elif rows is not None:
        print_whole(_status_table(rows))
        if reported := _slowest_hop(directory, rows):
            typer.echo(reported)
    if rows is None:
        typer.echo(state_file.nothing_runs(directory, file), err=True)
        raise typer.Exit(1)


def _watch(directory: Path, file: Path | None) -> None:
    """Show the table and refresh it in place, until Ctrl-C.

    Continues when the deployment ends: it may be started again.
    """
    from anabranch.local.status import rows_of

    with (
        stop_events() as (stopping, _),
        Live(auto_refresh=False, screen=sys.stdout.isatty()) as shown,
    ):
        while not stopping.is_set():
            rows = rows_of(directory)
            content = (
                Text(state_file.nothing_runs(directory, file))
                if rows is None
                else Group(_status_table(rows), _slowest_hop(directory, rows))
            )
            shown.update(content, refresh=True)
            stopping.wait(_WATCH_S)


def _slowest_hop(directory: Path, rows: list[Row]) -> str:
    """Return a sentence about the slowest hop of the pipeline.

    Empty: no hop has been measured yet, or the pipeline file has a mistake since it was started.
    """
    from anabranch.local.status import hops_of, slowest_in_words
    from anabranch.pipeline.file import load

    found = state_file.read(directory)
    try:
        return "" if found is None else slowest_in_words(hops_of(load(found.pipeline), rows))
    except ConfigurationError:
        return ""


def _status_table(rows: list[Row]) -> Table:
    """Return the table of processes, with a node's replicas beneath the node."""
    from anabranch.local.status import stages_of

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("service", "name", "state", "last bucket", "lag", "restarts", "pid", "port", ""):
        table.add_column(
            title,
            justify="right" if title in ("lag", "restarts", "pid", "port") else "left",
            no_wrap=title != "",
        )
    for row in rows:
        stages = stages_of(row)
        # The replicas' own rows show what they wait for: the node's row does not repeat it.
        reported = () if stages else _describe(row)
        table.add_row(*_cells(str(row["service"]), row, reported or (str(row["cut"] or ""),)))
        for stage in stages:
            shown = {
                **stage,
                "name": f"  {stage['stage']}.{stage['replica']}",
                "pid": None,
                "metrics_port": None,
            }
            table.add_row(*_cells("", shown, _describe(shown)))
    return table


def _describe(row: Row) -> tuple[str, ...]:
    """Return the texts of a row's last column: what is unusual; then the first of these that is
    known: the cut of its link, its error, what it waits for, its address.
    """
    from anabranch.local.status import detail_in_words

    waiting = f"waits for {row['waiting_for']}" if row["waiting_for"] else ""
    return detail_in_words(row), headline(
        str(row.get("cut") or row["error"] or waiting or row.get("address") or "")
    )


def _cells(service: str, row: Row, reported: tuple[str, ...]) -> tuple[str, ...]:
    """Return the cells of a table row."""
    state = str(row["state"])
    style = _STATE_STYLES.get(state, "")
    return (
        service,
        str(row["name"]),
        f"[{style}]{state}[/]" if style else escape(state),
        time_in_words(row["last_bucket_ms"]),
        _lag(row["lag_ms"]),
        str(row["restarts"]),
        _or_dash(row["pid"]),
        _or_dash(row["metrics_port"]),
        escape("; ".join(filter(None, reported))),
    )


def _lag(lag_ms: object) -> str:
    """Return a lag as text; a dash where it is not known."""
    return readable_ms(lag_ms) if isinstance(lag_ms, int) else "-"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
