"""Display of a command's progress.

Lines are printed as they come. On a terminal, a line beneath them shows the current activity, its
duration, and a bar if its steps are counted.
"""

from __future__ import annotations

import os
import signal
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
from anabranch.protocol.errors import AnabranchError

_REFRESH_HZ: Final = 4
_BAR_WIDTH: Final = 24
_SPARK_GREETINGS: Final = (
    "WARNING: Using incubator modules:",
    "Setting default log level to ",
    "To adjust logging level use sc.setLogLevel",
    "Setting Spark log level to ",
)
"""Beginnings of lines that Spark's Java writes at each start, and that say nothing. They are not
shown.
"""
_READY: Final = "ready"
"""Beginning of the line that says that everything has started."""


class _CountColumn(ProgressColumn):
    """Column with a bar and its numbers; empty while nothing is counted."""

    def render(self, task: Task) -> Table:
        """Return the bar of ``task``."""
        shown = Table.grid(padding=(0, 1))
        if amount := task.fields["amount"]:
            bar = ProgressBar(total=task.total, completed=task.completed, width=_BAR_WIDTH)
            shown.add_row(bar, amount)
        return shown


class WorkDisplay:
    """Display of the current activity, as a context manager.

    A line that begins with ``ready`` hides it, and the next count shows it again; the end of the
    block hides it for good. Where the console is no terminal, only lines are printed.
    """

    def __init__(self, console: Console, doing: str) -> None:
        """Prepare the display with ``doing`` as the current activity."""
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            _CountColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            refresh_per_second=_REFRESH_HZ,
            disable=not console.is_terminal or console.quiet,
        )
        self._task = self._progress.add_task(doing, total=None, amount="")
        self._is_closed = False

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self._progress.stop()

    def print(self, text: str) -> None:
        """Print a line; the current activity remains."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line, and show it as the current activity."""
        self.print(text)
        self.now(text.partition("\n")[0])
        if text.startswith(_READY):
            self._progress.stop()

    def now(self, doing: str) -> None:
        """Change the current activity without printing a line. The count remains."""
        self._progress.update(self._task, description=doing)

    def count(self, what: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` things are done; ``what`` names them in the plural.

        The bar vanishes when all are done.
        """
        if done >= total:
            # Reset and not completed: rich stops the clock of a completed task.
            self._progress.update(self._task, completed=0, amount="")
            return
        self._progress.update(
            self._task, completed=done, total=total, amount=f"{done:,} of {total:,} {what}"
        )
        if not (self._is_closed or self._progress.live.is_started):
            self._progress.reset(self._task, completed=done)
            self._progress.start()


def run_shown(command: Sequence[str], doing: str) -> int:
    """Run ``command``, which starts Spark, show its lines, and return its exit code.

    On a terminal a display of ``doing`` is beneath the lines, with a bar for the steps that the
    process prints (``adapters.system.progress``). Elsewhere its output and its errors remain
    separate streams.

    Raises:
        AnabranchError: a signal ended the process, so it could not say why.
    """
    code = _run_shown(command, doing)
    if code < 0:
        raise AnabranchError(
            f"{doing}: the process was ended by {signal.Signals(-code).name}; after SIGKILL look at"
            " the machine's log for want of memory"
        )
    return code


def _run_shown(command: Sequence[str], doing: str) -> int:
    """Run ``command``, show its lines, and return its exit code; negative: the signal's number."""
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as running:
            for line in running.stderr or ():
                if not line.startswith(_SPARK_GREETINGS):
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
            elif not line.startswith(_SPARK_GREETINGS):
                display.print(line.rstrip("\n"))
        return running.wait()
