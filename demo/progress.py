"""Progress display of a demo: that of a long command, with waits of its own, and with a first line
if there is no terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Self

from rich.console import Console

from anabranch.cli.work_display import WorkDisplay

_WAIT_S: Final = 120
"""Default timeout of ``until``, in seconds."""
_LOOK_S: Final = 0.1
"""Interval between checks of a condition, in seconds."""


class Shown(WorkDisplay):
    """Display, as a context manager. Without a terminal it prints what begins as a line."""

    def __init__(self, console: Console, doing: str) -> None:
        super().__init__(console, doing)
        self._first = "" if console.is_terminal else f"{doing} ..."

    def __enter__(self) -> Self:
        if self._first:
            self.print(self._first)
        return super().__enter__()

    def pause(self, doing: str, pause_s: float) -> None:
        """Wait ``pause_s`` seconds, displayed as ``doing``."""
        self.now(doing)
        begun_s = time.monotonic()
        while (passed_s := time.monotonic() - begun_s) < pause_s:
            self.count("s", int(passed_s), round(pause_s))
            time.sleep(min(_LOOK_S, pause_s - passed_s))
        self.count("s", round(pause_s), round(pause_s))

    def until(self, holds: Callable[[], bool], what: str, wait_s: float = _WAIT_S) -> None:
        """Wait until ``holds`` returns True.

        Raises:
            TimeoutError: the condition does not hold in time.
        """
        self.now(f"waiting: {what}")
        deadline_s = time.monotonic() + wait_s
        while not holds():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not seen within {wait_s:g} s: {what}")
            time.sleep(_LOOK_S)
