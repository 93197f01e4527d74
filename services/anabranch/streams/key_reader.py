"""Reader of a federation's key logs: which keys of participants are valid, and which participants
may sign whose streams.

Every signature is judged by the times of these logs. The broker must set them: a participant that
could date its own statements would revoke a key from before what it has signed, and owe nothing of
it. So a log whose topic has another setting is left out, with all that it says.

A crash loses nothing: a new reader reads the logs again, from their beginnings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Final

from anabranch.codec import federation_records
from anabranch.codec.signed_records import verifier
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import Chunk, EventLog, LogAdmin, LogReader, TopicPartition
from anabranch.protocol.errors import RecordDamaged, RemoteProtocolError
from anabranch.protocol.federation.published_keys import PublishedKey, PublishedKeys
from anabranch.protocol.federation.stream_signers import StreamSigners
from anabranch.streams.log_end import read_to

_FETCH_RECORDS: Final = 2_000
_SILENT_POLLS_MAX: Final = 100
UNREADABLE: Final = "not a record of this log"
"""Reason why a record changes nothing that does not decode or belongs to another log."""
UNDATED: Final = (
    "it lacks message.timestamp.type=LogAppendTime, so its writers could date its records at will"
)
"""Reason why a log is left out whose broker does not set the timestamps."""


def is_dated(admin: LogAdmin, topic: str) -> bool:
    """Return whether the broker sets the timestamps of ``topic``: its writers cannot choose them.

    Raises:
        Unavailable: no answer, the topic does not exist, or its settings may not be read.
    """
    return admin.settings(topic).get("message.timestamp.type") == "LogAppendTime"


class TopicLogs:
    """Reader of several topics with one partition each. A topic that has lost its first records, or
    has a damaged one, is left out, for as long as this reader lives, and holds up none of the
    others.
    """

    def __init__(self, log: EventLog, *, wants_all: bool = True) -> None:
        """Open the reader; read nothing. ``wants_all``: a topic counts only with all its records;
        otherwise with those that there are.
        """
        self._reader: LogReader = log.reader(committed=False, headers=False)
        self._wants_all = wants_all
        self._unread: set[str] = set()
        """Topics of which no record was read yet."""
        self.topics: list[str] = []
        self.cut: dict[str, str] = {}
        """Topics that are left out, and why: their first records are gone, or one is damaged."""
        self._next: dict[str, int] = {}
        """Offset of the next record to read, by topic."""

    def add(self, topics: list[str]) -> None:
        """Read ``topics`` too, from their beginnings. Those without one are added to ``cut``."""
        new = dict[str, int]()
        for topic in topics:
            start, _ = self._reader.offsets(self._at(topic))
            if start and self._wants_all:
                self.cut[topic] = _without(start)
            else:
                new[topic] = start
        if not new:
            return
        self.topics += new
        self._next |= new
        self._unread |= {*new}
        self._assign()

    def fetch(self, wait_ms: int) -> list[Chunk]:
        """Return new records, waiting up to ``wait_ms`` for the first. Also waits if there are no
        topics yet, so that a caller's loop does not spin.
        """
        try:
            chunks = self._reader.fetch(_FETCH_RECORDS, wait_ms)
        except RecordDamaged as error:
            self._leave_out({error.topic: _damaged(error.offset)})
            return []
        self._next |= {chunk.at.topic: chunk.offset_next for chunk in chunks}
        # A compacted log keeps its start offset and loses the records at it.
        cut = {
            chunk.at.topic: _without(chunk.offsets[0])
            for chunk in chunks
            if self._wants_all and chunk.at.topic in self._unread and chunk.offsets[0]
        }
        self._unread -= {chunk.at.topic for chunk in chunks}
        if not cut:
            return chunks
        self._leave_out(cut)
        return [chunk for chunk in chunks if chunk.at.topic not in cut]

    def _leave_out(self, cut: dict[str, str]) -> None:
        """Read no more of the topics ``cut``, each with the reason."""
        self.cut |= cut
        self.topics = [topic for topic in self.topics if topic not in cut]
        self._assign()

    def _assign(self) -> None:
        """Read the topics from where they are read to."""
        self._reader.assign({self._at(topic): self._next[topic] for topic in self.topics})

    def position(self, topic: str) -> int:
        """Return the offset of the next record to read."""
        return self._reader.position(self._at(topic))

    def read_to_end(self, poll: Callable[[int], object]) -> None:
        """Call ``poll`` until each topic is read to its present end."""
        ends = {topic: self._reader.offsets(self._at(topic))[1] for topic in self.topics}
        for topic, end in ends.items():
            position = _position_of(self, topic, end)
            read_to(end, topic, position, poll, silent_polls_max=_SILENT_POLLS_MAX)

    def close(self) -> None:
        """Close the reader. Idempotent."""
        self._reader.close()

    @staticmethod
    def _at(topic: str) -> TopicPartition:
        return TopicPartition(topic, 0)


def _position_of(logs: TopicLogs, topic: str, end: int) -> Callable[[], int]:
    """Return the function that returns the position in ``topic``: the end if it is left out."""
    return lambda: end if topic in logs.cut else logs.position(topic)


def _without(records: int) -> str:
    """Return why a log is left out of which the first ``records`` are gone."""
    return (
        f"its first {records} records are deleted, by retention, by compaction or by hand, and what"
        " it says follows from all of them. Restore the topic from a backup of the broker's files,"
        " and restart what reads it"
    )


def _damaged(offset: int) -> str:
    """Return why a log is left out whose record at ``offset`` is damaged."""
    return (
        f"its record at offset {offset} is damaged: its bytes do not match their checksum, and what"
        " it says follows from all records. Restore the topic from a replica or a backup of the"
        " broker's files, and restart what reads it"
    )


class KeyReader:
    """Reader of the key logs given to ``follow``. Not thread-safe."""

    def __init__(self, log: EventLog, topics: FederationTopics) -> None:
        """Open the reader; read nothing."""
        self.keys = PublishedKeys()
        self.verify = verifier(self.keys)
        """Function that checks whether a key valid at a time made a signature."""
        self.signers = StreamSigners(self.verify)
        self.ignored: Counter[str] = Counter()
        """Number of records that changed nothing, by reason."""
        self.undated: set[str] = set()
        """Topics of key logs that are left out: the broker does not set their timestamps."""
        self._forgotten: set[str] = set()
        """Topics of key logs that are left out and of which nothing counts any more."""
        self._log, self._topics, self._logs = log, topics, TopicLogs(log)

    @property
    def topics(self) -> set[str]:
        """Topics of the logs that it follows."""
        return set(self._logs.topics)

    @property
    def left_out(self) -> dict[str, str]:
        """Topics of the logs that are left out, and why."""
        return dict.fromkeys(self.undated, UNDATED) | self._logs.cut

    def follow(self, topics: Iterable[str]) -> bool:
        """Follow ``topics`` too, from their beginnings, and return whether one of them is new.
        Those that are not dated are left out (``undated``), and looked at again by the next call;
        those without their first records are left out for good (``left_out``).

        Raises:
            Unavailable: no answer, there is no such topic, or its settings may not be read.
        """
        known = {*self._logs.topics, *self._logs.cut}
        new = [topic for topic in topics if topic not in known]
        if not new:
            return False
        with closing(self._log.admin()) as admin:
            dated = [topic for topic in new if is_dated(admin, topic)]
        self.undated = (self.undated - {*dated}) | ({*new} - {*dated})
        self._logs.add(dated)
        return not self._logs.cut.keys() >= {*dated}

    def read_to_end(self) -> None:
        """Read and apply all logs up to their present ends.

        Raises:
            Unavailable: no answer, or no record arrives although the end is not reached.
        """
        self._logs.read_to_end(self._poll)

    def close(self) -> None:
        """Close the reader. Idempotent."""
        self._logs.close()

    def _poll(self, wait_ms: int) -> None:
        chunks = self._logs.fetch(wait_ms)
        for topic in self._logs.cut.keys() - self._forgotten:
            # What was read of it before the damage may be revoked by what cannot be read.
            self._forgotten.add(topic)
            _, participant = self._topics.owner_of(topic)
            self.keys.forget(participant)
            self.signers.forget(participant)
        for chunk in chunks:
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
