"""The command ``anabranch restart``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from anabranch.cli.completion import processes
from anabranch.cli.options import File, StateDir
from anabranch.cli.work_display import WorkDisplay
from anabranch.local import state_file


def restart(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="SERVICE/NAME...",
            help="As `anabranch status` shows them.",
            autocompletion=processes,
        ),
    ],
    file: File = None,
    state_dir: StateDir = None,
) -> None:
    """Restart processes of a running deployment, one after the other: each when the one before is
    ready again.

    For a new version of a stage's function: a node loads the code as it is now. A change of the
    pipeline file needs `anabranch down` and `up`.

        anabranch restart processing/local.0

        anabranch restart ingestion/readings delivery/hottest
    """
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.local.drills import Drill
    from anabranch.operating.restart import restart as run

    directory = state_file.directory_of(state_dir, file)
    Drill(directory).check(names)
    with WorkDisplay(Console(soft_wrap=True), "restarting") as display:
        for number, name in enumerate(names):
            display.say(f"restarting {name}")
            display.count("processes", number, len(names))
            display.say(f"{name} is running (pid {run(directory, name, SystemClock())})")
