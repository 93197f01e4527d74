"""Reading of a partition up to its present end, and bounded requests for that end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.ports import EventLog, LogReader, Threads, TopicPartition
from anabranch.process.threads import OWN_THREADS
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import CLUSTER_ANSWER_MS
from anabranch.protocol.log.reading_to_end import SILENT_MAX, ReadingToEnd

_POLL_MS: Final = 100


def read_to(
    end: int,
    topic: str,
    position: Callable[[], int],
    poll: Callable[[int], object],
    *,
    silent_polls_max: int = SILENT_MAX,
) -> None:
    """Call ``poll`` until ``position`` has reached ``end``.

    Args:
        end: The end offset.
        topic: Name of the topic, for the message.
        position: Function that returns the offset of the next record.
        poll: Function that reads on, waiting up to the given ms for the first record.
        silent_polls_max: Maximum number of consecutive polls without a record.

    Raises:
        Unavailable: more polls bring nothing although the end is not reached.
        Whatever ``poll`` raises.
    """
    reading = ReadingToEnd({topic: end}, lambda _: position(), silent_max=silent_polls_max)
    while not reading.is_over():
        poll(_POLL_MS)


def end_of(reader: LogReader, at: TopicPartition, wait_ms: int) -> int:
    """Return the partition's present end, waiting at most ``wait_ms``.

    Uses the request for many ends: the Kafka client's request for one partition's offsets can block
    for ever if the client has forgotten the broker when it answers (librdkafka issue 2588).

    Raises:
        Unavailable: no answer within ``wait_ms``.
    """
    try:
        return reader.ends([at], wait_ms)[at]
    except KeyError:
        raise Unavailable(f"{at.topic}: no answer about its end for {wait_ms} ms") from None


class OwnContact:
    """Probe whether this cluster answers, for a process that reads no stream on it. Thread-safe."""

    def __init__(self, log: EventLog, topic: str, threads: Threads = OWN_THREADS) -> None:
        """Keep the arguments; contact nothing. ``topic`` must exist."""
        self._log, self._at = log, TopicPartition(topic, 0)
        self._reader: LogReader | None = None
        self._lock = threads.turn()

    def answers(self) -> bool:
        """Return whether the cluster answers within CLUSTER_ANSWER_MS."""
        with self._lock:
            if self._reader is None:
                self._reader = self._log.reader(committed=False, headers=False)
            try:
                end_of(self._reader, self._at, CLUSTER_ANSWER_MS)
            except Unavailable:
                return False
            return True

    def close(self) -> None:
        """Close the reader. Idempotent."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
