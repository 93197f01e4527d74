"""Reads one partition up to the end that it has now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.ports import EventLog, LogReader, Threads, TopicPartition
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import CLUSTER_ANSWER_MS
from anabranch.runtime.own_threads import OWN_THREADS

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


def end_of(reader: LogReader, at: TopicPartition, wait_ms: int) -> int:
    """Where the log ends now; for who follows it and may not wait for longer.

    It uses the call for many ends: the Kafka client's own for beginning and end of one partition
    waits for ever where the client no longer knows the broker when that answers (librdkafka issue
    2588).

    Raises:
        Unavailable: no answer within ``wait_ms``.
    """
    try:
        return reader.ends([at], wait_ms)[at]
    except KeyError:
        raise Unavailable(f"{at.topic}: no answer about its end for {wait_ms} ms") from None


class OwnContact:
    """Whether the own cluster answers, for who reads no stream on it. Thread-safe."""

    def __init__(self, log: EventLog, topic: str, threads: Threads = OWN_THREADS) -> None:
        """Nothing is contacted yet. ``topic``: one that is there."""
        self._log, self._at = log, TopicPartition(topic, 0)
        self._reader: LogReader | None = None
        self._lock = threads.turn()

    def answers(self) -> bool:
        """Whether it does within CLUSTER_ANSWER_MS."""
        with self._lock:
            if self._reader is None:
                self._reader = self._log.reader(committed=False, headers=False)
            try:
                end_of(self._reader, self._at, CLUSTER_ANSWER_MS)
            except Unavailable:
                return False
            return True

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
