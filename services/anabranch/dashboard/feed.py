"""Thread-safe access to the page, between the followers' threads and the server.

One lock guards the page. No thread waits for I/O while it holds the lock.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from anabranch.protocol.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch.dashboard.page import Page
    from anabranch.ports import Clock

AGAIN_S: Final = 2.0
"""Interval between attempts of a follower whose broker does not answer, in seconds."""


class PageFeed:
    """Page with a lock, and the threads that feed it. Thread-safe."""

    def __init__(self, page: Page, clock: Clock) -> None:
        """Guard ``page``, whose times are those of ``clock``."""
        self._page, self.clock = page, clock
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        """Set when all followers must end."""
        self.failure: Exception | None = None
        """Unexpected error of a follower, with which the page ends."""

    @contextmanager
    def page(self) -> Iterator[Page]:
        """Yield the page with the lock held."""
        with self._lock:
            yield self._page

    def whole(self) -> tuple[int, str]:
        """Return (number of the last message, the whole state as JSON)."""
        with self._lock:
            message = self._page.whole(self.clock.now_ms(), self.clock.monotonic_ms())
        return message["seq"], _text(message)

    def message(self) -> tuple[int, str]:
        """Return (number, changes since the last message as JSON)."""
        with self._lock:
            message = self._page.message(self.clock.now_ms(), self.clock.monotonic_ms())
        return message["seq"], _text(message)

    def run_in_thread(
        self, name: str, work: Callable[[], None], *, is_contact: bool = False
    ) -> threading.Thread:
        """Start a thread that repeats ``work`` until ``stopping`` is set.

        After an ``AnabranchError``, such as of a broker that does not answer, ``work`` starts again
        soon; ``is_contact`` shows the error as the state of the connection. Any other error is a
        bug, and ends the page: a page that no longer follows would show old states as current.
        """

        def repeat() -> None:
            while not self.stopping.is_set():
                try:
                    work()
                except AnabranchError as error:
                    if is_contact:
                        with self.page() as page:
                            page.show_contact(str(error))
                    self.stopping.wait(AGAIN_S)
                except Exception as error:  # noqa: BLE001 - raised by whoever waits for the end
                    self.failure = error
                    self.stopping.set()

        thread = threading.Thread(target=repeat, name=name, daemon=True)
        thread.start()
        return thread


def _text(message: object) -> str:
    """Return ``message`` as compact JSON. NaN is an error: browsers could not parse it."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False)
