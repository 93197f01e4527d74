"""The command ``anabranch logs``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.completion import processes
from anabranch.cli.options import StateDir
from anabranch.cli.signals import stop_events
from anabranch.local import state_file


def logs(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]",
            help="SERVICE/NAME or SERVICE, as `anabranch status` shows them; none: all.",
            autocompletion=processes,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new lines as they come, until Ctrl-C.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="How many last lines of each process.")
    ] = 20,
    as_written: Annotated[
        bool,
        typer.Option("--json", help="Print the JSON lines as in the files, without names."),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="The pipeline file (default: `pipeline.yaml` here); -f follows.",
        ),
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Show the last log lines of a deployment's processes, in the order of time.

    For finding out why `anabranch status` shows a failure or restarts; also after the deployment
    has ended.

        anabranch logs

        anabranch logs -f processing         # all nodes, until Ctrl-C

        anabranch logs ingestion/readings --json -n 1000 | jq 'select(.level == "error")'

    Exit code 2 where there are no logs, or none of that name.
    """
    from anabranch.operating import log_lines

    files = log_lines.files_of(state_file.directory_of(state_dir, file), names or [])
    width = max(map(len, files))

    def show(label: str, line: str) -> None:
        typer.echo(line if as_written else f"{label:<{width}} | {log_lines.in_words(line)}")

    with stop_events() as (stopping, _):
        for label, line in log_lines.last_lines(files, lines):
            show(label, line)
        if follow:
            for label, line in log_lines.follow(files, stopping):
                show(label, line)
