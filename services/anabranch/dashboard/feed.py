"""The page between those who follow the pipeline, each in a thread of its own, and those who look.

Holds one lock around the page; nobody waits for anything while holding it.
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
"""Between two attempts to reach what does not answer."""


class Feed:
    """Thread-safe."""

    def __init__(self, page: Page, clock: Clock) -> None:
        self._page, self.clock = page, clock
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self.failure: Exception | None = None
        """What nobody thought of: the page ends by it."""

    @contextmanager
    def page(self) -> Iterator[Page]:
        """The page, for a moment."""
        with self._lock:
            yield self._page

    def whole(self) -> tuple[int, str]:
        """(number of the last message, everything as JSON)."""
        with self._lock:
            message = self._page.whole(self.clock.now_ms(), self.clock.monotonic_ms())
        return message["seq"], _text(message)

    def message(self) -> tuple[int, str]:
        """(number, what has changed since the last one as JSON)."""
        with self._lock:
            message = self._page.message(self.clock.now_ms(), self.clock.monotonic_ms())
        return message["seq"], _text(message)

    def keep(
        self, name: str, work: Callable[[], None], *, is_contact: bool = False
    ) -> threading.Thread:
        """Do ``work`` in a thread, over and over until ``stopping`` is set: after what it raises of
        the outside, too. ``is_contact``: that is shown as what keeps the page from its broker.
        Anything else is a mistake of the page, which ends with it: better than to show what is old.
        """

        def again() -> None:
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

        thread = threading.Thread(target=again, name=name, daemon=True)
        thread.start()
        return thread


def _text(message: object) -> str:
    return json.dumps(message, separators=(",", ":"), allow_nan=False)
