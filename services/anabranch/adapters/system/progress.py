"""How far work is that somebody waits for, as a count of a number that is known.

A process that works for another one prints its steps as lines, which the other one takes out of
what it shows. It asks for them by the environment, so a person who starts the process sees none.
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
    """Is handed each step."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` things are done; ``what``: which, in the plural."""


class Step(NamedTuple):
    """A call of ``Progress``."""

    what: str
    done: int
    total: int


def unwatched(what: str, done: int, total: int) -> None:
    """Nobody waits."""


def with_lines(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is to print its steps."""
    return {**environment, _VARIABLE: "1"}


def printed() -> Progress:
    """What prints steps, where they are asked for."""
    return _print if os.environ.get(_VARIABLE) else unwatched


def _print(what: str, done: int, total: int) -> None:
    sys.stdout.write(f"{_MARK}{done} {total} {what}\n")
    sys.stdout.flush()


def step_of(line: str) -> Step | None:
    """The step that a line of such a process is; None: it is another line."""
    match = _LINE.fullmatch(line)
    return None if match is None else Step(match[3], int(match[1]), int(match[2]))
