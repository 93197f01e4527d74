"""What a person sees while a command works: each line as it comes, and beneath them, on a terminal,
what goes on now, for how long, and how much of it is done, where that is counted.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Final, Self

import typer
from rich.console import Console
from rich.progress import (
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress_bar import ProgressBar
from rich.table import Table

from anabranch.adapters.system.progress import step_of, with_lines

_REFRESH_HZ: Final = 4
_BAR_WIDTH: Final = 24
_SPARK_GREETS: Final = (
    "WARNING: Using incubator modules:",
    "Setting default log level to ",
    "To adjust logging level use sc.setLogLevel",
    "Setting Spark log level to ",
)
"""How lines begin that Spark's Java writes at each start, whatever follows: they are left out."""
_READY: Final = "ready"
"""A line that begins so says that all has started."""


class _Counted(ProgressColumn):
    """A bar and the numbers that it shows; empty where nothing is counted."""

    def render(self, task: Task) -> Table:
        shown = Table.grid(padding=(0, 1))
        if amount := task.fields["amount"]:
            bar = ProgressBar(total=task.total, completed=task.completed, width=_BAR_WIDTH)
            shown.add_row(bar, amount)
        return shown


class WorkDisplay:
    """Use it as a context manager. The display goes away with a line that says ``ready``, and with
    the end of the block; a count brings it back. Elsewhere than on a terminal there are the lines
    and nothing else.
    """

    def __init__(self, console: Console, doing: str) -> None:
        """``doing``: what goes on at first."""
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            _Counted(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            refresh_per_second=_REFRESH_HZ,
            disable=not console.is_terminal or console.quiet,
        )
        self._task = self._progress.add_task(doing, total=None, amount="")
        self._is_over = False

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._progress.stop()

    def print(self, text: str) -> None:
        """Print a line as it is; what goes on stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line as it is: that goes on now."""
        self.print(text)
        self.now(text.partition("\n")[0])
        if text.startswith(_READY):
            self._progress.stop()

    def now(self, doing: str) -> None:
        """Something else goes on; nothing is printed. What is counted still is."""
        self._progress.update(self._task, description=doing)

    def count(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` are done, e.g. of ``topics``: a bar shows it until all are."""
        if done >= total:
            # Not at its end, where rich would stop the clock.
            self._progress.update(self._task, completed=0, amount="")
            return
        self._progress.update(
            self._task, completed=done, total=total, amount=f"{done:,} of {total:,} {what}"
        )
        if not (self._is_over or self._progress.live.is_started):
            self._progress.reset(self._task, completed=done)
            self._progress.start()


def run_shown(command: Sequence[str], doing: str) -> int:
    """Run ``command``, which starts Spark; its exit code. On a terminal its lines come through
    here, above what goes on: ``doing``, as far as it says that it is
    (``adapters.system.progress``). Elsewhere its streams stay apart.
    """
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as running:
            for line in running.stderr or ():
                if not line.startswith(_SPARK_GREETS):
                    typer.echo(line, nl=False, err=True)
            return running.wait()
    with (
        WorkDisplay(console, doing) as display,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=with_lines(os.environ),
            text=True,
            errors="replace",
        ) as running,
    ):
        for line in running.stdout or ():
            step = step_of(line)
            if step is not None:
                display.count(*step)
            elif not line.startswith(_SPARK_GREETS):
                display.print(line.rstrip("\n"))
        return running.wait()
