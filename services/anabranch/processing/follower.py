"""A thread that follows the boundary log of one input."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from anabranch.runtime.boundary_reader import BoundaryReader

if TYPE_CHECKING:
    from anabranch.codec.signed_records import Verify
    from anabranch.ports import EventLog
    from anabranch.processing.replica import ReplicaRunner

_POLL_MS: Final = 100


class InputFollower(threading.Thread):
    """Follows one input's boundary log until closed; ``changed`` is notified at every new
    record.
    """

    def __init__(
        self,
        log: EventLog,
        stream: str,
        topic: str,
        writers: list[str],
        changed: threading.Condition,
        bucket_ms: int = 0,
        *,
        is_bound: bool = False,
        verify: Verify | None = None,
    ) -> None:
        """``is_bound``: the stream is another pipeline's. ``verify``: its owner's signatures."""
        super().__init__(name=f"follow {topic}", daemon=True)
        self._stream, self._changed, self._closing = stream, changed, threading.Event()
        self.reader = BoundaryReader(
            log,
            topic,
            writers,
            lock=changed,
            bucket_ms=bucket_ms,
            known_as=stream if is_bound else "",
            verify=verify,
        )
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
