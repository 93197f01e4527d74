"""Reader of a federation's logs: the keys of its participants, and the contracts that this
principal may read.

Theory of operation. Each contract is a topic, and the broker lists to a principal only topics that
it has a right on. A record is judged by the keys valid at its time, so all keys published by now
are read before one is judged. The broker must set the timestamps of a contract's topic, and of a
log of keys; otherwise records could be dated at will, and the log is left out. So is one without
its first records: nothing of it counts, since the sums of the rest would be others. The texts of a
contract say which kind it is (``protocol.federation.contract_log``).

A crash loses nothing: a new reader reads the logs again, from their beginnings, and derives the
same contracts and sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from anabranch.codec import federation_records
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import Chunk, EventLog
from anabranch.protocol.errors import DataMissing, RemoteProtocolError
from anabranch.protocol.federation.contract_log import (
    STATEMENTS,
    ContractLog,
    ContractStatement,
    LoadLog,
    StreamLog,
)
from anabranch.protocol.federation.statements import Signature
from anabranch.protocol.federation.stream_contracts import StreamContract
from anabranch.streams.key_reader import UNDATED, UNREADABLE, KeyReader, TopicLogs, is_dated

AnyLog = LoadLog | StreamLog
"""Log of a contract of any kind."""


class FederationReader:
    """Reader of all logs of one federation. Not thread-safe."""

    def __init__(
        self,
        log: EventLog,
        topics: FederationTopics,
        auditor: str,
        listener: Callable[[ContractStatement], None] = lambda _: None,
    ) -> None:
        """Open the readers; read nothing. Findings of ``auditor`` count in all contracts.
        ``listener`` is called with each valid statement of a contract, in log order.
        """
        self._listener = listener
        self._key_reader = KeyReader(log, topics)
        self.keys = self._key_reader.keys
        self.signers = self._key_reader.signers
        self._logs: dict[str, ContractLog[Any, Any]] = {}
        self._undated: set[str] = set()
        """Topics of contracts of which the broker does not set the timestamps."""
        self._ignored: Counter[str] = Counter()
        self._topics, self._auditor = topics, auditor
        self.verify = self._key_reader.verify
        """Function that checks whether a key valid at a time made a signature."""
        self._admin = log.admin()
        self._contract_logs = TopicLogs(log)
        self._unjudged: list[Chunk] = []
        """Records read while the keys could not be read; the next poll judges them."""
        self._is_begun = False
        """Whether all logs were read to their ends once, so that callers rely on them."""

    @property
    def every(self) -> dict[str, AnyLog]:
        """Contracts of all kinds, by name, sorted."""
        return dict(sorted(self._logs.items()))

    @property
    def contracts(self) -> dict[str, LoadLog]:
        """Contracts for load, and those without a text, by name."""
        return {name: log for name, log in self._logs.items() if not _is_for_streams(log)}

    @property
    def streams(self) -> dict[str, StreamLog]:
        """Contracts for streams, by name."""
        return {name: log for name, log in self._logs.items() if _is_for_streams(log)}

    @property
    def left_out(self) -> dict[str, str]:
        """Topics of contracts and of keys of which nothing counts, and why: the broker does not set
        their timestamps, or their first records are gone.
        """
        undated = dict.fromkeys(self._undated, UNDATED)
        return undated | self._contract_logs.cut | self._key_reader.left_out

    @property
    def waits_for(self) -> str | None:
        """Advice about the logs that are left out, for ``status``; None if none is."""
        found = [f"topic {topic}: {why}" for topic, why in sorted(self.left_out.items())]
        return "; ".join(found) or None

    @property
    def ignored(self) -> Counter[str]:
        """Records that changed nothing, by the reason."""
        found = self._ignored + self._key_reader.ignored
        for contract in self.every.values():
            found += contract.ignored
        return found

    def look(self) -> None:
        """Find new participants and contracts, and follow their logs.

        Raises:
            Unavailable: no answer.
        """
        found: dict[str, list[str]] = {"keys": [], "contract": []}
        for topic in self._admin.named(f"{self._topics.federation}."):
            kind, _ = self._topics.owner_of(topic)
            found.get(kind, []).append(topic)
        self._key_reader.follow(found["keys"])
        known = {*self._contract_logs.topics, *self._contract_logs.cut}
        datable = [
            topic for topic in found["contract"] if topic not in known and self._is_dated(topic)
        ]
        self._contract_logs.add(datable)
        for topic in datable:
            _, name = self._topics.owner_of(topic)
            if topic not in self._contract_logs.cut:
                self._logs[name] = ContractLog(name, self.verify, self._auditor)

    def poll(self, wait_ms: int) -> int:
        """Read and apply new records, waiting up to ``wait_ms`` for the first. Return their number.

        Raises:
            Unavailable: no answer; the next call applies the records that this one has read.
            DataMissing: a log that was read from its beginning was truncated, or has a damaged
                record by now. A new process reads what there is.
        """
        self._unjudged = self._unjudged or self._contract_logs.fetch(wait_ms)
        for topic, why in self._contract_logs.cut.items():
            left_out = self._logs.pop(self._topics.owner_of(topic)[1], None)
            if left_out is not None and self._is_begun:
                # What was made of the log is in the caller's state. A new process leaves it out.
                raise DataMissing(f"topic {topic}: {why}")
        if not self._unjudged:
            return 0
        # The keys of these records may be as new, and their participants too.
        self.look()
        self._key_reader.read_to_end()
        chunks, self._unjudged = self._unjudged, []
        for chunk in chunks:
            _, name = self._topics.owner_of(chunk.at.topic)
            for value, time_ms in zip(chunk.values, chunk.timestamps_ms, strict=True):
                self._take(name, value, time_ms)
        return sum(len(chunk.offsets) for chunk in chunks)

    def read_keys(self) -> None:
        """Read all present statements about keys in the logs that it follows.

        Raises:
            Unavailable: no answer, or no record arrives although the end is not reached.
        """
        self._key_reader.read_to_end()

    def read_to_end(self) -> None:
        """Read and apply all logs up to their present ends.

        Raises:
            Unavailable: no answer, or no record arrives although the end is not reached.
            DataMissing: as ``look``.
        """
        self.look()
        self._key_reader.read_to_end()
        if self._unjudged:
            self.poll(0)
        self._contract_logs.read_to_end(self.poll)
        self._is_begun = True

    def close(self) -> None:
        """Close all readers. Idempotent."""
        self._key_reader.close()
        self._contract_logs.close()
        self._admin.close()

    def _is_dated(self, topic: str) -> bool:
        if is_dated(self._admin, topic):
            self._undated.discard(topic)
            return True
        self._undated.add(topic)
        return False

    def _take(self, name: str, value: bytes | None, time_ms: int) -> None:
        try:
            statement, signature = federation_records.decode(value)
        except RemoteProtocolError:
            self._ignored[UNREADABLE] += 1
            return
        reason = self.add(name, statement, signature, time_ms)
        if reason == UNREADABLE:
            self._ignored[UNREADABLE] += 1
        elif not reason:
            self._listener(statement)

    def find(self, name: str) -> AnyLog | None:
        """Return the contract of this name; None if this principal sees none."""
        return self._logs.get(name)

    def add(self, name: str, statement: Any, signature: Signature, appended_ms: int) -> str:
        """Apply a record of the log of contract ``name``; records must come in log order. Return
        why it changes nothing, or an empty text.
        """
        if not isinstance(statement, STATEMENTS):
            return UNREADABLE
        # A command asks before the contract has a topic.
        found = self._logs.get(name) or ContractLog[Any, Any](name, self.verify, self._auditor)
        return found.add(statement, signature, appended_ms)


def _is_for_streams(log: ContractLog[Any, Any]) -> bool:
    """Return whether the text that both have signed, or else the proposed one, is for streams."""
    return log.booked is not None and isinstance(log.booked.contract, StreamContract)
