"""Writer of a participant's entries into the ledgers of its contracts, and of its statements about
contracts.

An entry with an unknown outcome is written again: readers count an entry once. So this module only
remembers when it last wrote an entry, which limits how often it repeats one.
"""

from __future__ import annotations

from typing import Final

from anabranch.adapters.signing import SigningKey
from anabranch.codec import federation_records
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import Clock, EventLog, LogWriter, TopicPartition
from anabranch.process.crash_points import crash_point
from anabranch.protocol.errors import OutcomeUnknown, Unavailable
from anabranch.protocol.federation.contract_book import ContractChange
from anabranch.protocol.federation.ledger import Metered
from anabranch.protocol.federation.movements import MovementEntry, Placed
from anabranch.protocol.federation.plan_switching import PlanWord

_AGAIN_MS: Final = 3_000
"""Time, in ms, after which an entry that does not count yet is written again."""


class LedgerWriter:
    """Writer of one participant. Not thread-safe."""

    def __init__(
        self, log: EventLog, topics: FederationTopics, key: SigningKey, clock: Clock
    ) -> None:
        """Prepare the writer; no broker is contacted yet."""
        self._log = log
        self._topics = topics
        self._key = key
        self._clock = clock
        self._writer: LogWriter | None = None
        self._sent: dict[tuple[str, str, int], int] = {}

    def write(self, entry: MovementEntry | Placed | Metered | ContractChange | PlanWord) -> bool:
        """Write ``entry``, unless it was written less than _AGAIN_MS ago. Return whether this call
        wrote it.
        """
        now_ms = self._clock.monotonic_ms()
        which = _identity(entry)
        self._sent = {
            each: sent_ms for each, sent_ms in self._sent.items() if now_ms - sent_ms < _AGAIN_MS
        }
        if which in self._sent:
            return False
        # Before the send: an entry with an unknown outcome waits for its repetition, too.
        self._sent[which] = now_ms
        crash_point("agent.entry_due")
        at = TopicPartition(self._topics.contract(entry.contract_id), 0)
        try:
            if self._writer is None:
                self._writer = self._log.writer()
            self._writer.send(at, federation_records.encode(entry, self._key.sign(entry)))
            self._writer.flush()
        except (OutcomeUnknown, Unavailable):
            self.close()
            return False
        crash_point("agent.entry_written")
        return True

    def close(self) -> None:
        """Close the writer. Idempotent."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def _identity(
    entry: MovementEntry | Placed | Metered | ContractChange | PlanWord,
) -> tuple[str, str, int]:
    """Return the identity of an entry: entries with the same identity state the same."""
    kind = type(entry).__name__
    match entry:
        case PlanWord():
            return f"plan {entry.word.value}", entry.contract_id, entry.number
        case ContractChange():
            return kind, entry.contract_id, -1
        case Metered():
            return kind, entry.movement_id, entry.slot
        case Placed():
            return kind, entry.movement_id, entry.number
        case _:
            return kind, entry.movement_id, -1
