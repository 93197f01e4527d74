"""Says of a process that has begun an epoch that it is alive, while it does not report yet.

Until its query runs it reads logs, copies a checkpoint, looks through it and waits for the disk, all in the service's own thread. With much state
that takes longer than a silence after which a process that stands by would take over (``protocol.standby``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from anabranch.protocol.control import Heartbeat
from anabranch.runtime.heartbeats import HeartbeatSender

if TYPE_CHECKING:
    from anabranch.ports import Clock, EventLog

_PAUSE_S: Final = 0.1


class StartingBeats(threading.Thread):
    """Sends what ``beat`` gives, which is None until there is an epoch; from ``start`` until ``end``."""

    def __init__(self, log: EventLog, topic: str, clock: Clock, beat: Callable[[], Heartbeat | None]) -> None:
        super().__init__(name="starting", daemon=True)
        self._sender, self._beat, self._ending = HeartbeatSender(log, topic, clock), beat, threading.Event()

    def run(self) -> None:
        """The thread's body. What the broker does not take is not said."""
        try:
            while not self._ending.wait(_PAUSE_S):
                beat = self._beat()
                if beat is not None:
                    self._sender.send(beat)
        finally:
            self._sender.close()

    def end(self) -> None:
        """From here on the process speaks for itself: nothing of this comes after. Takes a second at most."""
        self._ending.set()
        self.join()
