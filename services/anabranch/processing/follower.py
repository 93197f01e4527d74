"""Follower of one input's boundary log, in a thread of its own."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Final

from anabranch.process.threads import OWN_THREADS
from anabranch.protocol.control.failure_detector import Standstill
from anabranch.protocol.errors import Unavailable

if TYPE_CHECKING:
    from anabranch.ports import Condition, Thread, Threads
    from anabranch.processing.replica import ReplicaRunner
    from anabranch.streams.boundary_reader import StreamReader

_POLL_MS: Final = 100
"""Timeout for polling the log, in ms."""


class InputFollower:
    """Thread that follows one input's boundary log until it is closed. It notifies ``changed`` of
    new records.
    """

    def __init__(
        self,
        stream: str,
        reader: StreamReader,
        changed: Condition,
        threads: Threads = OWN_THREADS,
    ) -> None:
        """Prepare the thread. ``reader`` reads the log with ``changed`` as its lock; the thread
        closes it. ``threads`` is the source of the thread.
        """
        self._threads = threads
        self._thread: Thread | None = None
        self._stream = stream
        self._changed = changed
        self._closing = threads.event()
        self.reader = reader
        self.runner: ReplicaRunner | None = None
        """Replica that follows the log through this thread, once it has started; until then the
        thread only reads.
        """
        self.error: BaseException | None = None
        """Error that ended the thread; None if there is none."""
        self._rounds = 0
        self._standstill = Standstill()

    def start(self) -> None:
        """Start the thread. Call it once."""
        self._thread = self._threads.begin(f"follow {self._stream}", self._run)

    def is_alive(self) -> bool:
        """Return whether the follower's thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end, ``timeout_s`` at most."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        """Follow the log. An error ends the thread and is kept for ``raise_error``."""
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

    def columns(self) -> str:
        """Return the columns of the stream, empty while unknown. Call it with ``changed``
        held.

        They are those at the end that the log had when it was opened. A part of the log would give
        the columns of a version that has been replaced, and a stage that needs a new column would
        end as if its function were wrong.
        """
        return self.reader.log_state.schema() if self.reader.is_caught_up else ""

    def raise_error(self) -> None:
        """Raise the error that ended the thread, if there is one."""
        if self.error is not None:
            raise self.error

    def check(self, now_ms: int) -> None:
        """Raise the error that ended the thread, or an error if the thread is stuck. Call it every
        second: of a longer gap only ``OBSERVED_STEP_MS`` count.

        Raises:
            Unavailable: a call has not returned for STUCK_MS; the text names it.
        """
        self.raise_error()
        if self._standstill.is_stuck((self._rounds, self.reader.offset_next), now_ms):
            message = f"the log of {self._stream} is not read: {self._place()} does not return"
            raise Unavailable(message)

    def _place(self) -> str:
        """Return the place in the code at which the thread is, for the error message."""
        ident = None if self._thread is None else self._thread.ident
        frame = sys._current_frames().get(ident or 0)  # noqa: SLF001 - there is no other way
        if frame is None:
            return "its thread"
        place = traceback.extract_stack(frame, limit=1)[0]
        return f"{place.name} in line {place.lineno} of {place.filename}"

    def close(self) -> None:
        """Ask the thread to end."""
        self._closing.set()
