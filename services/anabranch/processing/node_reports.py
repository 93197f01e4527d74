"""Reports of a node's load, sent once a second from a thread of their own
(``protocol.control.scaling``).

The node's main thread waits for logs and for Spark. A node that waits so for longer than
``NODE_LOST_MS`` must not look lost: its replicas, which have threads of their own, continue. A
report is replaced by the next, so none is repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol.control.scaling import REPORT_EVERY_MS
from anabranch.streams.heartbeats import ControlWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.ports import Clock, EventLog, Thread, Threads
    from anabranch.protocol.control.records import NodeReport


class NodeReports:
    """Thread that sends what ``report`` returns, from ``start`` until ``end``. ``report`` is called
    on this thread and must not block.
    """

    def __init__(
        self,
        log: EventLog,
        topic: str,
        clock: Clock,
        report: Callable[[], NodeReport],
        threads: Threads,
    ) -> None:
        """Prepare the thread; contact nothing."""
        self._writer = ControlWriter(log, topic, clock)
        self._report = report
        self._threads, self._ending = threads, threads.event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread. Call it once."""
        self._thread = self._threads.begin("node reports", self._run)

    def _run(self) -> None:
        """Send reports until ``end``. One that the broker does not accept is lost."""
        try:
            while not self._ending.is_set():
                self._writer.offer(self._report())
                self._ending.wait(REPORT_EVERY_MS / 1_000)
        finally:
            self._writer.close()

    def end(self) -> None:
        """End the thread and wait for it, two seconds at most. Idempotent."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
