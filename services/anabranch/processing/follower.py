"""A thread that follows the boundary log of one input."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.processing.replica import ReplicaRunner
    from anabranch.runtime.boundary_reader import StreamReader

_POLL_MS: Final = 100


class InputFollower(threading.Thread):
    """Follows one input's boundary log until closed; ``changed`` is notified at every new
    record.
    """

    def __init__(self, stream: str, reader: StreamReader, changed: threading.Condition) -> None:
        """``reader``: of the log, with ``changed`` as its lock; it is closed with the thread."""
        super().__init__(name=f"follow {stream}", daemon=True)
        self._stream = stream
        self._changed = changed
        self._closing = threading.Event()
        self.reader = reader
        self.runner: ReplicaRunner | None = None
        """Once there is one, it follows the log."""
        self.error: BaseException | None = None

    def run(self) -> None:
        """The thread's body. An error is kept for ``raise_error``: the stage ends with it."""
        try:
            while not self._closing.is_set():
                if self.runner is not None:
                    self.runner.follow(self._stream, _POLL_MS)
                elif self.reader.poll(_POLL_MS):
                    with self._changed:
                        self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self.error = error
        finally:
            self.reader.close()

    def raise_error(self) -> None:
        """Raise in the caller what ended the thread."""
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Let the thread end."""
        self._closing.set()
