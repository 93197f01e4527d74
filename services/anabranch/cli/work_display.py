"""What a person sees while a command works: each line as it comes, and beneath them, on a terminal,
what goes on now and for how long.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final, Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_REFRESH_HZ: Final = 4
_READY: Final = "ready"
"""A line that begins so says that all has started."""


class WorkDisplay:
    """Use it as a context manager. The display goes away with a line that says ``ready``, and with
    the end of the block. Elsewhere than on a terminal there are the lines and nothing else.
    """

    def __init__(self, console: Console, doing: str) -> None:
        """``doing``: what goes on at first."""
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            refresh_per_second=_REFRESH_HZ,
            disable=not console.is_terminal or console.quiet,
        )
        self._task = self._progress.add_task(doing)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def print(self, text: str) -> None:
        """Print a line as it is; what goes on stays."""
        self._console.print(text, highlight=False, markup=False)

    def say(self, text: str) -> None:
        """Print a line as it is: that goes on now."""
        self.print(text)
        if text.startswith(_READY):
            self._progress.stop()
        else:
            self.now(text.partition("\n")[0])

    def now(self, doing: str) -> None:
        """Something else goes on; nothing is printed."""
        self._progress.update(self._task, description=doing)


def run_shown(command: Sequence[str], doing: str) -> int:
    """Run ``command``; its exit code. On a terminal its lines come through here, above what goes
    on: ``doing``.
    """
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        return subprocess.run(command, check=False).returncode
    with (
        WorkDisplay(console, doing) as display,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as running,
    ):
        for line in running.stdout or ():
            display.print(line.rstrip("\n"))
        return running.wait()
