"""Heartbeats of a replica, sent from its own thread once its epoch has begun.

The replica's main thread waits for the broker, for the disk and for Spark: while it reads logs,
copies a checkpoint and scans it, starts a query, or checks for a newer process. With much state, or
a slow broker, such a wait is longer than the silence after which other processes become the primary
(``protocol.stage.standby``) or continue without this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from anabranch.process.threads import OWN_THREADS
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.limits import HEARTBEAT_EVERY_MS
from anabranch.protocol.stage.standby import ENDED
from anabranch.streams.heartbeats import HeartbeatSender

if TYPE_CHECKING:
    from anabranch.ports import Clock, EventLog, Thread, Threads

_PAUSE_S: Final = 0.1
"""Interval at which the heartbeat's content is checked for news, in seconds."""


class ReplicaHeartbeats:
    """Thread that sends the heartbeats which ``beat`` returns, from ``start`` until ``end``. None
    is sent while ``beat`` returns None, before the epoch.

    ``beat`` is called on this thread and must not block.
    """

    def __init__(
        self,
        log: EventLog,
        topic: str,
        clock: Clock,
        beat: Callable[[], Heartbeat | None],
        *,
        every_ms: int = HEARTBEAT_EVERY_MS,
        threads: Threads = OWN_THREADS,
    ) -> None:
        """Prepare the thread. ``every_ms``: interval between heartbeats without news. ``threads``:
        source of the thread.
        """
        self._sender = HeartbeatSender(log, topic, clock, every_ms=every_ms)
        self._beat = beat
        self._threads, self._ending = threads, threads.event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread. Call it once."""
        self._thread = self._threads.begin("heartbeats", self._run)

    def _run(self) -> None:
        """Send heartbeats until ``end``. One that the broker does not accept is lost."""
        try:
            while not self._ending.wait(_PAUSE_S):
                beat = self._beat()
                if beat is not None:
                    self._sender.send(beat)
            last = self._beat()
            if last is not None:
                self._sender.send_now(replace(last, state=ENDED))
        finally:
            self._sender.close()

    def end(self) -> None:
        """Send the last heartbeat, with the state ENDED, and wait for the thread, two seconds at
        most. Call it when no query of the replica runs any more. Idempotent.
        """
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
