"""Reads one partition up to an end that was asked for: all that stood there then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from anabranch.ports import EventLog, LogReader, TopicPartition
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import CLUSTER_ANSWER_MS

_POLL_MS: Final = 100


def read_to(
    end: int,
    topic: str,
    position: Callable[[], int],
    poll: Callable[[int], object],
    *,
    silent_polls_max: int,
) -> None:
    """Poll until ``position`` has come to ``end``.

    Args:
        end: The end offset.
        topic: For the message.
        position: The next offset that is read.
        poll: Reads on; waits up to so many ms for the first record.
        silent_polls_max: So many polls in a row may bring nothing.

    Raises:
        Unavailable: more than that bring nothing although there is more.
        Whatever ``poll`` raises.
    """
    silent = 0
    while (before := position()) < end:
        poll(_POLL_MS)
        silent = silent + 1 if position() == before else 0
        if silent > silent_polls_max:
            raise Unavailable(
                f"{topic}: nothing came after offset {before}, but it goes on to {end}"
            )


class OwnContact:
    """Whether the own cluster answers, for who reads no stream on it. Thread-safe."""

    def __init__(self, log: EventLog, topic: str) -> None:
        """Nothing is contacted yet. ``topic``: one that is there."""
        self._log, self._at = log, TopicPartition(topic, 0)
        self._reader: LogReader | None = None
        self._lock = threading.Lock()

    def answers(self) -> bool:
        """Whether it does within CLUSTER_ANSWER_MS."""
        with self._lock:
            if self._reader is None:
                self._reader = self._log.reader(committed=False, headers=False)
            try:
                self._reader.offsets(self._at, CLUSTER_ANSWER_MS)
            except Unavailable:
                return False
            return True

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
