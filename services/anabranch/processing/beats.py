"""Says of a process that it is alive, from its epoch on, on a thread of its own.

The service's thread waits for the broker, for the disk, for Spark: while it reads logs, copies a
checkpoint and looks through it, starts a query, or asks whether a newer process has begun. With
much state, or a slow broker, that takes longer than a silence after which others would become the
primary (``protocol.stage.standby``) or go on without this process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.limits import HEARTBEAT_EVERY_MS
from anabranch.protocol.stage.standby import ENDED
from anabranch.runtime.heartbeats import HeartbeatSender
from anabranch.runtime.own_threads import OWN_THREADS

if TYPE_CHECKING:
    from anabranch.ports import Clock, EventLog, Thread, Threads

_PAUSE_S: Final = 0.1


class Beats:
    """Sends what ``beat`` gives, which is None until there is an epoch; from ``start`` until
    ``end``.

    ``beat`` is called on this thread, and must wait for nothing.
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
        """``every_ms``: between two without news. ``threads``: of the process."""
        self._sender = HeartbeatSender(log, topic, clock, every_ms=every_ms)
        self._beat = beat
        self._threads, self._ending = threads, threads.event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin the thread. Call it once."""
        self._thread = self._threads.begin("heartbeats", self._run)

    def _run(self) -> None:
        """Send heartbeats until ``end``. What the broker does not take is lost."""
        try:
            while not self._ending.wait(_PAUSE_S):
                beat = self._beat()
                if beat is not None:
                    self._sender.send(beat)
            last = self._beat()
            if last is not None:
                self._sender.say_last(replace(last, state=ENDED))
        finally:
            self._sender.close()

    def end(self) -> None:
        """Send the last heartbeat, which says that it has ended: call this when nothing runs any
        more. Idempotent; takes two seconds at most.
        """
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
