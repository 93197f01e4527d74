"""Progress of work that another process or a person waits for, as a count of a known total.

A process that works for another one prints its steps as marked lines, which the other process
removes from the output that it shows. It is asked to by an environment variable, so a person who
starts the process directly sees no such lines.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

_VARIABLE: Final = "ANABRANCH_PROGRESS_LINES"
_MARK: Final = "\x1fprogress "
_LINE: Final = re.compile(rf"{_MARK}([0-9]+) ([0-9]+) (.+)\n?")


class Progress(Protocol):
    """Receiver of progress steps."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` things are done. ``what``: name of the things, in the
        plural.
        """


class ProgressCall(NamedTuple):
    """Arguments of a call of ``Progress``."""

    what: str
    done: int
    total: int


def unwatched(what: str, done: int, total: int) -> None:
    """Ignore a step: nothing waits for the work."""


def with_lines(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that is to print its steps."""
    return {**environment, _VARIABLE: "1"}


def printed() -> Progress:
    """Return a receiver that prints steps if this process was asked to, otherwise ``unwatched``."""
    return _print if os.environ.get(_VARIABLE) else unwatched


def _print(what: str, done: int, total: int) -> None:
    sys.stdout.write(f"{_MARK}{done} {total} {what}\n")
    sys.stdout.flush()


def step_of(line: str) -> ProgressCall | None:
    """Return the step that a line of output states; None: it is another line."""
    match = _LINE.fullmatch(line)
    return None if match is None else ProgressCall(match[3], int(match[1]), int(match[2]))
