"""Work that is repeated beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(work: Callable[[], None], every_s: float) -> Iterator[None]:
    """Do ``work`` again and again on a thread while the block lasts, ``every_s`` after the last
    time.
    """
    ending = threading.Event()

    def run() -> None:
        while not ending.wait(every_s):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
