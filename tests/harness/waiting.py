"""Waiting for something with a deadline: the only way a test may pass time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_PAUSE = threading.Event()
_STATISTICS = Path("/proc/stat")
_STOLEN_FIELD = 8
_RUNNABLE_PER_PROCESSOR_MAX = 3
_BESIDE = "ANABRANCH_TEST_BESIDE"
"""Variable with the process and the number of tests of the suite that ``make test`` runs beside
this one, at a lower priority.
"""
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.02, 0.05
_PAUSES = 20
"""A pause is at most this part of the wait so far, if it is longer than the shortest."""
_TIMES_MAX = 5
"""However little of the time the machine was given, a wait takes at most so many deadlines,
unless its caller says less.
"""


def given_s() -> float:
    """Return a clock that stops while this machine does: a virtual one may get a twentieth of its
    processors for minutes.
    """
    return time.monotonic() - stolen_s()


def stolen_s() -> float:
    """Return the seconds that the host gave to others instead, as far as the system reports
    them.
    """
    try:
        fields = _STATISTICS.read_text().partition("\n")[0].split()
    except OSError:
        return 0.0
    return (
        int(fields[_STOLEN_FIELD]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
        if len(fields) > _STOLEN_FIELD
        else 0.0
    )


def is_busy() -> bool:
    """Whether in the last minute more ran here than one test with its broker and Spark: what
    depends on the time that it was given cannot be judged. What lets this suite go first does not
    count.
    """
    others = os.getloadavg()[0] - _letting_us_go_first()
    return others > _RUNNABLE_PER_PROCESSOR_MAX * (os.cpu_count() or 1)


def _letting_us_go_first() -> int:
    process, _, jobs = os.environ.get(_BESIDE, "").partition(" ")
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return 0
    return int(jobs)


def wait_until(
    condition: Callable[[], T],
    deadline_s: float,
    message: str | Callable[[], str],
    *,
    every_s: float | None = None,
    stretch: float = _TIMES_MAX,
) -> T:
    """Ask ``condition`` until its answer is true, and return that answer. It is asked at least
    once.

    ``every_s``: pause between two questions; None: one that is longer the longer the wait lasts. A
    question may cost a request to a service, so the answer would come later from asking often.

    An exception of ``condition`` is not caught: what may fail in passing must be caught by the
    condition itself.

    However much of the time was stolen, it takes at most ``stretch`` deadlines.

    ``message`` is asked for when the wait has failed: what a log says before shows only the start.

    Raises:
        AssertionError: no true answer within ``deadline_s`` seconds that the machine was given; the
            text holds ``message`` and the last answer.
    """
    begun = time.monotonic()
    end, end_at_last = given_s() + deadline_s, begun + stretch * deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        if given_s() >= end or time.monotonic() >= end_at_last:
            text = message if isinstance(message, str) else message()
            raise AssertionError(f"not within {deadline_s:g} s: {text}; last answer {answer!r}")
        waited_s = time.monotonic() - begun
        _PAUSE.wait(
            min(_PAUSE_MAX_S, max(_PAUSE_MIN_S, waited_s / _PAUSES)) if every_s is None else every_s
        )
