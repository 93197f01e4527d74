"""What replicas on other owners' clusters say of themselves, heard by threads of their own: such a
cluster may be out of reach, and nobody here waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from queue import SimpleQueue
from typing import Final

from anabranch.ports import EventLog
from anabranch.protocol.control.records import ControlRecord, Speaker
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import CLUSTER_AGAIN_MS
from anabranch.runtime.heartbeats import ControlReader

_POLL_MS: Final = 500


class DistantControl:
    """Hears ``speakers`` on one cluster, whenever that answers: from then on, not from before. One
    thread uses it.
    """

    def __init__(self, log: EventLog, speakers: Mapping[str, Speaker]) -> None:
        """Nothing is contacted by the caller."""
        self._log, self._speakers = log, speakers
        self._heard: SimpleQueue[ControlRecord] = SimpleQueue()
        self._closing = threading.Event()
        self._error: BaseException | None = None
        thread = threading.Thread(target=self._run, name="hear another cluster", daemon=True)
        thread.start()

    def poll(self) -> list[ControlRecord]:
        """What was heard since the last call.

        Raises:
            What is wrong with what is read.
        """
        if self._error is not None:
            raise self._error
        return [self._heard.get() for _ in range(self._heard.qsize())]

    def close(self) -> None:
        """Idempotent. Does not wait for what is under way."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with closing(ControlReader(self._log, self._speakers)) as reader:
                    while not self._closing.is_set():
                        for entry in reader.poll(_POLL_MS):
                            self._heard.put(entry)
            except Unavailable:
                self._closing.wait(CLUSTER_AGAIN_MS / 1_000)
            except BaseException as error:  # noqa: BLE001 - handed to who polls
                self._error = error
                return


class JointControl:
    """The own control topics, and those elsewhere, as one. Not thread-safe."""

    def __init__(self, own: ControlReader, elsewhere: Sequence[DistantControl]) -> None:
        """All are closed with it."""
        self._own, self._elsewhere = own, elsewhere

    def poll(self, wait_ms: int = 0) -> list[ControlRecord]:
        """What is there; waits up to ``wait_ms`` for the first record of the own cluster."""
        found = self._own.poll(wait_ms)
        for each in self._elsewhere:
            found += each.poll()
        return found

    def close(self) -> None:
        """Idempotent."""
        self._own.close()
        for each in self._elsewhere:
            each.close()
