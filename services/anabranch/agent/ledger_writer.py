"""Writes entries of a participant into the ledgers of its contracts, and its words about them.

An entry whose outcome is not known is written again: what has counted counts once. So nothing is
kept here but when an entry was written last, which bounds how often that is.
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
"""An entry that did not count by then is written again."""


class LedgerWriter:
    """Of one participant. Not thread-safe."""

    def __init__(
        self, log: EventLog, topics: FederationTopics, key: SigningKey, clock: Clock
    ) -> None:
        """Nothing is contacted yet."""
        self._log = log
        self._topics = topics
        self._key = key
        self._clock = clock
        self._writer: LogWriter | None = None
        self._sent: dict[tuple[str, str, int], int] = {}

    def write(self, entry: MovementEntry | Placed | Metered | ContractChange | PlanWord) -> bool:
        """Write ``entry``, unless it was written a moment ago; whether it is in the topic now."""
        now_ms = self._clock.monotonic_ms()
        which = _which(entry)
        self._sent = {
            each: sent_ms for each, sent_ms in self._sent.items() if now_ms - sent_ms < _AGAIN_MS
        }
        if which in self._sent:
            return False
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
        """Idempotent."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def _which(
    entry: MovementEntry | Placed | Metered | ContractChange | PlanWord,
) -> tuple[str, str, int]:
    """Two entries of which this is the same say the same."""
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
