"""Stop signals, such as Ctrl-C, as events: a command checks them, and ends at a point of its own
choice.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_events() -> Iterator[tuple[threading.Event, threading.Event]]:
    """Yield (stop, stop now): the first signal sets the first event, later ones the second.

    Restores the signal handlers at the end of the block.
    """
    stopping, stop_now = threading.Event(), threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        (stop_now if stopping.is_set() else stopping).set()

    before = {number: signal.signal(number, on_signal) for number in _STOP_SIGNALS}
    try:
        yield stopping, stop_now
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
