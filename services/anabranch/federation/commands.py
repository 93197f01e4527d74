"""Commands by which a participant writes to its federation: keys, stream signers, contracts.

Each command first applies its signed statement to a freshly read copy of the federation's logs, by
the rules that every reader applies, and appends it only if it would be accepted. After a crash or
an unknown outcome the command may be given again: readers ignore a statement that they know.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Final

from anabranch.adapters.signing import SigningKey
from anabranch.codec import federation_records
from anabranch.codec.catalog import BROKERS_OWN, topic_settings
from anabranch.federation.log_reader import AnyLog, FederationReader
from anabranch.federation.tables import read_book
from anabranch.pipeline.model import Federation
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import Clock, EventLog, TopicPartition
from anabranch.protocol.errors import ConfigurationError, OutcomeUnknown, Unavailable
from anabranch.protocol.federation.contract_book import Change, ContractChange, ContractState
from anabranch.protocol.federation.contract_log import AnyText
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.ledger import Ledger
from anabranch.protocol.federation.oracle import tasks_of
from anabranch.protocol.federation.plan_switching import PlanWord, Word
from anabranch.protocol.federation.published_keys import PublishedKey
from anabranch.protocol.federation.stream_contracts import StreamContract, SuggestedContract
from anabranch.protocol.federation.stream_signers import StreamSigner, wanted_words
from anabranch.streams.key_reader import UNDATED

_ADVICE: Final = {
    "known already": "it was written before: there is nothing to do",
    "not the next version": (
        "not the next version: a contract begins with version 1, and each text that both sides"
        " have signed is followed by the next version"
    ),
    "out of its time": (
        "its time is over, or this machine's clock is off by more than a minute: check the times in"
        " the text, and the clock (anabranch doctor)"
    ),
    "says something else than what both signed": (
        "another text of this version was proposed: sign that one (anabranch contracts sign), or"
        " give yours the next version; with other parties, of another kind, or with other streams"
        " it is another contract, and needs an id of its own"
    ),
    "of another kind of contract": (
        "it is a contract for load: only a movement contract is cancelled, and only a contract for"
        " a stream takes suggestions; anabranch contracts notice ends any contract"
    ),
    "the contract has one plan": (
        "it is not a movement contract, which alone is cancelled; to end it: anabranch contracts"
        " notice"
    ),
    "not to a contract for one stream": (
        "it is a movement contract: only a contract for one stream takes suggestions"
    ),
    "not in the contract's present state": (
        "the contract's state does not allow that: anabranch contracts shows the state"
    ),
}
"""Advice by the reason for which the rules reject a statement."""


class FederationCommands:
    """Commands of one participant, signed by one of its keys."""

    def __init__(
        self, log: EventLog, federation: Federation, key: SigningKey, clock: Clock
    ) -> None:
        """Prepare the commands without contacting the broker."""
        self._log = log
        self._federation = federation
        self._key = key
        self._clock = clock
        self._topics = FederationTopics(federation.name)

    @property
    def participant(self) -> str:
        """Participant that gives the commands."""
        return self._key.participant

    @property
    def key_id(self) -> str:
        """Id of the key that signs."""
        return self._key.key_id

    # ---------------------------------------------------------------- keys

    def publish(self, *, is_revoked: bool = False) -> None:
        """Publish the key, or revoke it. Creates the participant's topics where they are missing.

        Raises:
            ConfigurationError: readers would reject the statement.
            Unavailable: the broker does not answer, or the outcome of the write is unknown.
        """
        statement = PublishedKey(
            self._key.participant, self._key.key_id, self._key.public, is_revoked
        )
        topic = self._topics.keys(statement.participant)
        with closing(read_book(self._log, self._federation)) as reader:
            _check_read(reader, topic)
            reason = reader.keys.add(statement.participant, statement, self._clock.now_ms())
        if reason:
            raise ConfigurationError(f"key {statement.key_id} of {statement.participant}: {reason}")
        self._create_topic("keys", topic)
        self._create_topic("catalog", self._topics.catalog(statement.participant))
        self._write(topic, federation_records.encode_key(statement))

    def name_signers(self, pipeline: str, signers: dict[str, list[str]]) -> list[StreamSigner]:
        """State which participants may sign which streams of ``pipeline`` besides their owner.

        Withdraws earlier statements about other signers. Returns the statements that were written.

        Args:
            pipeline: Name of a pipeline of this participant.
            signers: Names of the signers of each stream.

        Raises:
            ConfigurationError: readers would reject a statement. None is written then.
            Unavailable: the broker does not answer, or the outcome of a write is unknown.
        """
        with closing(read_book(self._log, self._federation)) as reader:
            now_ms = self._clock.now_ms()
            self._check_key_published(reader, now_ms)
            statements = wanted_words(
                self._key.participant, pipeline, signers, reader.signers, now_ms
            )
            for each in statements:
                reason = reader.signers.add(each.participant, each, self._key.sign(each), now_ms)
                if reason:
                    raise ConfigurationError(f"{each.stream}, signed by {each.signer}: {reason}")
        for each in statements:
            value = federation_records.encode(each, self._key.sign(each))
            self._write(self._topics.keys(each.participant), value)
        return statements

    # ---------------------------------------------------------------- contracts

    def propose(self, text: AnyText) -> None:
        """Sign ``text`` as a proposal. Creates the contract's topics where they are missing.

        Raises:
            ConfigurationError: this participant is no party, or readers would reject the text.
            Unavailable: the broker does not answer, or the outcome of the write is unknown.
        """
        self._check_party(text)
        with closing(read_book(self._log, self._federation)) as reader:
            self._check_accepted(reader, text.contract_id, text)
        self._create_topic("contract", self._topics.contract(text.contract_id))
        if isinstance(text, Contract):
            self._create_topic("offers", self._topics.offers(text.contract_id))
        self._append_signed(text)

    def sign(self, contract_id: str) -> AnyText:
        """Sign the text that the other side has proposed, and return it.

        Raises:
            ConfigurationError: there is nothing to sign, or readers would reject the signature.
            Unavailable: the broker does not answer, or the outcome of the write is unknown.
        """
        with closing(read_book(self._log, self._federation)) as reader:
            proposal = self._find(reader, contract_id).proposal
            if proposal is None:
                raise ConfigurationError(
                    f"{contract_id}: no text waits for a signature; a party proposes one with"
                    " anabranch contracts propose FILE"
                )
            text = proposal.contract
            self._check_party(text)
            if self._key.participant in proposal.signed_by:
                other = text.seller if self._key.participant == text.buyer else text.buyer
                raise ConfigurationError(
                    f"{contract_id}: {self._key.participant} has signed version {text.version}"
                    f" already; now {other} must"
                )
            self._check_accepted(reader, contract_id, text)
        self._append_signed(text)
        return text

    def change(self, contract_id: str, change: Change) -> ContractState | None:
        """Suspend, resume, terminate or withdraw a contract, and return the state after that.

        Returns None if no text of the contract is left.

        Raises:
            ConfigurationError: there is nothing to change, or readers would reject the change.
            Unavailable: the broker does not answer, or the outcome of the write is unknown.
        """
        with closing(read_book(self._log, self._federation)) as reader:
            found = self._find(reader, contract_id)
            booked = found.proposal if change is Change.WITHDRAWN else found.booked
            if booked is None:
                raise ConfigurationError(
                    f"{contract_id}: there is no proposal; anabranch contracts shows what there is"
                )
            self._check_party(booked.contract)
            # Readers ignore a change whose number is not above the last one's. The time grows
            # without state that would have to survive between commands.
            now_ms = self._clock.now_ms()
            statement = ContractChange(
                contract_id, booked.contract.version, self._key.participant, change, now_ms, now_ms
            )
            self._check_accepted(reader, contract_id, statement)
        self._append_signed(statement)
        # Read anew: the other side may have changed the contract at the same time, and the order
        # of the log decides.
        with closing(read_book(self._log, self._federation)) as reader:
            after = self._find(reader, contract_id).booked
            return None if after is None else after.state_at(self._clock.now_ms())

    def cancel(self, contract_id: str) -> None:
        """Return a movement contract to its plain plan, for good.

        Raises:
            ConfigurationError: readers would reject the statement: it is no movement contract, or
                is cancelled.
            Unavailable: the broker does not answer, or the outcome of the write is unknown.
        """
        statement = PlanWord(contract_id, self._key.participant, Word.CANCELLED, 0)
        with closing(read_book(self._log, self._federation)) as reader:
            self._find(reader, contract_id)
            self._check_accepted(reader, contract_id, statement)
        self._append_signed(statement)

    def suggest(self, contract_id: str, terms: AnyText, open_until_ms: int) -> None:
        """Suggest to the receiver of a stream that it read the stream under ``terms`` instead.

        Raises:
            ConfigurationError: the terms are for load, or readers would reject the suggestion.
            Unavailable: the broker does not answer, or the outcome of the write is unknown.
        """
        if isinstance(terms, Contract):
            raise ConfigurationError(
                f"{terms.contract_id} is a contract for load; suggest terms for a stream:"
                " anabranch contracts terms --stream"
            )
        statement = SuggestedContract(
            contract_id, self._key.participant, terms.receiver, terms, open_until_ms
        )
        with closing(read_book(self._log, self._federation)) as reader:
            self._find(reader, contract_id)
            self._check_accepted(reader, contract_id, statement)
        self._append_signed(statement)

    # ---------------------------------------------------------------- checks and writes

    def _check_party(self, text: AnyText) -> None:
        """Fail unless this participant is the buyer or the seller of ``text``."""
        if text.party(self._key.participant) is None:
            raise ConfigurationError(
                f"{text.contract_id} is between {text.buyer} and {text.seller}, but the key belongs"
                f" to {self._key.participant}: give the key of one of the two"
            )

    def _find(self, reader: FederationReader, contract_id: str) -> AnyLog:
        """Return the log of a contract; fail if this participant sees none of that id, or readers
        ignore it.
        """
        _check_read(reader, self._topics.contract(contract_id))
        found = reader.find(contract_id)
        if found is None:
            known = ", ".join(reader.every) or "none"
            raise ConfigurationError(
                f"{self._key.participant} sees no contract {contract_id}; it sees: {known}"
            )
        return found

    def _check_accepted(
        self,
        reader: FederationReader,
        contract_id: str,
        statement: AnyText | ContractChange | SuggestedContract | PlanWord,
    ) -> None:
        """Fail unless every reader will accept ``statement``.

        Adds the statement to the contract's log in ``reader``, which must not be used afterwards.
        """
        topic, now_ms = self._topics.contract(contract_id), self._clock.now_ms()
        _check_read(reader, topic)
        self._check_key_published(reader, now_ms)
        if isinstance(statement, (Contract, StreamContract)):
            self._check_tasks_free(reader, statement)
            self._check_slots_kept(reader, statement)
        reason = reader.add(contract_id, statement, self._key.sign(statement), now_ms)
        if reason:
            raise ConfigurationError(f"{contract_id}: {_ADVICE.get(reason, reason)}")

    def _check_tasks_free(self, reader: FederationReader, text: AnyText) -> None:
        """Fail if a contract of the other kind names a task of ``text``: two kinds of contract
        would move the same stage, and pay for it twice.
        """
        others: Mapping[str, AnyLog] = (
            reader.contracts if isinstance(text, StreamContract) else reader.streams
        )
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

    def _check_slots_kept(self, reader: FederationReader, text: AnyText) -> None:
        """Fail if a further version of a contract for load has other slots or periods than the
        first one: the ledger keeps those, whatever a further version says (``Ledger.renewed``).
        """
        found = reader.find(text.contract_id)
        ledger = None if found is None else found.ledger
        if not isinstance(text, Contract) or not isinstance(ledger, Ledger):
            return
        kept = ledger.clauses
        if (text.audit.meter_ms, text.audit.settle_ms) != (kept.meter_ms, kept.settle_ms):
            raise ConfigurationError(
                f"{text.contract_id}: a contract keeps the slots and periods that it began with:"
                f" write `audit: {{meter: {kept.meter_ms}ms, settle: {kept.settle_ms}ms}}`, or give"
                " the text an id of its own and end this contract (anabranch contracts notice)"
            )

    def _check_key_published(self, reader: FederationReader, now_ms: int) -> None:
        """Fail unless readers can verify signatures of the key."""
        _check_read(reader, self._topics.keys(self._key.participant))
        if reader.keys.find(self._key.participant, self._key.key_id, now_ms) is None:
            raise ConfigurationError(
                f"key {self._key.key_id} of {self._key.participant} is not published, or revoked:"
                " nobody could check the signature. Publish it first: anabranch keys publish"
            )

    def _create_topic(self, kind: str, topic: str) -> None:
        """Create ``topic`` with the settings of its ``kind``, unless it exists."""
        admin = self._log.admin()
        try:
            admin.create([topic_settings(kind, topic, replication=BROKERS_OWN)])
        finally:
            admin.close()

    def _append_signed(
        self, statement: AnyText | ContractChange | SuggestedContract | PlanWord
    ) -> None:
        """Sign ``statement``, and append it to the log of its contract."""
        value = federation_records.encode(statement, self._key.sign(statement))
        self._write(self._topics.contract(statement.contract_id), value)

    def _write(self, topic: str, value: bytes) -> None:
        """Append one record, and wait until the broker has it."""
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


def _check_read(reader: FederationReader, topic: str) -> None:
    """Fail if readers ignore ``topic``: no agreement can be reached there."""
    why = reader.left_out.get(topic)
    if why is not None:
        advice = (
            ". Have it set before you agree on anything: kafka-configs.sh --alter --entity-type"
            f" topics --entity-name {topic} --add-config message.timestamp.type=LogAppendTime"
        )
        raise ConfigurationError(
            f"readers ignore all of topic {topic}: {why}{advice if why == UNDATED else ''}"
        )
