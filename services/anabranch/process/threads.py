"""``ports.Threads`` of this process: the operating system's, by ``threading``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final


class OwnThreads:
    """Factory of threads and locks, without state: all services of a process may share one."""

    def begin(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """See the port."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def event(self) -> threading.Event:
        """See the port."""
        return threading.Event()

    def condition(self) -> threading.Condition:
        """See the port."""
        return threading.Condition()

    def turn(self) -> threading.Lock:
        """See the port."""
        return threading.Lock()


OWN_THREADS: Final = OwnThreads()
