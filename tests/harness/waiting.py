"""Waiting for something with a deadline: the only way a test may pass time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PAUSE = threading.Event()


def wait_until(condition: Callable[[], T], deadline_s: float, message: str, *, every_s: float = 0.02) -> T:
    """Ask ``condition`` until its answer is true, and return that answer. It is asked at least once.

    An exception of ``condition`` is not caught: what may fail in passing must be caught by the condition itself.

    Raises:
        AssertionError: no true answer within ``deadline_s`` seconds; the text holds ``message`` and the last answer.
    """
    end = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= end:
            text = f"not within {deadline_s:g} s: {message}; last answer {answer!r}"
            raise AssertionError(text)
        _PAUSE.wait(every_s)
