"""What a demo is at: its lines as they come, and beneath them, on a terminal, what goes on now and
for how long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_WAIT_S: Final = 120


class Shown:
    """Use it as a context manager. Where there is no terminal, what goes on at first is a line."""

    def __init__(self, console: Console, doing: str) -> None:
        self._console, self._first = console, doing
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            refresh_per_second=4,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(doing)

    def __enter__(self) -> Self:
        if not self._console.is_terminal:
            self.say(f"{self._first} ...")
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """A line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def now(self, doing: str) -> None:
        """Something else goes on."""
        self._progress.update(self._task, description=doing)

    def until(self, holds: Callable[[], bool], what: str, wait_s: float = _WAIT_S) -> None:
        """Wait for a condition.

        Raises:
            TimeoutError: it does not come about.
        """
        self.now(f"waiting: {what}")
        deadline_s = time.monotonic() + wait_s
        while not holds():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not seen within {wait_s:g} s: {what}")
            time.sleep(0.1)
