"""Follows the logs of keys: which keys of participants count, and who may sign whose streams.

A crash loses nothing: a new reader reads the logs again, from their beginnings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from anabranch.codec import federation_records
from anabranch.codec.signed_records import verifier
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import Chunk, EventLog, LogReader, TopicPartition
from anabranch.protocol.errors import DataMissing, RemoteProtocolError
from anabranch.protocol.federation.published_keys import PublishedKey, PublishedKeys
from anabranch.protocol.federation.stream_signers import StreamSigners
from anabranch.runtime.log_end import read_to

_FETCH_RECORDS: Final = 2_000
_SILENT_POLLS_MAX: Final = 100
UNREADABLE: Final = "not a record of this log"
"""Why a record that no rule has seen changes nothing."""


class TopicLogs:
    """Topics of one partition, all read by one reader."""

    def __init__(self, log: EventLog) -> None:
        self._reader: LogReader = log.reader(committed=False, headers=False)
        self.topics: list[str] = []

    def add(self, topics: list[str]) -> None:
        """Read these from their beginnings, too."""
        if not topics:
            return
        places = {self._at(topic): self.position(topic) for topic in self.topics}
        for topic in topics:
            start, _ = self._reader.offsets(self._at(topic))
            if start:
                raise DataMissing(
                    f"{topic}: its first {start} records are deleted, by retention or by hand; what"
                    " is due follows from all of them. Restore the topic from a copy"
                )
            places[self._at(topic)] = 0
        self._reader.assign(places)
        self.topics += topics

    def fetch(self, wait_ms: int) -> list[Chunk]:
        """What is there; waits up to ``wait_ms`` for the first, also where no log is read yet: a
        service that follows none must not ask without a pause.
        """
        return self._reader.fetch(_FETCH_RECORDS, wait_ms)

    def position(self, topic: str) -> int:
        """The next offset that is read."""
        return self._reader.position(self._at(topic))

    def read_to_end(self, poll: Callable[[int], object]) -> None:
        """``poll`` until each is read to the end that it has now."""
        ends = {topic: self._reader.offsets(self._at(topic))[1] for topic in self.topics}
        for topic, end in ends.items():
            position = _position_of(self, topic)
            read_to(end, topic, position, poll, silent_polls_max=_SILENT_POLLS_MAX)

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()

    @staticmethod
    def _at(topic: str) -> TopicPartition:
        return TopicPartition(topic, 0)


def _position_of(logs: TopicLogs, topic: str) -> Callable[[], int]:
    return lambda: logs.position(topic)


class KeyReader:
    """One reader of the logs given by ``follow``. Not thread-safe."""

    def __init__(self, log: EventLog, topics: FederationTopics) -> None:
        """Nothing is read yet."""
        self.keys = PublishedKeys()
        self.verify = verifier(self.keys)
        """Whether a key that counted at a time made a signature."""
        self.signers = StreamSigners(self.verify)
        self.ignored: Counter[str] = Counter()
        """Records that changed nothing, by the reason."""
        self._topics, self._logs = topics, TopicLogs(log)

    @property
    def topics(self) -> set[str]:
        """The logs that it follows."""
        return set(self._logs.topics)

    def follow(self, topics: Iterable[str]) -> bool:
        """Read these logs of keys, too, from their beginnings; whether one of them is new.

        Raises:
            Unavailable: no answer, or there is no such topic.
            DataMissing: a log does not begin at its beginning.
        """
        new = [topic for topic in topics if topic not in self._logs.topics]
        self._logs.add(new)
        return bool(new)

    def read_to_end(self) -> None:
        """Take all that there is by now.

        Raises:
            Unavailable: no answer, or nothing comes although there is more.
        """
        self._logs.read_to_end(self._poll)

    def close(self) -> None:
        """Idempotent."""
        self._logs.close()

    def _poll(self, wait_ms: int) -> None:
        for chunk in self._logs.fetch(wait_ms):
            _, participant = self._topics.owner_of(chunk.at.topic)
            for value, time_ms in zip(chunk.values, chunk.timestamps_ms, strict=True):
                reason = self._take(participant, value, time_ms)
                if reason:
                    self.ignored[reason] += 1

    def _take(self, participant: str, value: bytes | None, time_ms: int) -> str:
        try:
            word = federation_records.decode_key_log(value)
        except RemoteProtocolError:
            return UNREADABLE
        if isinstance(word, PublishedKey):
            return self.keys.add(participant, word, time_ms)
        return self.signers.add(participant, word.statement, word.signature, time_ms)
