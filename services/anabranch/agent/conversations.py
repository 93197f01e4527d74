"""Exchange of signed messages between the parties of contracts, over the topics of offers.

Theory of operation. A message is only valid when it arrives: a process reads those that come after
its start, and a lost one is not sent again. A message counts only with its sender's signature by a
currently valid key, since whoever may write to a topic can write anything into it. The rules decide
about repeated offers and answers (``protocol.federation.offers``).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from anabranch.adapters.signing import SigningKey
from anabranch.codec import federation_records
from anabranch.codec.federation_records import Signed
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import Clock, EventLog, LogWriter, TopicPartition
from anabranch.protocol.errors import (
    DataMissing,
    OutcomeUnknown,
    RemoteProtocolError,
    Unavailable,
)
from anabranch.protocol.federation.contract_log import VerifyAt
from anabranch.protocol.federation.offers import OfferAnswer, ReturnRequest, TaskOffer
from anabranch.protocol.federation.statements import is_signed

_FETCH_RECORDS: Final = 500
"""Maximum number of messages per fetch."""


class Conversations:
    """Messages of one participant under all of its contracts. Not thread-safe. After a crash a new
    process reads the messages that come after its start.
    """

    def __init__(
        self,
        log: EventLog,
        topics: FederationTopics,
        key: SigningKey,
        verify: VerifyAt,
        clock: Clock,
    ) -> None:
        self._log = log
        self._topics = topics
        self._key = key
        self._verify = verify
        self._clock = clock
        self._reader = log.reader(committed=False, headers=False, follows=True)
        self._next: dict[TopicPartition, int] = {}
        self._writer: LogWriter | None = None
        self.ignored: Counter[str] = Counter()
        """Number of ignored messages, by reason."""

    def follow(self, contract_id: str) -> None:
        """Read the messages under a contract that come from now on. Idempotent.

        Raises:
            Unavailable: there is no such topic, or the broker does not answer.
        """
        at = TopicPartition(self._topics.offers(contract_id), 0)
        if at not in self._next:
            self._next[at] = self._reader.offsets(at)[1]
            self._reader.assign(self._next)

    def poll(self, wait_ms: int) -> list[Signed]:
        """Return messages of the other parties. Waits up to ``wait_ms`` for the first."""
        if not self._next:
            self._clock.sleep_ms(wait_ms)
            return []
        try:
            chunks = self._reader.fetch(_FETCH_RECORDS, wait_ms)
        except DataMissing:
            # This process was stopped for longer than the topic retains messages, which have all
            # expired by now: continue at the end.
            self._next = {at: self._reader.offsets(at)[1] for at in self._next}
            self._reader.assign(self._next)
            return []
        found = []
        for chunk in chunks:
            self._next[chunk.at] = chunk.offset_next
            _, contract_id = self._topics.owner_of(chunk.at.topic)
            for value in chunk.values:
                signed = self._verified(value, contract_id)
                if signed is not None:
                    found.append(signed)
        return found

    def _verified(self, value: bytes | None, contract_id: str) -> Signed | None:
        """Decode a message and verify its signature. Return None and count the reason if it is
        ignored.
        """
        try:
            signed = federation_records.decode(value)
        except RemoteProtocolError:
            self.ignored["unreadable"] += 1
            return None
        statement = signed.statement
        if not isinstance(statement, (TaskOffer, OfferAnswer, ReturnRequest)):
            self.ignored["not of this topic"] += 1
            return None
        speaker = statement.buyer if isinstance(statement, TaskOffer) else statement.seller
        if speaker == self._key.participant:
            return None
        if statement.contract_id != contract_id:
            self.ignored["of another contract"] += 1
            return None
        now_ms = self._clock.now_ms()
        if not is_signed(
            statement,
            speaker,
            signed.signature,
            lambda signature, message: self._verify(signature, message, now_ms),
        ):
            self.ignored["not signed by who speaks"] += 1
            return None
        return signed

    def send(self, statement: TaskOffer | OfferAnswer | ReturnRequest) -> None:
        """Send a message once, signed. It may be lost."""
        at = TopicPartition(self._topics.offers(statement.contract_id), 0)
        try:
            if self._writer is None:
                self._writer = self._log.writer()
            self._writer.send(at, federation_records.encode(statement, self._key.sign(statement)))
            self._writer.flush()
        except (OutcomeUnknown, Unavailable):
            self._drop_writer()

    def close(self) -> None:
        """Close the topics. Idempotent."""
        self._drop_writer()
        self._reader.close()

    def _drop_writer(self) -> None:
        """Close the writer; the next message opens another."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()
