"""Follows a log on another owner's cluster, which may be out of reach at any time, for longer than
anybody here may wait.

Theory of operation. A request to such a cluster may take as long as its client likes. So a
thread of its own opens the log, reads it and checks its signatures, and whoever follows the stream
never waits for more than it says. The thread reads only on request, once each time: who has no room
for more sends none. What is wrong with the way there is no error, and is tried again; what is wrong
with the log is one, as on the own cluster.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from anabranch.ports import EventLog, LogReader, TopicPartition
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import CLUSTER_AGAIN_MS, CLUSTER_ANSWER_MS
from anabranch.protocol.log.boundary_log import LogState
from anabranch.runtime.boundary_reader import BoundaryReader
from anabranch.runtime.log_end import end_of

_POLL_MS: Final = 100
OPENING: Final = "it is being opened"


class DistantReader:
    """One reader of one stream's boundary log elsewhere: a ``StreamReader``. One thread uses it."""

    def __init__(
        self,
        log: EventLog,
        topic: str,
        writers: Iterable[str],
        open_log: Callable[[], BoundaryReader],
    ) -> None:
        """Nothing is contacted yet.

        Args:
            log: The cluster.
            topic: The boundary log.
            writers: Of the stream.
            open_log: Opens it; may be called again after it has failed.
        """
        self._log, self._at = log, TopicPartition(topic, 0)
        self._open_log = open_log
        self._nothing = LogState(writers)
        self._opened: BoundaryReader | None = None
        self._asking: LogReader | None = None
        self._wanted = threading.Event()
        self._came = threading.Event()
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._polled = 0
        """Where the log was read to when ``poll`` was called last."""
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, name=f"read {topic}", daemon=True)
        self._thread.start()

    @property
    def log_state(self) -> LogState:
        """The stream, as far as it was read; an empty one before the log was opened."""
        return self._nothing if self._opened is None else self._opened.log_state

    @property
    def is_opening(self) -> bool:
        """Whether nobody knows yet if it can be read."""
        return self._opened is None and not self.trouble

    @property
    def offset_next(self) -> int:
        """Where reading goes on."""
        return 0 if self._opened is None else self._opened.offset_next

    @property
    def counts(self) -> Counter[str]:
        """Records by what became of them."""
        return Counter() if self._opened is None else self._opened.counts

    def poll(self, wait_ms: int) -> int:
        """Have the log read on; waits up to ``wait_ms`` for it. Returns by how much it was since
        the last call.

        Raises:
            What is wrong with the log, as ``BoundaryReader.poll``.
        """
        self._wanted.set()
        self._came.wait(wait_ms / 1_000)
        self._came.clear()
        if self._error is not None:
            raise self._error
        before, self._polled = self._polled, self.offset_next
        return self._polled - before

    def end(self) -> int:
        """Where the log ends now.

        Raises:
            Unavailable: no answer within CLUSTER_ANSWER_MS, or nobody has opened the log yet.
        """
        if self._opened is None:
            raise Unavailable(f"{self._at.topic}: {self.trouble or OPENING}")
        if self._asking is None:
            self._asking = self._log.reader(committed=False, headers=False)
        return end_of(self._asking, self._at, CLUSTER_ANSWER_MS)

    def read_to_end(self) -> None:
        """Never: whoever may not wait asks for the end, and polls.

        Raises:
            Unavailable: always.
        """
        raise Unavailable(f"{self._at.topic} is on another cluster, and is not waited for")

    def close(self) -> None:
        """Idempotent. Does not wait for what is under way."""
        self._closing.set()
        self._wanted.set()
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    def _run(self) -> None:
        """The body of the thread that reads."""
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closing.is_set():
                break
            try:
                self._step()
            except Unavailable as error:
                self.trouble = str(error)
                self._closing.wait(CLUSTER_AGAIN_MS / 1_000)
            except BaseException as error:  # noqa: BLE001 - handed to who polls
                self._error = error
                self._came.set()
                break
        if self._opened is not None:
            self._opened.close()

    def _step(self) -> None:
        if self._opened is None:
            self._opened = self._open_log()
        elif self.trouble:
            self._opened.reopen()
        read = self._opened.poll(_POLL_MS)
        self.trouble = ""
        if read:
            self._came.set()
