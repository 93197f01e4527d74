"""The command ``anabranch doctor``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from anabranch.cli.options import KAFKA_VARIABLE, File, StateDir
from anabranch.cli.work_display import WorkDisplay
from anabranch.local import state_file


def doctor(
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR",
            envvar=KAFKA_VARIABLE,
            help="Check this broker too: version and clock (writes one record).",
        ),
    ] = None,
    file: File = None,
    state_dir: StateDir = None,
) -> None:
    """Check this machine (Java, memory, disk, ports), and say what to do about what is missing. The
    first time it downloads the embedded broker, 44 MB.

    For a new machine, or when `anabranch up` does not start.

        anabranch doctor

        anabranch doctor --kafka broker-1:9092

    Exit codes: 0 every check is good, 1 at least one is bad.
    """
    from anabranch.operating.doctor import examine

    console = Console(soft_wrap=True, highlight=False)
    is_well = True
    with WorkDisplay(console, "checking this machine") as display:
        for one in examine(kafka, state_file.directory_of(state_dir, file), display.count):
            mark = "[green]ok [/]" if one.good else "[red]bad[/]"
            console.print(f"{mark} {one.name:<13} {escape(one.found)}")
            if one.remedy:
                console.print(f"    {'':<13} {escape(one.remedy)}")
            is_well = is_well and one.good
    if not is_well:
        raise typer.Exit(1)
