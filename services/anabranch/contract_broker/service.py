"""Contract broker: connects ``protocol.federation`` with the logs of a federation.

It keeps no state of its own: a start reads the logs from their beginnings and derives the same
book, movements and sums. It neither matches parties nor takes part in movements: while it is down
load moves under the existing contracts, and is settled later.

It writes settlements of contracts whose party or auditor it is. A settlement counts once, with the
right sum, whichever broker writes it: so it may be repeated after a crash, or written beside
another broker, and a sum that a late measurement changes is written anew. For contracts for
streams it also writes what came of their streams (``content_meter``), and suspends a
contract whose periods are in dispute, as an agent does for contracts for load. And it lists its
pipeline in its participant's catalog (``catalog_writer``).
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Final

from prometheus_client import Counter, Gauge

from anabranch.adapters.key_files import key_of_environment
from anabranch.adapters.signing import SigningKey
from anabranch.codec import federation_records
from anabranch.contract_broker.catalog_writer import CatalogWriter
from anabranch.contract_broker.content_meter import ContentMeter
from anabranch.federation.log_reader import AnyLog, FederationReader
from anabranch.pipeline.file import hosted_pipelines
from anabranch.pipeline.model import Federation, Pipeline
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import LogWriter, TopicPartition
from anabranch.process.crash_points import crash_point
from anabranch.process.frame import ServiceContext, ServiceStatus
from anabranch.process.settings import ServiceSettings
from anabranch.protocol.errors import ConfigurationError, OutcomeUnknown, Unavailable
from anabranch.protocol.federation.contract_book import Change, ContractChange, ContractState
from anabranch.protocol.federation.contract_log import StreamLog
from anabranch.protocol.federation.ledger import Settled
from anabranch.protocol.federation.stream_ledger import ContentMetered

_LABELS: Final = ("pipeline",)
_POLL_MS: Final = 200
"""Timeout for polling the logs, in ms."""
_LOOK_EVERY_MS: Final = 5_000
"""Interval between checks for new contracts, in ms: each asks the broker for the names of all
topics.
"""
_SETTLE_EVERY_MS: Final = 1_000
"""Maximum time, in ms, that a settlement waits while measurements arrive without a pause."""
_AGAIN_MS: Final = 10_000
"""Time, in ms, after which a settlement that does not count yet, or whose outcome is unknown, is
written again.
"""
_SUSPENSION: Final = -1
"""Key of a suspension in ``_sent``, in place of a period."""


def build(settings: ServiceSettings, context: ServiceContext) -> ContractBroker:
    """Build the broker of the federation that the pipeline file names.

    Raises:
        ConfigurationError: the file names no federation, the key cannot be used, or the file of a
            hosted pipeline is wrong.
    """
    federation = context.pipeline.federation
    if federation is None:
        raise ConfigurationError(
            f"{settings.pipeline}: there is no federation; add `federation: {{name: ...,"
            " participant: ...}`"
        )
    hosted = hosted_pipelines(federation)
    return ContractBroker(context, federation, key_of_environment(federation.participant), hosted)


class ContractBroker:
    """Service of one contract broker."""

    def __init__(
        self,
        context: ServiceContext,
        federation: Federation,
        key: SigningKey | None,
        hosted: Mapping[str, Pipeline] | None = None,
    ) -> None:
        """Prepare the broker; no Kafka broker is contacted yet.

        Args:
            context: The context of the process.
            federation: The federation of the pipeline file.
            key: The key that it signs with; None: it only reads, and settles nothing.
            hosted: Pipelines of other owners whose stages may run here.
        """
        self.status = ServiceStatus()
        self._context = context
        self._federation = federation
        self._key = key
        self._topics = FederationTopics(federation.name)
        self._reader: FederationReader | None = None
        self._writer: LogWriter | None = None
        self._catalog = (
            None
            if key is None
            else CatalogWriter(context, federation, self._topics.catalog(key.participant), key)
        )
        self._meter = (
            None
            if key is None
            else ContentMeter(
                context, self._topics, key.participant, self._write_metered, hosted or {}
            )
        )
        self._look_next_ms = self._settle_next_ms = 0
        self._sent: dict[tuple[str, int], int] = {}
        """Time of the last write of each settlement, by (contract, period)."""
        self._counted: collections.Counter[str] = collections.Counter()
        self._contracts = Gauge(
            "anabranch_contracts",
            "Contracts that this participant may read, by their state",
            (*_LABELS, "state"),
            registry=context.registry,
        )
        self._settlements = Counter(
            "anabranch_settlements_written",
            "Settlements that this process wrote",
            _LABELS,
            registry=context.registry,
        ).labels(context.pipeline.name)
        self._disputes = Gauge(
            "anabranch_disputes",
            "Slots of a contract's movements, or periods of a stream, that the two sides measured"
            " differently",
            (*_LABELS, "contract"),
            registry=context.registry,
        )
        self._ignored = Counter(
            "anabranch_ignored_contract_records",
            "Records of contracts and keys that changed nothing",
            (*_LABELS, "reason"),
            registry=context.registry,
        )

    def start(self) -> None:
        """Read the logs to their ends.

        Raises:
            Unavailable: the broker does not answer.
            DataMissing: the first records of a log were deleted.
        """
        self._reader = FederationReader(self._context.log, self._topics, self._federation.auditor)
        self._reader.read_to_end()
        self._report(self._reader)
        signs_as = None if self._key is None else self._key.participant
        self._context.logger.info(
            "book_read", contracts=len(self._reader.contracts), signs_as=signs_as
        )

    def step(self) -> None:
        """Run one round: read new records, and settle what is due. Settlement waits until no record
        is left to read, at most _SETTLE_EVERY_MS: a sum that an unread record changes does not
        count.
        """
        assert self._reader is not None, "started"  # noqa: S101 - step is called after start
        now_ms = self._context.clock.monotonic_ms()
        if now_ms >= self._look_next_ms:
            self._look_next_ms = now_ms + _LOOK_EVERY_MS
            try:
                self._reader.look()
                self.status.waiting_for = None
            except Unavailable as error:
                self.status.waiting_for = f"the broker: {error}"
        if self._catalog is not None:
            self._catalog.refresh(self._reader)
        if self._reader.poll(_POLL_MS) and now_ms < self._settle_next_ms:
            self._report(self._reader)
            return
        self._settle_next_ms = now_ms + _SETTLE_EVERY_MS
        if self._key is not None and self._meter is not None:
            self._meter.measure(self._reader.streams)
            for contract in self._reader.every.values():
                self._settle(contract, self._key)
            for stream in self._reader.streams.values():
                self._suspend(stream, self._key)
        self._report(self._reader)

    def stop(self) -> None:
        """Close the logs. Idempotent."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._catalog is not None:
            self._catalog.close()
        if self._meter is not None:
            self._meter.close()
        self._close_writer()

    def _settle(self, contract: AnyLog, key: SigningKey) -> None:
        """Write the settlement of a contract's next period, if it is due."""
        ledger, booked = contract.ledger, contract.booked
        if ledger is None or booked is None:
            return
        if booked.contract.party(key.participant) is None and (
            key.participant != self._federation.auditor
        ):
            return
        ripe = ledger.ripe(self._context.clock.now_ms())
        if ripe is None:
            return
        period, due_nano = ripe
        now_ms = self._context.clock.monotonic_ms()
        last_ms = self._sent.get((contract.contract_id, period))
        if last_ms is not None and now_ms - last_ms < _AGAIN_MS:
            return
        crash_point("broker.settlement_due")
        self._sent = {
            which: sent_ms for which, sent_ms in self._sent.items() if now_ms - sent_ms < _AGAIN_MS
        }
        # Before the write: a settlement with an unknown outcome waits for its repetition, too.
        self._sent[contract.contract_id, period] = now_ms
        if self._write(Settled(contract.contract_id, key.participant, period, due_nano), key):
            crash_point("broker.settlement_written")
            self._settlements.inc()
            self._context.logger.info(
                "settled", contract=contract.contract_id, period=period, due_nano=due_nano
            )

    def _write_metered(self, entry: ContentMetered) -> bool:
        """Write a figure of the meter into the ledger. Return whether it was written."""
        assert self._key is not None, "it meters"  # noqa: S101 - else there is no meter
        crash_point("broker.stream_metered")
        return self._write(entry, self._key)

    def _suspend(self, contract: StreamLog, key: SigningKey) -> None:
        """Suspend a contract whose periods are in dispute."""
        booked, reason = contract.booked, contract.reason_to_suspend(key.participant)
        now_ms = self._context.clock.monotonic_ms()
        last_ms = self._sent.get((contract.contract_id, _SUSPENSION))
        if booked is None or not reason or (last_ms is not None and now_ms - last_ms < _AGAIN_MS):
            return
        self._sent[contract.contract_id, _SUSPENSION] = now_ms
        version, at_ms = booked.contract.version, self._context.clock.now_ms()
        # The number of a party's changes must increase, as the time does. Operators use it, too.
        word = ContractChange(
            contract.contract_id, version, key.participant, Change.SUSPENDED, at_ms, at_ms
        )
        if self._write(word, key):
            self._context.logger.warning(
                "contract_suspended", contract=contract.contract_id, reason=reason
            )

    def _write(self, entry: Settled | ContentMetered | ContractChange, key: SigningKey) -> bool:
        """Write ``entry``, signed. Return whether it is in the ledger's topic."""
        if self._writer is None:
            self._writer = self._context.log.writer()
        at = TopicPartition(self._topics.contract(entry.contract_id), 0)
        try:
            self._writer.send(at, federation_records.encode(entry, key.sign(entry)))
            self._writer.flush()
        except (OutcomeUnknown, Unavailable) as error:
            self._context.logger.warning(
                "entry_delayed", contract=entry.contract_id, error=str(error)
            )
            self._close_writer()
            return False
        return True

    def _close_writer(self) -> None:
        """Close the writer; the next entry opens another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _report(self, reader: FederationReader) -> None:
        """Update the metrics and the status."""
        name, now_ms = self._context.pipeline.name, self._context.clock.now_ms()
        states = {
            contract.contract_id: contract.booked.state_at(now_ms)
            for contract in reader.every.values()
            if contract.booked is not None
        }
        for state in ContractState:
            count = sum(each is state for each in states.values())
            self._contracts.labels(name, state.value).set(count)
        for contract in reader.every.values():
            if contract.ledger is not None:
                disputes = len(contract.ledger.disputes)
                self._disputes.labels(name, contract.contract_id).set(disputes)
        ignored = reader.ignored
        for reason, count in (ignored - self._counted).items():
            self._ignored.labels(name, reason).inc(count)
        self._counted = ignored
        self.status.detail = {
            "federation": self._federation.name,
            "signs_as": None if self._key is None else self._key.participant,
            "contracts": {contract: state.value for contract, state in states.items()},
            "ignored": dict(ignored),
            "left_out": sorted(reader.undatable),
            "not_listed": self._not_listed(),
            "not_metered": {} if self._meter is None else dict(self._meter.not_metered),
        }

    def _not_listed(self) -> list[str]:
        """Return what could be in the catalog and is not, with the reason."""
        if self._catalog is None:
            return ["no key is named, so nothing is listed (ANABRANCH_SIGNING_KEY_FILE)"]
        pipeline = self._context.pipeline
        unknown = pipeline.publish_ms.keys() - pipeline.listed_records().keys()
        return [
            *([self._catalog.waiting_for] if self._catalog.waiting_for else ()),
            *(f"{stream}: publish says no record" for stream in sorted(unknown)),
        ]
