"""Reader of a boundary log on another owner's cluster, which may be unreachable for longer than a
caller may wait.

Theory of operation. A request to such a cluster may block for long. So a thread of its own opens
the log, reads it and checks its signatures, and a caller waits only as long as it asks to. The
thread reads only on request, once per request: a caller without room for more requests nothing. An
unreachable cluster is no error, and is tried again; a faulty log is one, as on this cluster.
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
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.log_end import end_of

_POLL_MS: Final = 100
OPENING: Final = "it is being opened"


class DistantReader:
    """``StreamReader`` of a boundary log on another cluster. One thread may use it."""

    def __init__(
        self,
        log: EventLog,
        topic: str,
        writers: Iterable[str],
        open_log: Callable[[], BoundaryReader],
    ) -> None:
        """Start the thread that reads; the caller contacts nothing.

        Args:
            log: The other cluster.
            topic: The boundary log's topic.
            writers: Writers of the stream.
            open_log: Function that opens the log; called again after it has failed.
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
        """Offset to which the log was read at the last ``poll``."""
        self._trouble = ""
        """Error of the last request to the cluster; empty if it succeeded."""
        self._thread = threading.Thread(target=self._run, name=f"read {topic}", daemon=True)
        self._thread.start()

    @property
    def log_state(self) -> LogState:
        """State of the stream, as far as it was read; empty before the log is open."""
        return self._nothing if self._opened is None else self._opened.log_state

    @property
    def trouble(self) -> str:
        """Reason why no records arrive; see ``StreamReader.trouble``."""
        return self._trouble or ("" if self._opened is None else self._opened.trouble)

    @property
    def is_opening(self) -> bool:
        """Whether it is not known yet if the log can be read."""
        return self._opened is None and not self.trouble

    @property
    def refused(self) -> str:
        """Reason why what the other owner writes now does not count; see ``StreamReader``."""
        return "" if self._opened is None else self._opened.refused

    @property
    def offset_next(self) -> int:
        """Offset of the next record to read."""
        return 0 if self._opened is None else self._opened.offset_next

    @property
    def is_caught_up(self) -> bool:
        """Whether the log was read up to the end that it had when it was opened."""
        return self._opened is not None and self._opened.is_caught_up

    @property
    def counts(self) -> Counter[str]:
        """Number of records by outcome."""
        return Counter() if self._opened is None else self._opened.counts

    def poll(self, wait_ms: int) -> int:
        """Request a read, wait up to ``wait_ms`` for its end, and return by how many offsets
        reading has advanced since the last call.

        Raises:
            The error that ended the thread, as ``BoundaryReader.poll``.
        """
        self._wanted.set()
        self._came.wait(wait_ms / 1_000)
        self._came.clear()
        if self._error is not None:
            raise self._error
        before, self._polled = self._polled, self.offset_next
        return self._polled - before

    def end(self) -> int:
        """Return the log's present end offset.

        Raises:
            Unavailable: no answer within CLUSTER_ANSWER_MS, or the log is not open yet.
        """
        if self._opened is None:
            raise Unavailable(f"{self._at.topic}: {self.trouble or OPENING}")
        if self._asking is None:
            self._asking = self._log.reader(committed=False, headers=False)
        return end_of(self._asking, self._at, CLUSTER_ANSWER_MS)

    def read_to_end(self) -> None:
        """Fail: a caller of this class may not wait. It asks for the end and polls instead.

        Raises:
            Unavailable: always.
        """
        raise Unavailable(f"{self._at.topic} is on another cluster, and is not waited for")

    def close(self) -> None:
        """Tell the thread to end, without waiting for it. Idempotent."""
        self._closing.set()
        self._wanted.set()
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    def _run(self) -> None:
        """Run the thread: one read for each request, until closed or an error."""
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closing.is_set():
                break
            try:
                self._step()
            except Unavailable as error:
                self._trouble = str(error)
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
        elif self._trouble:
            self._opened.reopen()
        read = self._opened.poll(_POLL_MS)
        self._trouble = ""
        if read:
            self._came.set()
