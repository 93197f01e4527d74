"""What a person sees while a command works: each line as it comes, and beneath them, on a terminal,
what goes on now and for how long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from rich.console import Console

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
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(doing)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line as it is."""
        self._console.print(text, highlight=False, markup=False)
        if text.startswith(_READY):
            self._progress.stop()
        else:
            self.now(text.partition("\n")[0])

    def now(self, doing: str) -> None:
        """Something else goes on; nothing is printed."""
        self._progress.update(self._task, description=doing)
