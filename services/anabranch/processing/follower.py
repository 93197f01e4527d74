"""A thread that follows the boundary log of one input."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Final

from anabranch.protocol.control.failure_detector import Standstill
from anabranch.protocol.errors import Unavailable
from anabranch.runtime.own_threads import OWN_THREADS

if TYPE_CHECKING:
    from anabranch.ports import Condition, Thread, Threads
    from anabranch.processing.replica import ReplicaRunner
    from anabranch.runtime.boundary_reader import StreamReader

_POLL_MS: Final = 100


class InputFollower:
    """Follows one input's boundary log until closed; ``changed`` is notified at every new
    record.
    """

    def __init__(
        self,
        stream: str,
        reader: StreamReader,
        changed: Condition,
        threads: Threads = OWN_THREADS,
    ) -> None:
        """``reader``: of the log, with ``changed`` as its lock; it is closed with the thread.
        ``threads``: of the process.
        """
        self._threads = threads
        self._thread: Thread | None = None
        self._stream = stream
        self._changed = changed
        self._closing = threads.event()
        self.reader = reader
        self.runner: ReplicaRunner | None = None
        """Once there is one, it follows the log."""
        self.error: BaseException | None = None
        self._rounds = 0
        self._standstill = Standstill()

    def start(self) -> None:
        """Begin the thread. Call it once."""
        self._thread = self._threads.begin(f"follow {self._stream}", self._run)

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end, ``timeout_s`` at most."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        """Follow the log. An error is kept for ``raise_error``: the stage ends with it."""
        try:
            while not self._closing.is_set():
                self._rounds += 1
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

    def look_after(self, now_ms: int) -> None:
        """Raise in the caller what ended the thread, or that it is stuck. Call it every second:
        of a longer gap only ``OBSERVED_STEP_MS`` count.

        Raises:
            Unavailable: a call has not returned for STUCK_MS; the text says which.
        """
        self.raise_error()
        if self._standstill.is_stuck((self._rounds, self.reader.offset_next), now_ms):
            message = f"{self._stream} is not followed: {self._place()} does not return"
            raise Unavailable(message)

    def _place(self) -> str:
        ident = None if self._thread is None else self._thread.ident
        frame = sys._current_frames().get(ident or 0)  # noqa: SLF001 - there is no other way
        if frame is None:
            return "its thread"
        place = traceback.extract_stack(frame, limit=1)[0]
        return f"{place.name} in line {place.lineno} of {place.filename}"

    def close(self) -> None:
        """Let the thread end."""
        self._closing.set()
