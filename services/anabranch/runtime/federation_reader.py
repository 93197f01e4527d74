"""Follows the logs of a federation: the keys of its participants, and the contracts that this
principal may read.

Theory of operation. Which contracts there are is what topics there are: the broker shows a
principal those that it has a right on, and no others. A record is judged by the keys that counted
at its time, so before one is judged all keys are read that are published by now. Whoever makes a
contract's topic must have the broker set the times; where that is not so, its records could be
dated at will, and the contract is left out.

A crash loses nothing: a new reader reads the logs again, from their beginnings, and comes to the
same contracts and sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from anabranch.codec import federation_records
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import Chunk, EventLog, LogReader, TopicPartition
from anabranch.protocol.errors import DataMissing, RemoteProtocolError
from anabranch.protocol.federation.contract_log import (
    STATEMENTS,
    ContractLog,
    ContractStatement,
    VerifyAt,
)
from anabranch.protocol.federation.published_keys import PublishedKeys
from anabranch.runtime.log_end import read_to

_FETCH_RECORDS: Final = 2_000
_SILENT_POLLS_MAX: Final = 100
_UNREADABLE: Final = "not a record of this log"


class _Logs:
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
        """What is there."""
        return self._reader.fetch(_FETCH_RECORDS, wait_ms) if self.topics else []

    def position(self, topic: str) -> int:
        """The next offset that is read."""
        return self._reader.position(self._at(topic))

    def read_to_end(self, poll: Callable[[int], object]) -> None:
        """``poll`` until each is read to an end that is asked for now."""
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


def _position_of(logs: _Logs, topic: str) -> Callable[[], int]:
    return lambda: logs.position(topic)


class FederationReader:
    """One reader of all logs. Not thread-safe."""

    def __init__(
        self,
        log: EventLog,
        topics: FederationTopics,
        auditor: str,
        verifier: Callable[[PublishedKeys], VerifyAt],
        listener: Callable[[ContractStatement], None] = lambda _: None,
    ) -> None:
        """Nothing is read yet. ``auditor``: whose findings count, in all contracts. ``listener``:
        told of each statement that counts, in the order of its log.
        """
        self._listener = listener
        self.keys = PublishedKeys()
        self.contracts: dict[str, ContractLog] = {}
        self.undatable: set[str] = set()
        """Topics of contracts whose times the broker does not set."""
        self._ignored: Counter[str] = Counter()
        self._topics, self._auditor = topics, auditor
        self.verify = verifier(self.keys)
        """Whether a key that counted at a time made a signature."""
        self._admin = log.admin()
        self._key_logs, self._contract_logs = _Logs(log), _Logs(log)

    @property
    def ignored(self) -> Counter[str]:
        """Records that changed nothing, by the reason."""
        return sum((each.ignored for each in self.contracts.values()), Counter(self._ignored))

    def look(self) -> None:
        """Look for participants and contracts that are new.

        Raises:
            Unavailable: no answer.
            DataMissing: a log does not begin at its beginning.
        """
        found: dict[str, list[str]] = {"keys": [], "contract": []}
        for topic in self._admin.named(f"{self._topics.federation}."):
            kind, _ = self._topics.owner_of(topic)
            found.get(kind, []).append(topic)
        self._key_logs.add(_new(found["keys"], self._key_logs))
        datable = [
            topic for topic in _new(found["contract"], self._contract_logs) if self._is_dated(topic)
        ]
        self._contract_logs.add(datable)
        for topic in datable:
            _, name = self._topics.owner_of(topic)
            self.contracts[name] = ContractLog(name, self.verify, self._auditor)

    def poll(self, wait_ms: int) -> int:
        """Take what is there; the number of records. Waits up to ``wait_ms`` for the first.

        Raises:
            Unavailable: no answer.
            DataMissing: a log was cut.
        """
        chunks = self._contract_logs.fetch(wait_ms)
        if not chunks:
            return 0
        # The key of what was just read may be as new, and its participant, too.
        self.look()
        self._key_logs.read_to_end(self._poll_keys)
        for chunk in chunks:
            contract = self.contracts[self._topics.owner_of(chunk.at.topic)[1]]
            for value, time_ms in zip(chunk.values, chunk.timestamps_ms, strict=True):
                self._take(contract, value, time_ms)
        return sum(len(chunk.offsets) for chunk in chunks)

    def read_to_end(self) -> None:
        """Take all that there is by now.

        Raises:
            Unavailable: no answer, or nothing comes although there is more.
            DataMissing: as ``look``.
        """
        self.look()
        self._key_logs.read_to_end(self._poll_keys)
        self._contract_logs.read_to_end(self.poll)

    def close(self) -> None:
        """Idempotent."""
        self._key_logs.close()
        self._contract_logs.close()
        self._admin.close()

    def _is_dated(self, topic: str) -> bool:
        if self._admin.settings(topic).get("message.timestamp.type") == "LogAppendTime":
            self.undatable.discard(topic)
            return True
        self.undatable.add(topic)
        return False

    def _poll_keys(self, wait_ms: int) -> None:
        for chunk in self._key_logs.fetch(wait_ms):
            _, participant = self._topics.owner_of(chunk.at.topic)
            for value, time_ms in zip(chunk.values, chunk.timestamps_ms, strict=True):
                try:
                    word = federation_records.decode_key(value)
                except RemoteProtocolError:
                    self._ignored[_UNREADABLE] += 1
                    continue
                reason = self.keys.add(participant, word, time_ms)
                if reason:
                    self._ignored[reason] += 1

    def _take(self, contract: ContractLog, value: bytes | None, time_ms: int) -> None:
        try:
            statement, signature = federation_records.decode(value)
        except RemoteProtocolError:
            self._ignored[_UNREADABLE] += 1
            return
        if isinstance(statement, STATEMENTS):
            if not contract.add(statement, signature, time_ms):
                self._listener(statement)
        else:
            self._ignored[_UNREADABLE] += 1


def _new(topics: list[str], known: _Logs) -> list[str]:
    return [topic for topic in topics if topic not in known.topics]
