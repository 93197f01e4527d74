"""What a participant says by command: its keys, and what it signs.

Each command is tried on a copy of the book first, so that what would not count is not written, and
read back after it is written. After a crash, or an outcome that is not known, it may be given
again: what has counted counts once.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from anabranch.adapters.signing import SigningKey
from anabranch.codec import federation_records
from anabranch.codec.catalog import BROKERS_OWN, topic_settings
from anabranch.operating.contract_book import read_book
from anabranch.pipeline.model import Federation
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import Clock, EventLog, TopicPartition
from anabranch.protocol.errors import ConfigurationError, OutcomeUnknown, Unavailable
from anabranch.protocol.federation.content_contracts import ContentContract, SuggestedContract
from anabranch.protocol.federation.content_log import ContentLog
from anabranch.protocol.federation.contract_book import Change, ContractChange, ContractState
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.oracle import tasks_of
from anabranch.protocol.federation.plan_contracts import MovementContract
from anabranch.protocol.federation.plan_ledger import PlanLog
from anabranch.protocol.federation.plan_switching import PlanWord, Word
from anabranch.protocol.federation.published_keys import PublishedKey
from anabranch.protocol.federation.stream_signers import StreamSigner, wanted_words
from anabranch.runtime.federation_reader import AnyLog, FederationReader

_TEACHES: Final = {
    "known already": "it stands there already",
    "not the next version": (
        "not the next version: a contract begins with version 1, and each text that both have"
        " signed is followed by the next"
    ),
    "out of its time": "its time is over, or the clock here is off by more than a minute",
    "says something else than what both signed": (
        "another text stands there: sign that one (anabranch contracts sign), or give yours the"
        " next version"
    ),
    "not in the contract's present state": (
        "the contract is not in a state for that: anabranch contracts shows it"
    ),
}

AnyText = Contract | ContentContract | MovementContract


class Words:
    """What one participant says. Nothing is contacted yet."""

    def __init__(
        self, log: EventLog, federation: Federation, key: SigningKey, clock: Clock
    ) -> None:
        self._log = log
        self._federation = federation
        self._key = key
        self._clock = clock
        self._topics = FederationTopics(federation.name)

    @property
    def participant(self) -> str:
        """Whose words they are."""
        return self._key.participant

    @property
    def key_id(self) -> str:
        """Of the key that signs them."""
        return self._key.key_id

    # ---------------------------------------------------------------- keys

    def publish(self, *, is_revoked: bool = False) -> None:
        """Publish the key, and make the participant's topics where they are missing; or revoke it.

        Raises:
            ConfigurationError: it would not count.
            Unavailable: no answer, or it is not known whether it was written.
        """
        word = PublishedKey(self._key.participant, self._key.key_id, self._key.public, is_revoked)
        topic = self._topics.keys(word.participant)
        with closing(read_book(self._log, self._federation)) as reader:
            reason = reader.keys.add(word.participant, word, self._clock.now_ms())
        if reason:
            raise ConfigurationError(f"key {word.key_id} of {word.participant}: {reason}")
        self._make("keys", topic)
        self._make("catalog", self._topics.catalog(word.participant))
        self._write(topic, federation_records.encode_key(word))

    def name_signers(self, pipeline: str, signers: dict[str, list[str]]) -> list[StreamSigner]:
        """State who may sign which streams of a pipeline beside their owner, and withdraw earlier
        statements about others; the statements that this took.

        Raises:
            ConfigurationError: it would not count.
            Unavailable: no answer, or it is not known whether it was written.
        """
        with closing(read_book(self._log, self._federation)) as reader:
            now_ms = self._clock.now_ms()
            self._is_published(reader, now_ms)
            words = wanted_words(self._key.participant, pipeline, signers, reader.signers, now_ms)
            for word in words:
                reason = reader.signers.add(word.participant, word, self._key.sign(word), now_ms)
                if reason:
                    raise ConfigurationError(f"{word.stream}, signed by {word.signer}: {reason}")
        for word in words:
            value = federation_records.encode(word, self._key.sign(word))
            self._write(self._topics.keys(word.participant), value)
        return words

    # ---------------------------------------------------------------- contracts

    def propose(self, text: AnyText) -> None:
        """Sign a text of one's own, and make the contract's topics where they are missing.

        Raises:
            ConfigurationError: it would not count.
            Unavailable: no answer, or it is not known whether it was written.
        """
        self._is_party(text)
        with closing(read_book(self._log, self._federation)) as reader:
            self._try(reader, text.contract_id, text)
        self._make("contract", self._topics.contract(text.contract_id))
        if isinstance(text, Contract):
            self._make("offers", self._topics.offers(text.contract_id))
        self._say(text)

    def sign(self, contract_id: str) -> AnyText:
        """Sign what the other side has proposed; the text.

        Raises:
            ConfigurationError: there is nothing to be signed, or it would not count.
            Unavailable: no answer, or it is not known whether it was written.
        """
        with closing(read_book(self._log, self._federation)) as reader:
            proposal = self._found(reader, contract_id).proposal
            if proposal is None:
                raise ConfigurationError(
                    f"{contract_id}: nothing is proposed that could be signed; a party proposes"
                    " with anabranch contracts propose FILE"
                )
            text = proposal.contract
            self._is_party(text)
            if self._key.participant in proposal.signed_by:
                other = text.seller if self._key.participant == text.buyer else text.buyer
                raise ConfigurationError(
                    f"{contract_id}: {self._key.participant} has signed version {text.version}"
                    f" already; now {other} must"
                )
            self._try(reader, contract_id, text)
        self._say(text)
        return text

    def change(self, contract_id: str, change: Change) -> ContractState | None:
        """Suspend, resume, give notice, withdraw; the state after it, None: there is none.

        Raises:
            ConfigurationError: it would not count.
            Unavailable: no answer, or it is not known whether it was written.
        """
        with closing(read_book(self._log, self._federation)) as reader:
            found = self._found(reader, contract_id)
            booked = found.proposal if change is Change.WITHDRAWN else found.booked
            if booked is None:
                raise ConfigurationError(f"{contract_id}: nothing is proposed")
            self._is_party(booked.contract)
            # A word's number must grow: the time does, and nobody has to remember it.
            now_ms = self._clock.now_ms()
            word = ContractChange(
                contract_id, booked.contract.version, self._key.participant, change, now_ms, now_ms
            )
            self._try(reader, contract_id, word)
        self._say(word)
        with closing(read_book(self._log, self._federation)) as reader:
            after = self._found(reader, contract_id).booked
            return None if after is None else after.state_at(self._clock.now_ms())

    def cancel(self, contract_id: str) -> None:
        """Leave all plans of a movement contract but the plain one, for good.

        Raises:
            ConfigurationError: it would not count.
            Unavailable: no answer, or it is not known whether it was written.
        """
        word = PlanWord(contract_id, self._key.participant, Word.CANCELLED, 0)
        with closing(read_book(self._log, self._federation)) as reader:
            if not isinstance(self._found(reader, contract_id), PlanLog):
                raise ConfigurationError(
                    f"{contract_id} is not a movement contract; another ends by a notice"
                )
            self._try(reader, contract_id, word)
        self._say(word)

    def suggest(self, contract_id: str, terms: ContentContract, open_until_ms: int) -> None:
        """Let the receiver of a stream know that it can have it elsewhere, by these terms.

        Raises:
            ConfigurationError: it would not count.
            Unavailable: no answer, or it is not known whether it was written.
        """
        word = SuggestedContract(
            contract_id, self._key.participant, terms.receiver, terms, open_until_ms
        )
        with closing(read_book(self._log, self._federation)) as reader:
            if not isinstance(self._found(reader, contract_id), ContentLog):
                raise ConfigurationError(f"{contract_id} is not a contract for a stream")
            self._try(reader, contract_id, word)
        self._say(word)

    # ---------------------------------------------------------------- how

    def _is_party(self, text: AnyText) -> None:
        if text.party(self._key.participant) is None:
            raise ConfigurationError(
                f"{text.contract_id} is between {text.buyer} and {text.seller}; the key is one of"
                f" {self._key.participant}"
            )

    def _found(self, reader: FederationReader, contract_id: str) -> AnyLog:
        found = reader.find(contract_id)
        if found is None:
            known = ", ".join(reader.every) or "none"
            raise ConfigurationError(
                f"{self._key.participant} sees no contract {contract_id}; it sees: {known}"
            )
        return found

    def _try(
        self,
        reader: FederationReader,
        contract_id: str,
        statement: AnyText | ContractChange | SuggestedContract | PlanWord,
    ) -> None:
        """On the copy that ``reader`` has, which is not used any more."""
        topic, now_ms = self._topics.contract(contract_id), self._clock.now_ms()
        if topic in reader.undatable:
            raise ConfigurationError(
                f"topic {topic} has not message.timestamp.type=LogAppendTime: whoever writes could"
                " date records at will, so nothing in it counts. Have it set before anything is"
                " agreed: kafka-configs.sh --alter --entity-type topics --entity-name"
                f" {topic} --add-config message.timestamp.type=LogAppendTime"
            )
        self._is_published(reader, now_ms)
        if isinstance(statement, (Contract, MovementContract)):
            self._is_free(reader, statement)
        reason = reader.add(contract_id, statement, self._key.sign(statement), now_ms)
        if reason:
            raise ConfigurationError(f"{contract_id}: {_TEACHES.get(reason, reason)}")

    def _is_free(self, reader: FederationReader, text: Contract | MovementContract) -> None:
        """No other kind of contract names its tasks: a stage moves under one of them."""
        others = reader.contracts if isinstance(text, MovementContract) else reader.plans
        for name, other in others.items():
            booked = other.booked
            if booked is None or booked.state_at(self._clock.now_ms()) is ContractState.ENDED:
                continue
            both = sorted(set(tasks_of(text)) & set(tasks_of(booked.contract)))
            if both:
                raise ConfigurationError(
                    f"{text.contract_id}: {', '.join(both)} may move under {name} already; a stage"
                    " is named by contracts for load or by a movement contract, not by both"
                )

    def _is_published(self, reader: FederationReader, now_ms: int) -> None:
        if reader.keys.find(self._key.participant, self._key.key_id, now_ms) is None:
            raise ConfigurationError(
                f"key {self._key.key_id} of {self._key.participant} is not published, or revoked:"
                " nobody could check the signature. Publish it first: anabranch keys publish"
            )

    def _make(self, kind: str, topic: str) -> None:
        admin = self._log.admin()
        try:
            admin.create([topic_settings(kind, topic, replication=BROKERS_OWN)])
        finally:
            admin.close()

    def _say(self, statement: AnyText | ContractChange | SuggestedContract | PlanWord) -> None:
        value = federation_records.encode(statement, self._key.sign(statement))
        self._write(self._topics.contract(statement.contract_id), value)

    def _write(self, topic: str, value: bytes) -> None:
        writer = self._log.writer()
        try:
            writer.send(TopicPartition(topic, 0), value)
            writer.flush()
        except OutcomeUnknown as error:
            raise Unavailable(
                f"it is not known whether it was written: {error}; give the command again"
            ) from error
        finally:
            writer.close()
