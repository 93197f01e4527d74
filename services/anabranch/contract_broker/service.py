"""Contract broker: connects ``protocol.federation`` with the logs of a federation.

It keeps no state of its own: a start reads the logs from their beginnings and derives the same
book, movements and sums. It neither matches parties nor takes part in movements: while it is down
load moves under the existing contracts, and is settled later.

It writes settlements of contracts whose party or auditor it is. A settlement counts once, with the
right sum, whichever broker writes it: so it may be repeated after a crash, or written beside
another broker, and a sum that a late measurement changes is written anew. For contracts for
streams it also writes what came of their streams (``stream_meter``), and suspends a
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
from anabranch.contract_broker.catalog_writer import CatalogWriter
from anabranch.contract_broker.stream_meter import StreamMeter
from anabranch.federation.ledger_writer import LedgerWriter
from anabranch.federation.log_reader import AnyLog, FederationReader
from anabranch.pipeline.file import hosted_pipelines
from anabranch.pipeline.model import Federation, Pipeline
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.process.frame import ServiceContext, ServiceStatus
from anabranch.process.settings import ServiceSettings
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.federation.contract_book import ContractState
from anabranch.protocol.federation.ledger import Settled

_LABELS: Final = ("pipeline",)
_POLL_MS: Final = 200
"""Timeout for polling the logs, in ms."""
_LOOK_EVERY_MS: Final = 5_000
"""Interval between checks for new contracts, in ms: each asks the broker for the names of all
topics.
"""
_SETTLE_EVERY_MS: Final = 1_000
"""Maximum time, in ms, that a settlement waits while measurements arrive without a pause."""


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
        self._ledgers = None if key is None else LedgerWriter(context, self._topics, key)
        self._catalog = (
            None
            if key is None
            else CatalogWriter(context, federation, self._topics.catalog(key.participant), key)
        )
        self._meter = (
            None
            if key is None or self._ledgers is None
            else StreamMeter(
                context, self._topics, key.participant, self._ledgers.write, hosted or {}
            )
        )
        self._look_next_ms = self._settle_next_ms = 0
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
        if self._catalog is not None:
            self._catalog.refresh(self._reader)
        try:
            if now_ms >= self._look_next_ms:
                self._look_next_ms = now_ms + _LOOK_EVERY_MS
                self._reader.look()
            has_read = self._reader.poll(_POLL_MS) > 0
            self.status.waiting_for = self._reader.waits_for
        except Unavailable as error:
            # What was read is applied once the keys by which it is judged can be read, too.
            self.status.waiting_for = f"the broker: {error}"
            has_read = True
        if has_read and now_ms < self._settle_next_ms:
            self._report(self._reader)
            return
        self._settle_next_ms = now_ms + _SETTLE_EVERY_MS
        if self._key is not None and self._ledgers is not None and self._meter is not None:
            self._meter.measure(self._reader.streams)
            for contract in self._reader.every.values():
                self._settle(contract, self._key.participant, self._ledgers)
            for stream in self._reader.streams.values():
                self._ledgers.suspend(stream)
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
        if self._ledgers is not None:
            self._ledgers.close()

    def _settle(self, contract: AnyLog, participant: str, ledgers: LedgerWriter) -> None:
        """Write the settlement of a contract's next period, if it is due."""
        ledger = contract.ledger
        if ledger is None or not ledger.may_settle(participant):
            return
        ripe = ledger.ripe(self._context.clock.now_ms())
        if ripe is None:
            return
        period, due_nano = ripe
        if ledgers.write(Settled(contract.contract_id, participant, period, due_nano)):
            self._settlements.inc()
            self._context.logger.info(
                "settled", contract=contract.contract_id, period=period, due_nano=due_nano
            )

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
            "left_out": dict(sorted(reader.left_out.items())),
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
