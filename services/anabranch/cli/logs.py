"""``anabranch logs``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.completion import processes
from anabranch.cli.options import StateDir
from anabranch.cli.signals import stop_events
from anabranch.up import state_file


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
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="The last lines of each.")
    ] = 20,
    as_written: Annotated[
        bool, typer.Option("--json", help="Lines as they were written, without names.")
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
    """Show what the processes of a deployment have to say, also after it has ended.

    anabranch logs

    anabranch logs -f processing

    anabranch logs ingestion/readings --json -n 1000 | jq 'select(.level == "error")'
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
