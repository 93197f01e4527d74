"""Readers of control topics on other owners' clusters. Each has a thread of its own: such a cluster
may be unreachable, and no caller may wait for it.
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
from anabranch.streams.heartbeats import ControlReader

_POLL_MS: Final = 500


class DistantControl:
    """Reader of the control topics of ``speakers`` on one cluster. Reads whenever the cluster
    answers, and only records that are newer than the connection. One thread may use it.
    """

    def __init__(self, log: EventLog, speakers: Mapping[str, Speaker]) -> None:
        """Start the thread that reads; the caller contacts nothing."""
        self._log, self._speakers = log, speakers
        self._heard: SimpleQueue[ControlRecord] = SimpleQueue()
        self._closing = threading.Event()
        self._error: BaseException | None = None
        thread = threading.Thread(target=self._run, name="hear another cluster", daemon=True)
        thread.start()

    def poll(self) -> list[ControlRecord]:
        """Return the records read since the last call.

        Raises:
            The error that ended the thread, if one did.
        """
        if self._error is not None:
            raise self._error
        return [self._heard.get() for _ in range(self._heard.qsize())]

    def close(self) -> None:
        """Tell the thread to end, without waiting for it. Idempotent."""
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
    """Reader of the control topics of this cluster and of others together. Not thread-safe."""

    def __init__(self, own: ControlReader, elsewhere: Sequence[DistantControl]) -> None:
        """Take over the readers: ``close`` closes them."""
        self._own, self._elsewhere = own, elsewhere

    def poll(self, wait_ms: int = 0) -> list[ControlRecord]:
        """Return new records, waiting up to ``wait_ms`` for the first of this cluster."""
        found = self._own.poll(wait_ms)
        for each in self._elsewhere:
            found += each.poll()
        return found

    def close(self) -> None:
        """Close all readers. Idempotent."""
        self._own.close()
        for each in self._elsewhere:
            each.close()
