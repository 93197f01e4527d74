"""Writer of a participant's entries into the ledgers of its contracts, and of its statements about
contracts.

An entry with an unknown outcome is written again: readers count an entry once. So this module only
remembers when it last wrote an entry, which limits how often it repeats one. One that still does
not count is repeated with growing pauses: the log rejects it, because of a clock that is wrong or a
key that is revoked, and it keeps every record for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.codec import federation_records
from anabranch.ports import LogWriter, TopicPartition
from anabranch.process.crash_points import crash_point
from anabranch.protocol.errors import OutcomeUnknown, Unavailable
from anabranch.protocol.federation.contract_book import Change, ContractChange
from anabranch.protocol.federation.ledger import (
    AuditCommitted,
    Audited,
    LedgerEntry,
    Metered,
    Settled,
)
from anabranch.protocol.federation.movements import Placed
from anabranch.protocol.federation.plan_switching import PlanWord
from anabranch.protocol.federation.stream_contracts import StreamContract
from anabranch.protocol.federation.stream_ledger import StreamMetered

if TYPE_CHECKING:
    from anabranch.adapters.signing import SigningKey
    from anabranch.federation.log_reader import AnyLog
    from anabranch.pipeline.topic_names import FederationTopics
    from anabranch.process.frame import ServiceContext

_AGAIN_MS: Final = 3_000
"""Time, in ms, after which an entry that does not count yet is written again: long enough to read
it back. It doubles with each further repetition.
"""

_AGAIN_MS_MAX: Final = 60_000
"""Maximum of that time, in ms: what is rejected is soon written again once it counts."""

Entry = LedgerEntry | StreamMetered | ContractChange | PlanWord | StreamContract


class _Sent(NamedTuple):
    """Last time at which an entry was written, and the pause before it is repeated, in ms."""

    at_ms: int
    wait_ms: int


class LedgerWriter:
    """Writer of one participant. Not thread-safe."""

    def __init__(self, context: ServiceContext, topics: FederationTopics, key: SigningKey) -> None:
        """Prepare the writer; no broker is contacted yet."""
        self._context, self._topics, self._key = context, topics, key
        self._writer: LogWriter | None = None
        self._sent: dict[tuple[str, ...], _Sent] = {}

    def write(self, entry: Entry) -> bool:
        """Write ``entry``, unless it was written a moment ago; return whether this call did."""
        now_ms = self._context.clock.monotonic_ms()
        which = _identity(entry)
        # Twice as long as it waits: whoever still wants the entry has written it again by then.
        self._sent = {
            each: sent
            for each, sent in self._sent.items()
            if now_ms - sent.at_ms < 2 * sent.wait_ms
        }
        before = self._sent.get(which)
        if before is not None and now_ms - before.at_ms < before.wait_ms:
            return False
        wait_ms = _AGAIN_MS if before is None else min(2 * before.wait_ms, _AGAIN_MS_MAX)
        # Before the send: an entry with an unknown outcome waits for its repetition, too.
        self._sent[which] = _Sent(now_ms, wait_ms)
        crash_point("ledger.entry_due")
        at = TopicPartition(self._topics.contract(entry.contract_id), 0)
        try:
            if self._writer is None:
                self._writer = self._context.log.writer()
            self._writer.send(at, federation_records.encode(entry, self._key.sign(entry)))
            self._writer.flush()
        except (OutcomeUnknown, Unavailable) as error:
            self._context.logger.warning(
                "entry_delayed", contract=entry.contract_id, error=str(error)
            )
            self.close()
            self._sent[which] = _Sent(now_ms, _AGAIN_MS)  # nothing has rejected it
            return False
        crash_point("ledger.entry_written")
        return True

    def suspend(self, contract: AnyLog) -> None:
        """Suspend a contract if its log shows a reason: nothing new is agreed on until a person
        resumes it.
        """
        reason = contract.reason_to_suspend(self._key.participant)
        if not reason or contract.booked is None:
            return
        name, version = contract.contract_id, contract.booked.contract.version
        # The number of a party's changes must increase, as the time does. Operators use it, too.
        now_ms = self._context.clock.now_ms()
        word = ContractChange(
            name, version, self._key.participant, Change.SUSPENDED, now_ms, now_ms
        )
        if self.write(word):
            self._context.logger.warning("contract_suspended", contract=name, reason=reason)

    def close(self) -> None:
        """Close the writer. Idempotent."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def _identity(entry: Entry) -> tuple[str, ...]:
    """Return the identity of an entry: entries with the same identity state the same."""
    kind = type(entry).__name__
    match entry:
        case PlanWord():
            return kind, entry.contract_id, entry.word.value, str(entry.number)
        case ContractChange() | StreamContract():
            return kind, entry.contract_id
        case StreamMetered() | Settled():
            return kind, entry.contract_id, str(entry.period)
        case Metered():
            return kind, entry.movement_id, str(entry.slot)
        case Placed():
            return kind, entry.movement_id, str(entry.number)
        case AuditCommitted():
            return kind, entry.digest.hex()
        case Audited():
            return kind, entry.nonce.hex()
        case _:
            return kind, entry.movement_id
